"""Measuring many runs at once, and writing the files that each run would write by itself."""

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
from safetensors.torch import save
from torch import Tensor

from unseen.atomic import atomic_file, link_file
from unseen.data.roles import Roles
from unseen.methods.base import Method
from unseen.results.folder import MetricsLog
from unseen.results.measure import Evaluator, Measurement, Predict
from unseen.results.rules import choose
from unseen.training.checkpoints import for_prediction
from unseen.training.measuring import (
    Times,
    Trained,
    evaluation_record,
    measure_models,
    measure_step,
    rule_result,
    rules_of,
    select_by,
    write_files,
)
from unseen.training.pictures import draw
from unseen.training.profile import Answerer, make_profile
from unseen.training.stacked.method import Tensors
from unseen.training.stacked.stack import Stack, StackedRun

_LENGTH = 8  # bytes of a safetensors file that give the length of its header


class WeightsWriter:
    """Weight files of runs that share most of their tensors, the same bytes as `save_weights`.

    The file is built in memory once; each run puts its own tensors in their places.
    """

    def __init__(self, method: Method) -> None:
        tensors = {name: tensor.contiguous() for name, tensor in for_prediction(method).items()}
        self._content = bytearray(save(tensors, metadata={}))
        start = _LENGTH + int.from_bytes(self._content[:_LENGTH], "little")
        header = json.loads(self._content[_LENGTH:start])
        self._places = {
            name: slice(*(start + offset for offset in header[name]["data_offsets"]))
            for name in tensors
        }

    def write(self, path: Path, own: Mapping[str, Tensor]) -> None:
        """Write the file of one run; tensors that prediction does not need are left out."""
        for name in own.keys() & self._places.keys():
            data = own[name].cpu().contiguous().numpy().tobytes()
            self._content[self._places[name]] = data
        with atomic_file(path) as temporary:
            temporary.write_bytes(self._content)


class _Cohort(NamedTuple):
    """Runs with the same training and unseen domains, which are measured on the same images."""

    numbers: list[int]
    roles: Roles
    evaluator: Evaluator
    predict: Predict


def _cohorts(stack: Stack, tensors: Tensors) -> Iterator[_Cohort]:
    members: dict[tuple[Any, ...], list[int]] = {}
    for number, run in enumerate(stack.runs):
        roles = run.images.roles
        members.setdefault((roles.training_domains, roles.unseen_domains), []).append(number)
    process, classes = stack.feed.process, stack.runs[0].task.classes
    for numbers in members.values():
        runs = torch.tensor(numbers, device=process.device)

        def predict(images: Tensor, domain: int | None, runs: Tensor = runs) -> Tensor:
            return stack.method.predict(tensors, runs, images, domain)

        evaluator = Evaluator(
            stack.feed.evaluation, len(classes), process, lambda counts: counts, len(numbers)
        )
        yield _Cohort(numbers, stack.runs[numbers[0]].images.roles, evaluator, predict)


def validate(stack: Stack, step: int) -> None:
    """As `measuring.validate`, for every active run; the best weights are kept in memory."""
    model = stack.average.model if stack.average is not None else None
    tensors = model.values if model is not None else stack.method.learning
    learning = {name: tensor.detach() for name, tensor in tensors.items()}
    rules = rules_of(stack.shared)
    preferred: dict[str, list[int]] = {rule: [] for rule in rules}
    stack.method.template.eval()
    for cohort in _cohorts(stack, learning):
        measured = (cohort.evaluator, cohort.predict, cohort.roles)
        evaluations = measure_step(*measured, select_by(stack.shared), step)
        for number, evaluation in zip(cohort.numbers, evaluations, strict=True):
            run = stack.runs[number]
            if run.error is not None:
                continue
            run.evaluations.append(evaluation)
            statistics = _statistics(stack, number, learning)
            record = evaluation_record(evaluation, True, statistics, stack.average)
            run.records.append(record)
            for rule in rules:
                if choose(rule, run.evaluations) == step:
                    preferred[rule].append(number)
    stack.method.template.train()
    _remember_best(stack, learning, preferred)
    scores = [run.evaluations[-1].score for _, run in stack.active]
    if scores:
        stack.display.evaluation(fmean(scores), stack.shared.metric)


def _remember_best(stack: Stack, learning: Tensors, preferred: dict[str, list[int]]) -> None:
    for rule, numbers in preferred.items():
        best = stack.best.setdefault(rule, {name: t.clone() for name, t in learning.items()})
        for name, tensor in learning.items():
            best[name][numbers] = tensor[numbers]


def write_results(stack: Stack) -> None:
    """The three views for every rule, then the files of every run; result.json last."""
    results: list[dict[str, Measurement]] = [{} for _ in stack.runs]
    stack.method.template.eval()
    for rule in reversed(rules_of(stack.shared)) if stack.active else ():
        for cohort in _cohorts(stack, stack.best[rule]):
            measured = (cohort.evaluator, cohort.predict, cohort.roles)
            each = measure_models(*measured, stack.method.template)
            for number, measurement in zip(cohort.numbers, each, strict=True):
                results[number][rule] = measurement
    share = Times(
        (time.monotonic() - stack.started) / len(stack.runs),
        (time.process_time() - stack.processor_started) / len(stack.runs),
    )
    for run in stack.runs:
        _write_records(run)
    writer = WeightsWriter(stack.method.template)
    for number, run in stack.active:
        chosen = {rule: choose(rule, run.evaluations) for rule in results[number]}
        _write_weights(stack, number, chosen, writer)
        method = _as_run(stack, number, stack.best[run.experiment.selection])
        trained = Trained(run.experiment, run.folder, run.images, stack.steps, share)
        found = {
            rule: rule_result(chosen[rule], measurement)
            for rule, measurement in results[number].items()
        }
        profile = make_profile(Answerer(method, stack.feed), run.images)
        write_files(trained, method, found, draw(method, stack.feed, run.images), profile)


def _write_records(run: StackedRun) -> None:
    log = MetricsLog(run.folder.metrics, 0)
    for record in run.records:
        log.write(record)
    log.sync()
    log.close()


def _write_weights(
    stack: Stack, number: int, chosen: dict[str, int], writer: WeightsWriter
) -> None:
    """Rules that chose the same step share a file."""
    folder = stack.runs[number].folder
    written: dict[int, str] = {}
    for rule, step in chosen.items():
        if step in written:
            link_file(folder.weights(written[step]), folder.weights(rule))
        else:
            writer.write(folder.weights(rule), stack.method.of_run(number, stack.best[rule]))
            written[step] = rule


def _as_run(stack: Stack, number: int, tensors: Tensors) -> Method:
    run = stack.runs[number]
    return stack.method.as_run(number, tensors, run.experiment.method, run.task)


def _statistics(stack: Stack, number: int, learning: Tensors) -> dict[str, Any]:
    if type(stack.method.template).statistics is Method.statistics:
        return {}
    return _as_run(stack, number, learning).statistics()
