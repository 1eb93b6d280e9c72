"""Measuring a run: source validation while it trains, all three views when it is done."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from unseen.atomic import link_file, write_json
from unseen.data.roles import Roles, warnings_about_images
from unseen.forecast.profile import Profile
from unseen.methods.base import DomainAware, Method
from unseen.reports.card import write_card
from unseen.results.files import write_arrays
from unseen.results.folder import RunFolder
from unseen.results.measure import Evaluator, Measurement, Predict, Scores, measure_checkpoint
from unseen.results.result import Merged, RuleResult, RunResult
from unseen.results.rules import WITHOUT_LABELS, Evaluation, SelectBy, choose
from unseen.settings.experiment import Experiment, Metric, complete_settings, identity
from unseen.training.average import Average, ValleyAverage
from unseen.training.build import Images
from unseen.training.checkpoints import load_weights, save_weights
from unseen.training.pictures import draw
from unseen.training.profile import Answerer, make_profile
from unseen.training.state import RunState
from unseen.training.without_labels import judge_without_labels


def validate(state: RunState) -> None:
    """Accuracy on the source validation images; weights that a rule now prefers are kept, unless
    the method is in a phase that only prepares."""
    candidate = not state.method.preparing
    own = _judge(state) if candidate else None
    with nullcontext() if state.average is None else state.average.in_place():
        same = own is not None and state.average is not None and not state.average.steps
        evaluation = own if own is not None and same else _evaluate(state)
        if candidate:
            if state.experiment.setting == "adaptation":
                evaluation = evaluation._replace(without_labels=judge_without_labels(state))
            state.evaluations.append(evaluation)
        if state.log is not None:
            _record(state, evaluation, candidate)


def _record(state: RunState, evaluation: Evaluation, candidate: bool) -> None:
    assert state.log is not None
    statistics, average = state.method.statistics(), state.average
    state.log.write(evaluation_record(evaluation, candidate, statistics, average))
    state.display.evaluation(evaluation.score, evaluation.metric)
    files = [
        state.folder.weights(rule)
        for rule in (_recorded_rules(state) if candidate else ())
        if choose(rule, state.evaluations) == state.step
    ]
    if files:
        save_weights(files[0], state.method)
    for file in files[1:]:
        link_file(files[0], file)


def _evaluate(state: RunState) -> Evaluation:
    with _predicting(state) as predict:
        roles, by = state.images.roles, select_by(state.experiment)
        [evaluation] = measure_step(state.evaluator, predict, roles, by, state.step)
    return evaluation


def _judge(state: RunState) -> Evaluation | None:
    """Under SWAD, the validation loss of the weights themselves decides which steps count."""
    average = state.average
    if not isinstance(average, ValleyAverage) or average.ended:
        return None
    evaluation = _evaluate(state)
    assert evaluation.validation_loss is not None
    average.judge(fmean(evaluation.validation_loss.values()))
    return evaluation


def measure_step(
    evaluator: Evaluator, predict: Predict, roles: Roles, by: SelectBy, step: int
) -> list[Evaluation]:
    """Accuracies at a step, of each model, and values of the metric. The unseen domain is looked at
    during training only under the selection rule that says so by its name, `oracle`."""
    found = []
    for scores in evaluator.score(predict, roles.validation):
        losses = {domain: score.loss for domain, score in scores.items()}
        measured = Evaluation(step, _accuracies(scores), validation_loss=losses, metric=by.metric)
        found.append(measured._replace(validation_metric=_values(scores, by.metric)))
    if by.rule != "oracle":
        return found
    unseen = evaluator.score(predict, roles.out_of_domain)
    return [
        evaluation._replace(unseen=_accuracies(scores), unseen_metric=_values(scores, by.metric))
        for evaluation, scores in zip(found, unseen, strict=True)
    ]


def measure_models(
    evaluator: Evaluator, predict: Predict, roles: Roles, method: Method
) -> list[Measurement]:
    """At the end of a run; `method` says whether the models can be told the domain."""
    return measure_checkpoint(evaluator, predict, roles, isinstance(method, DomainAware))


def evaluation_record(
    evaluation: Evaluation,
    candidate: bool,
    statistics: dict[str, Any],
    average: Average | None = None,
) -> dict[str, Any]:
    """A line of metrics.jsonl."""
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


def write_result(state: RunState) -> None:
    """The three views for every rule, then result.json: the mark of a finished run."""
    if state.average is not None:
        state.average.take_over()
    results: dict[str, RuleResult] = {}
    measured: dict[int, Measurement] = {}
    for rule in reversed(_recorded_rules(state)):  # the last step's weights are in memory
        step = choose(rule, state.evaluations)
        if step not in measured:
            if step != state.steps:
                load_weights(state.folder.weights(rule), state.method)
            with _predicting(state) as predict:
                roles, method = state.images.roles, state.method
                [measured[step]] = measure_models(state.evaluator, predict, roles, method)
        results[rule] = rule_result(step, measured[step])
    if state.log is None:
        return
    times = Times(state.seconds, state.processor_seconds)
    load_weights(state.folder.weights(state.experiment.selection), state.method)
    pictures = draw(state.method, state.feed, state.images, state.fabric.autocast)
    trained = Trained(state.experiment, state.folder, state.images, state.steps, times)
    answerer = Answerer(state.method, state.feed, state.fabric.autocast)
    profile = make_profile(answerer, state.images)
    write_files(trained, state.method, results, pictures, profile)


def rule_result(step: int, measured: Measurement) -> RuleResult:
    return RuleResult(step=step, views=measured.views, temperature=measured.temperature)


class Times(NamedTuple):
    """How long a run took, by the clock and of processors."""

    seconds: float
    processor_seconds: float | None = None


class Trained(NamedTuple):
    """A run whose training is done."""

    experiment: Experiment
    folder: RunFolder
    images: Images
    steps: int
    times: Times
    merged: Merged | None = None
    """Of a model that was averaged from others; the times are those of all of them."""


def write_files(
    run: Trained,
    method: Method,
    results: dict[str, RuleResult],
    pictures: Mapping[str, np.ndarray],
    profile: Profile,
) -> None:
    """All that is written at the end of a run; result.json last."""
    result = _result(run, method, results)
    steps = run.merged.steps if run.merged else run.steps
    known = {name: value for name, value in run.times._asdict().items() if value is not None}
    timing = known | {"seconds_per_step": run.times.seconds / steps}
    write_json(run.folder.timing, timing)
    write_arrays(run.folder.pictures, pictures)
    profile.write(run.folder.profile)
    if arrays := method.arrays():
        write_arrays(run.folder.arrays, arrays)
    write_card(run.folder, complete_settings(run.experiment), result)
    run.folder.write_result(result)


def _result(run: Trained, method: Method, results: dict[str, RuleResult]) -> RunResult:
    experiment, roles, merged = run.experiment, run.images.roles, run.merged
    return RunResult(
        run=merged.identity if merged else identity(experiment),
        dataset=experiment.data.name,
        method=experiment.method.name,
        recipe=experiment.recipe,
        backbone=experiment.network.name,
        setting=experiment.setting,
        seed=merged.seeds[0] if merged else experiment.seed,
        steps=run.steps,
        training_domains=tuple(roles.training_domains),
        unseen_domains=tuple(roles.unseen_domains),
        trained_on_unseen=experiment.data.train_on_unseen,
        classes=tuple(method.task.classes),
        data=run.images.prepared.content,
        selection=experiment.selection,
        metric=experiment.metric,
        remarks=_remarks(run, method, results[experiment.selection]),
        merged=merged,
        rules=results,
    )


def _remarks(run: Trained, method: Method, chosen: RuleResult) -> tuple[str, ...]:
    """Each once: a merged model has those of its parts already."""
    index, roles = run.images.prepared.index, run.images.roles
    on_images = warnings_about_images(index, roles, run.experiment)
    return tuple(dict.fromkeys((*method.remarks, *on_images, *_about_temperature(chosen))))


def _about_temperature(chosen: RuleResult) -> Iterator[str]:
    if chosen.temperature == 1:
        yield (
            "Its probabilities are not calibrated: no source validation image was answered "
            "wrongly, so a temperature could not be fitted."
        )


def select_by(experiment: Experiment) -> SelectBy:
    return SelectBy(experiment.selection, experiment.metric)


def rules_of(experiment: Experiment) -> tuple[str, ...]:
    """The selection rules whose weights a run keeps."""
    oracle = ("oracle",) if experiment.selection == "oracle" else ()
    without_labels = tuple(WITHOUT_LABELS) if experiment.setting == "adaptation" else ()
    return (*oracle, *without_labels, "source", "last")


def _recorded_rules(state: RunState) -> list[str]:
    """Without those that a run which an earlier version began knows nothing of at first."""
    blind = any(each.without_labels is None for each in state.evaluations)
    return [rule for rule in rules_of(state.experiment) if not (blind and rule in WITHOUT_LABELS)]


@contextmanager
def _predicting(state: RunState) -> Iterator[Predict]:
    """The method's prediction in evaluation mode and in the run's precision."""

    def predict(images: Tensor, domain: int | None) -> Tensor:
        with state.fabric.autocast():
            return state.method.predict(images, domain)

    state.module.eval()
    try:
        yield predict
    finally:
        state.module.train()


def _accuracies(scores: Scores) -> dict[str, float]:
    return {domain: score.accuracy for domain, score in scores.items()}


def _values(scores: Scores, metric: Metric) -> dict[str, float] | None:
    """Of another metric than accuracy."""
    if metric == "accuracy":
        return None
    return {domain: score.measure(metric) for domain, score in scores.items()}
