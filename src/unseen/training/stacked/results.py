"""Measuring many runs as one, and writing for each of them what a run by itself writes."""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unseen.atomic import link_file
from unseen.data.roles import Roles
from unseen.evaluation.protocol import Evaluator, Predict, three_views
from unseen.methods.base import Method
from unseen.methods.kinds import DomainAware
from unseen.records.log import MetricsLog
from unseen.records.result import RuleResult, Views
from unseen.selection import Evaluation, choose
from unseen.training.measuring import Trained, accuracies, evaluation_record, rules_of, write_files
from unseen.training.pictures import draw
from unseen.training.stacked.methods import Tensors
from unseen.training.stacked.runs import Stack, StackedRun
from unseen.training.stacked.weights import WeightsMould


class _Judged(NamedTuple):
    """Runs with the same training and unseen domains, which are measured on the same images."""

    numbers: list[int]
    roles: Roles
    evaluator: Evaluator
    predict: Predict


def _judged(stack: Stack, tensors: Tensors) -> Iterator[_Judged]:
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
            stack.feed.evaluation, len(classes), process.device, lambda counts: counts, len(numbers)
        )
        yield _Judged(numbers, stack.runs[numbers[0]].images.roles, evaluator, predict)


def evaluate(stack: Stack, step: int) -> None:
    """As `measuring.evaluate`, of every run that goes on; preferred weights are kept in memory."""
    learning = _detached(stack.method.learning)
    rules = rules_of(stack.shared)
    preferred: dict[str, list[int]] = {rule: [] for rule in rules}
    stack.method.template.eval()
    for judged in _judged(stack, learning):
        seen = judged.evaluator.measure(judged.predict, judged.roles.validation)
        peeked = None
        if stack.shared.selection == "oracle":
            peeked = judged.evaluator.measure(judged.predict, judged.roles.out_of_domain)
        for place, number in enumerate(judged.numbers):
            run = stack.runs[number]
            if run.error is not None:
                continue
            unseen = accuracies(peeked[place]) if peeked else None
            evaluation = Evaluation(step, accuracies(seen[place]), unseen)
            run.evaluations.append(evaluation)
            statistics = _statistics(stack, number, learning)
            run.records.append(evaluation_record(evaluation, True, statistics))
            for rule in rules:
                if choose(rule, run.evaluations) == step:
                    preferred[rule].append(number)
    stack.method.template.train()
    _keep(stack, learning, preferred)
    means = [_mean(run.evaluations[-1].validation) for _, run in stack.going_on]
    if means:
        stack.display.evaluation(sum(means) / len(means))


def _keep(stack: Stack, learning: Tensors, preferred: dict[str, list[int]]) -> None:
    for rule, numbers in preferred.items():
        kept = stack.kept.setdefault(rule, {name: t.clone() for name, t in learning.items()})
        for name, tensor in learning.items():
            kept[name][numbers] = tensor[numbers]


def write_results(stack: Stack) -> None:
    """The three views for every rule, then the files of every run; result.json last."""
    results: list[dict[str, Views]] = [{} for _ in stack.runs]
    stack.method.template.eval()
    for rule in reversed(rules_of(stack.shared)) if stack.going_on else ():
        for judged in _judged(stack, stack.kept[rule]):
            views = three_views(
                judged.evaluator,
                judged.predict,
                isinstance(stack.method.template, DomainAware),
                judged.roles.out_of_domain,
                judged.roles.in_domain,
            )
            for place, number in enumerate(judged.numbers):
                results[number][rule] = views[place]
    share = (time.monotonic() - stack.started) / len(stack.runs)
    for run in stack.runs:
        _write_records(run)
    mould = WeightsMould(stack.method.template)
    for number, run in stack.going_on:
        chosen = {rule: choose(rule, run.evaluations) for rule in results[number]}
        _write_weights(stack, number, chosen, mould)
        method = _stand_for(stack, number, stack.kept[run.experiment.selection])
        trained = Trained(run.experiment, run.folder, run.images, stack.steps, share)
        found = {
            rule: RuleResult(step=chosen[rule], views=views)
            for rule, views in results[number].items()
        }
        write_files(trained, method, found, draw(method, stack.feed, run.images))


def _write_records(run: StackedRun) -> None:
    log = MetricsLog(run.folder.metrics, 0)
    for record in run.records:
        log.write(record)
    log.sync()
    log.close()


def _write_weights(stack: Stack, number: int, chosen: dict[str, int], mould: WeightsMould) -> None:
    """Rules that chose the same step share a file."""
    folder = stack.runs[number].folder
    written: dict[int, str] = {}
    for rule, step in chosen.items():
        if step in written:
            link_file(folder.weights(written[step]), folder.weights(rule))
        else:
            mould.cast(folder.weights(rule), stack.method.of_run(number, stack.kept[rule]))
            written[step] = rule


def _stand_for(stack: Stack, number: int, tensors: Tensors) -> Method:
    run = stack.runs[number]
    return stack.method.stand_for(number, tensors, run.experiment.method, run.task)


def _statistics(stack: Stack, number: int, learning: Tensors) -> dict[str, Any]:
    if type(stack.method.template).statistics is Method.statistics:
        return {}
    return _stand_for(stack, number, learning).statistics()


def _detached(tensors: Tensors) -> Tensors:
    return {name: tensor.detach() for name, tensor in tensors.items()}


def _mean(values: Any) -> float:
    return sum(values.values()) / len(values)
