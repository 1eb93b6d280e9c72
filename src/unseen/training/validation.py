"""Validation while runs train: every candidate is measured on source validation images, and the
weights that a selection rule prefers are kept."""

from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unseen import across_devices
from unseen.data.feed import Process
from unseen.forecast.profile import project
from unseen.methods.base import Method
from unseen.networks.stages import Change
from unseen.results.measure import Scores
from unseen.results.rules import Evaluation, choose
from unseen.results.statistics import Observed, evenly, judge
from unseen.settings.experiment import Metric
from unseen.training.average import Average, ValleyAverage
from unseen.training.build import rules_of
from unseen.training.devices import over_devices
from unseen.training.outputs import penultimate, pooled
from unseen.training.session import Cohort, Session

MOST_IMAGES = 1_000
"""Of the target domains, and of source validation: what rules without labels look at."""


def validate(session: Session) -> None:
    """Measures every run on its source validation images; weights that a rule now prefers are kept,
    unless the method is in a phase that only prepares."""
    learner = session.learner
    candidate = not learner.method.preparing
    if candidate:
        _look_for_the_valley(session)
    with learner.averaged():
        evaluations = evaluate(session)
        for number, run in session.active:
            evaluation = evaluations[number]
            if candidate:
                if run.experiment.setting == "adaptation":
                    evaluation = evaluation._replace(without_labels=judge_without_labels(session))
                run.evaluations.append(evaluation)
            if session.writes:
                statistics = learner.statistics(number)
                run.record(evaluation_record(evaluation, candidate, statistics, learner.average))
        if not session.writes or not evaluations:
            return
        metric = session.shared.metric
        session.display.evaluation(fmean(each.score for each in evaluations.values()), metric)
        if candidate:
            learner.keep({rule: _prefers(session, rule) for rule in rules_of(session.shared)})


def _prefers(session: Session, rule: str) -> list[int]:
    """Returns the runs of which a rule now chooses this step."""
    active = session.active
    return [number for number, run in active if choose(rule, run.evaluations) == session.step]


def _look_for_the_valley(session: Session) -> None:
    """Lets the validation loss of the weights themselves decide which steps count, under SWAD."""
    average = session.learner.average
    if isinstance(average, ValleyAverage) and not average.ended:
        [evaluation] = evaluate(session).values()
        average.judge(evaluation.loss)


def evaluate(session: Session) -> dict[int, Evaluation]:
    """Evaluates every active run at this step, on its source validation images."""
    found: dict[int, Evaluation] = {}
    with session.answering():
        for cohort in session.cohorts():
            found |= zip(cohort.numbers, _evaluate(session, cohort), strict=True)
    return found


def _evaluate(session: Session, cohort: Cohort) -> list[Evaluation]:
    """Evaluates a cohort. The unseen domain is looked at during training only under the selection
    rule that says so by its name, `oracle`."""
    metric, roles = session.shared.metric, cohort.roles
    found = []
    for scores in cohort.evaluator.score(cohort.predict, roles.validation):
        losses = {domain: score.loss for domain, score in scores.items()}
        measured = Evaluation(
            session.step, _accuracies(scores), validation_loss=losses, metric=metric
        )
        found.append(measured._replace(validation_metric=_values(scores, metric)))
    if session.shared.selection != "oracle":
        return found
    unseen = cohort.evaluator.score(cohort.predict, roles.out_of_domain)
    return [
        evaluation._replace(unseen=_accuracies(scores), unseen_metric=_values(scores, metric))
        for evaluation, scores in zip(found, unseen, strict=True)
    ]


def _accuracies(scores: Scores) -> dict[str, float]:
    return {domain: score.accuracy for domain, score in scores.items()}


def _values(scores: Scores, metric: Metric) -> dict[str, float] | None:
    """Returns the values of another metric than accuracy."""
    if metric == "accuracy":
        return None
    return {domain: score.measure(metric) for domain, score in scores.items()}


def evaluation_record(
    evaluation: Evaluation,
    candidate: bool,
    statistics: dict[str, Any],
    average: Average | None = None,
) -> dict[str, Any]:
    """Returns a line of metrics.jsonl."""
    record: dict[str, Any] = {
        "step": evaluation.step,
        "validation": evaluation.validation,
        "validation_loss": evaluation.validation_loss,
    }
    if evaluation.validation_metric is not None:
        record[f"validation_{evaluation.metric}"] = evaluation.validation_metric
    if evaluation.unseen:
        record["unseen"] = evaluation.unseen
    if evaluation.unseen_metric:
        record[f"unseen_{evaluation.metric}"] = evaluation.unseen_metric
    if evaluation.without_labels:
        record["without_labels"] = evaluation.without_labels
    if average is not None:
        record["averaged_steps"] = average.steps
    if not candidate:
        record["candidate"] = False
    return record | {"statistics": statistics}


@torch.no_grad()
def judge_without_labels(session: Session) -> dict[str, float]:
    """Returns what the rules for adaptation find in unlabelled target images: those that training
    looks at, never the ones that are measured. By rule, the same on every device; one pass over
    images serves all rules."""
    images = session.runs[0].images
    roles = images.roles
    target = evenly(roles.target_rows, MOST_IMAGES)
    each = max(2, MOST_IMAGES // len(roles.validation))
    source = np.concatenate([evenly(rows, each) for rows in roles.validation.values()])
    with session.answering():
        seen, known = _observe(session, target), _observe(session, source)
    found = judge(seen, known, images.prepared.index.labels[source])
    values = torch.tensor(list(found.values()), dtype=torch.float64, device=session.fabric.device)
    across_devices.as_first(values)
    return dict(zip(found, values.tolist(), strict=True))


def _observe(session: Session, rows: np.ndarray) -> Observed:
    """Answers images; each device its share of them, unless there are too few to share."""
    share = _share(session.feed.process, len(rows))
    parts: list[tuple[Tensor, Tensor]] = []
    for images in session.feed.images(rows[share]):
        with session.fabric.autocast():
            parts.append(scores_and_features(session.learner.method, images))
    found = (torch.cat(each).float() for each in zip(*parts, strict=True))
    scores, features = (_together(session, own, share, len(rows)) for own in found)
    return scores, project(features)


def _share(process: Process, number: int) -> slice:
    shared = number >= process.world_size
    return slice(process.rank, None, process.world_size) if shared else slice(None)


def _together(session: Session, own: Tensor, share: slice, number: int) -> np.ndarray:
    """Returns the rows of all devices, in order."""
    if share == slice(None):
        return own.cpu().numpy()
    whole = own.new_zeros(number, *own.shape[1:])
    whole[share] = own
    return over_devices(session.fabric, whole, "sum").cpu().numpy()


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
    features = pooled(seen[0]) if once else penultimate(method.network, images)
    return scores, features
