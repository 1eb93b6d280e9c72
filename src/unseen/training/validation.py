"""What runs are measured by: while they train, every candidate on source validation images, and at
the end what each selection rule chose, with which all files of a run are written."""

from collections.abc import Hashable, Mapping
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unseen import across_devices
from unseen.atomic import write_json
from unseen.data.roles import warnings_about_images
from unseen.forecast.profile import project
from unseen.methods.base import DomainAware, Method
from unseen.networks.stages import Change
from unseen.reports.card import write_card
from unseen.results.files import write_arrays
from unseen.results.measure import Scores, measure_checkpoint
from unseen.results.result import Merged, RuleResult, RunResult, Views
from unseen.results.rules import Evaluation, choose
from unseen.results.statistics import Observed, evenly, judge
from unseen.settings.experiment import Metric, complete_settings, identity
from unseen.training.average import ValleyAverage
from unseen.training.build import rules_of
from unseen.training.outputs import draw, make_profile, penultimate, pooled
from unseen.training.session import Session

MOST_IMAGES = 1_000
"""Of the target domains, and of source validation: what rules without labels look at."""
Measured = tuple[Views, float]
"""Views, and the temperature of the weights."""


def validate(session: Session) -> None:
    """Measures every run on its source validation images; weights that a rule now prefers are kept,
    unless the method is in a phase that only prepares."""
    learner, shared = session.learner, session.shared
    average, candidate = learner.average, not learner.method.preparing
    if candidate and isinstance(average, ValleyAverage) and not average.ended:
        average.judge(evaluate(session)[0].loss)  # that of the weights themselves
    with learner.averaged():
        evaluations = evaluate(session)
        for number, run in session.active:
            if candidate:
                if shared.setting == "adaptation":
                    judged = judge_without_labels(session)
                    evaluations[number] = evaluations[number]._replace(without_labels=judged)
                run.evaluations.append(evaluations[number])
            if session.fabric.is_global_zero:
                record = evaluation_record(evaluations[number])
                if average is not None:
                    record["averaged_steps"] = average.steps
                if not candidate:
                    record["candidate"] = False
                run.record(record | {"statistics": learner.statistics(number)})
        if not session.fabric.is_global_zero or not evaluations:
            return
        mean = fmean(each.score for each in evaluations.values())
        session.display.evaluation(mean, shared.metric)
        if candidate:
            active, step = session.active, session.step
            chosen = {
                rule: [n for n, run in active if choose(rule, run.evaluations) == step]
                for rule in rules_of(shared)
            }
            learner.keep(chosen)


def evaluate(session: Session) -> dict[int, Evaluation]:
    """Evaluates every active run at this step, on its source validation images. The unseen domain
    is looked at during training only under the selection rule that says so by its name, `oracle`.
    """
    metric, peeks = session.shared.metric, session.shared.selection == "oracle"
    other = metric != "accuracy"
    found: dict[int, Evaluation] = {}
    with session.answering():
        for numbers, roles, evaluator, predict in session.cohorts():
            known = evaluator.score(predict, roles.validation)
            new = evaluator.score(predict, roles.out_of_domain) if peeks else [None] * len(numbers)
            for number, own, unseen in zip(numbers, known, new, strict=True):
                found[number] = Evaluation(
                    session.step,
                    by_domain(own, "accuracy"),
                    by_domain(unseen, "accuracy") if unseen else None,
                    validation_loss={domain: score.loss for domain, score in own.items()},
                    metric=metric,
                    validation_metric=by_domain(own, metric) if other else None,
                    unseen_metric=by_domain(unseen, metric) if unseen and other else None,
                )
    return found


def by_domain(scores: Scores, metric: Metric) -> dict[str, float]:
    """Returns the values of a metric."""
    return {domain: score.measure(metric) for domain, score in scores.items()}


def evaluation_record(evaluation: Evaluation) -> dict[str, Any]:
    """Returns a line of metrics.jsonl."""
    kept = ("step", "validation", "validation_loss")
    optional = {
        f"validation_{evaluation.metric}": evaluation.validation_metric,
        "unseen": evaluation.unseen,
        f"unseen_{evaluation.metric}": evaluation.unseen_metric,
        "without_labels": evaluation.without_labels,
    }
    record = {name: getattr(evaluation, name) for name in kept}
    return record | {name: value for name, value in optional.items() if value}


@torch.no_grad()
def judge_without_labels(session: Session) -> dict[str, float]:
    """Returns what the rules for adaptation find in unlabelled target images: those that training
    looks at, never the ones that are measured. By rule, the same on every device; one pass over
    images serves all rules."""
    images = session.runs[0].images
    target = evenly(images.roles.target_rows, MOST_IMAGES)
    each = max(2, MOST_IMAGES // len(images.roles.validation))
    source = np.concatenate([evenly(rows, each) for rows in images.roles.validation.values()])
    with session.answering():
        seen, known = _observe(session, target), _observe(session, source)
    found = judge(seen, known, images.prepared.index.labels[source])
    values = torch.tensor(list(found.values()), dtype=torch.float64, device=session.fabric.device)
    across_devices.as_first(values)
    return dict(zip(found, values.tolist(), strict=True))


def _observe(session: Session, rows: np.ndarray) -> Observed:
    """Answers images: so few that each device answers all of them."""
    parts: list[tuple[Tensor, Tensor]] = []
    for images in session.feed.images(rows):
        with session.fabric.autocast():
            parts.append(scores_and_features(session.learner.method, images))
    scores, features = (torch.cat(each).float().cpu().numpy() for each in zip(*parts, strict=True))
    return scores, project(features)


def scores_and_features(method: Method, images: Tensor) -> tuple[Tensor, Tensor]:
    """Returns what a method answers, and what its classifier saw when it did: in one pass, unless
    the method runs the classifier more than once, or not at all."""
    seen: list[Tensor] = []

    def keep(x: Tensor, rows: Tensor | None) -> Tensor:
        seen.append(x)
        return x

    changes: dict[str, Change] = {method.network.head: keep}
    with method.network.changed_inputs(changes):
        scores = method.predict(images)
    once = len(seen) == 1 and len(seen[0]) == len(images)
    return scores, pooled(seen[0]) if once else penultimate(method.network, images)


def finish(session: Session) -> None:
    """Measures what every rule chose, then writes the files of every run."""
    rules = rules_of(session.shared)[::-1]
    chosen = {
        number: {rule: choose(rule, run.evaluations) for rule in rules}
        for number, run in session.active
    }
    session.fabric.barrier()  # the first process writes the weights that all of them read
    at_steps = {rule: tuple(steps[rule] for steps in chosen.values()) for rule in rules}
    measured = measure_rules(session, at_steps)
    if not session.fabric.is_global_zero:
        return
    times = session.times()
    session.learner.write_weights(chosen)
    session.learner.use(session.shared.selection)
    for number, steps in chosen.items():
        results = {rule: rule_result(steps[rule], measured[rule][number]) for rule in rules}
        write_files(session, number, results, times)


def measure_rules(
    session: Session, made_of: Mapping[str, Hashable]
) -> dict[str, dict[int, Measured]]:
    """Measures the weights that each rule prefers, by rule and run; rules whose weights are made of
    the same are measured once."""
    uses_domain = isinstance(session.learner.method, DomainAware)
    found: dict[Hashable, dict[int, Measured]] = {}
    for rule, what in made_of.items():
        if what in found:
            continue
        session.learner.use(rule)
        found[what] = {}
        with session.answering():
            for numbers, roles, evaluator, predict in session.cohorts():
                measured = measure_checkpoint(evaluator, predict, roles, uses_domain)
                found[what] |= zip(numbers, measured, strict=True)
    return {rule: found[what] for rule, what in made_of.items()}


def rule_result(step: int, measured: Measured) -> RuleResult:
    return RuleResult(step=step, views=measured[0], temperature=measured[1])


def write_files(
    session: Session,
    number: int,
    results: dict[str, RuleResult],
    times: Mapping[str, float],
    merged: Merged | None = None,
) -> None:
    """Writes all files of a run at its end, for the weights in use; result.json marks it as
    finished. For a model that was averaged from others, the times are those of all of them."""
    run, method = session.runs[number], session.learner.method_of(number)
    folder, steps = run.folder, merged.steps if merged else session.steps
    with session.answering():
        about = (method, session.feed, run.images, session.fabric.autocast)
        pictures, profile = draw(*about), make_profile(*about)
    write_json(folder.timing, {**times, "seconds_per_step": times["seconds"] / steps})
    write_arrays(folder.pictures, pictures)
    profile.write(folder.profile)
    if arrays := method.arrays():
        write_arrays(folder.arrays, arrays)
    experiment, roles, prepared = run.experiment, run.images.roles, run.images.prepared
    remarks = [*method.remarks, *warnings_about_images(prepared.index, roles, experiment)]
    if results[experiment.selection].temperature == 1:
        remarks.append(
            "Its probabilities are not calibrated: every validation image was predicted correctly, "
            "so a temperature could not be fitted."
        )
    result = RunResult(
        run=merged.identity if merged else identity(experiment),
        dataset=experiment.data.name,
        method=experiment.method.name,
        recipe=experiment.recipe,
        backbone=experiment.network.name,
        setting=experiment.setting,
        seed=merged.seeds[0] if merged else experiment.seed,
        steps=session.steps,
        training_domains=tuple(roles.training_domains),
        unseen_domains=tuple(roles.unseen_domains),
        trained_on_unseen=experiment.data.train_on_unseen,
        classes=tuple(method.task.classes),
        data=prepared.content,
        selection=experiment.selection,
        metric=experiment.metric,
        remarks=tuple(dict.fromkeys(remarks)),  # a merged model has those of its parts already
        merged=merged,
        rules=results,
    )
    write_card(folder, complete_settings(experiment), result)
    folder.finish(result)
