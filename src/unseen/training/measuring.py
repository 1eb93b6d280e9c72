"""Measuring a run: source validation while it trains, all three views when it is done."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from unseen.atomic import write_json
from unseen.config import identity
from unseen.evaluation.protocol import Predict, three_views
from unseen.methods.base import Progress
from unseen.records import FORMAT, write_arrays
from unseen.selection import Evaluation, choose
from unseen.training.checkpoints import load_weights, save_weights
from unseen.training.pictures import write_pictures
from unseen.training.state import RunState


def evaluate(state: RunState) -> None:
    """Accuracy on the source validation images; weights that a rule now prefers are kept, unless
    the method is in a phase that only prepares.

    The unseen domain is looked at here only under the rule that says so by its name, `oracle`.
    """
    with _predicting(state) as predict:
        seen = state.evaluator.measure(predict, state.images.roles.validation)
        peeked = None
        if state.experiment.selection == "oracle":
            peeked = _accuracies(state.evaluator.measure(predict, state.images.roles.out_of_domain))
    evaluation = Evaluation(state.step, _accuracies(seen), peeked)
    progress = Progress(state.step, state.steps)
    candidate = state.step == state.steps or state.method.may_be_chosen(progress)
    if candidate:
        state.evaluations.append(evaluation)
    if state.log is None:
        return
    mean = sum(evaluation.validation.values()) / len(evaluation.validation)
    record: dict[str, Any] = {"step": state.step, "validation": evaluation.validation}
    if peeked:
        record["unseen"] = peeked
    if not candidate:
        record["candidate"] = False
    state.log.write(record | {"statistics": state.method.statistics()})
    state.display.evaluation(mean)
    for rule in _rules(state) if candidate else ():
        if choose(rule, state.evaluations) == state.step:
            save_weights(state.folder.weights(rule), state.method)


def write_result(state: RunState) -> None:
    """The three views for every rule, then result.json: the mark of a finished run."""
    results: dict[str, Any] = {}
    measured: dict[int, Any] = {}
    for rule in reversed(_rules(state)):  # the last step first: its weights are in memory
        step = choose(rule, state.evaluations)
        if step not in measured:
            if step != state.steps:
                load_weights(state.folder.weights(rule), state.method)
            measured[step] = _views(state)
        results[rule] = {"step": step, "views": measured[step]}
    if state.log is None:
        return
    experiment = state.experiment
    timing = {"seconds": state.seconds, "seconds_per_step": state.seconds / state.steps}
    write_json(state.folder.timing, timing)
    write_pictures(state)
    if arrays := state.method.arrays():
        write_arrays(state.folder.arrays, arrays)
    write_json(
        state.folder.result,
        {
            "format": FORMAT,
            "run": identity(experiment),
            "dataset": experiment.data.name,
            "method": experiment.method.name,
            "backbone": experiment.network.name,
            "setting": experiment.setting,
            "seed": experiment.seed,
            "steps": state.steps,
            "training_domains": list(state.images.roles.training_domains),
            "unseen_domains": list(state.images.roles.unseen_domains),
            "classes": list(state.method.task.classes),
            "data": state.images.prepared.content,
            "selection": experiment.selection,
            "remarks": list(state.method.remarks()),
            "results": results,
        },
    )


def _rules(state: RunState) -> tuple[str, ...]:
    return (
        ("oracle", "source", "last")
        if state.experiment.selection == "oracle"
        else ("source", "last")
    )


def _views(state: RunState) -> dict[str, Any]:
    roles = state.images.roles
    with _predicting(state) as predict:
        return three_views(
            state.evaluator,
            predict,
            state.method.uses_domain,
            roles.out_of_domain,
            roles.in_domain,
        )


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


def _accuracies(measured: dict[str, dict[str, Any]]) -> dict[str, float]:
    return {domain: summary["accuracy"] for domain, summary in measured.items()}
