"""Which runs are trained when, and which draw a rule chooses. Both are read from the records."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import NamedTuple

from unseen.atomic import read_json, write_json
from unseen.errors import SettingsError
from unseen.results.folder import RunFolder
from unseen.results.result import RunResult
from unseen.results.rules import WITHOUT_LABELS, Evaluation, choose, rank, recorded_validation
from unseen.settings.experiment import Experiment
from unseen.sweeps.draws import PlannedRun
from unseen.sweeps.plan import Plan
from unseen.sweeps.sweep_file import Halving

_BY_PAIRS = "leave-one-domain-out"
_IN_EACH_RUN = "source"
"""The run's own rule that chooses the step under leave-one-domain-out."""
STOPPED = "stopped.json"


class Chosen(NamedTuple):
    """A draw, and all that a rule gets to see of it."""

    rule: str
    run: PlannedRun
    score: float
    recorded: str
    """The run's own rule under which its result is then read."""
    loss: float
    """Mean validation loss there, which decides between equal scores."""
    compared: tuple[int, ...] = ()
    """The draws that it was chosen from."""


def best_draws(
    rules: Sequence[str],
    draws: Iterable[PlannedRun],
    partners: Mapping[int, Mapping[str, PlannedRun]] | None = None,
) -> dict[str, Chosen]:
    """Return the draw that each rule chooses among those whose runs are finished: the one with the
    highest score; of equal ones that with the lowest validation loss, or else the first. `partners`
    are given by the number of the draw. The records of a run are read once, for all rules."""
    seen: dict[str, list[Chosen]] = {}
    for run in draws:
        for each in _candidates(rules, run, (partners or {}).get(run.draw, {})):
            seen.setdefault(each.rule, []).append(each)
    for found in seen.values():
        found.sort(key=lambda each: (*rank(each.score, each.loss), each.run.draw))
    return {
        rule: best._replace(compared=tuple({each.run.draw: None for each in (best, *others)}))
        for rule, (best, *others) in seen.items()
    }


def _candidates(
    rules: Sequence[str], run: PlannedRun, partners: Mapping[str, PlannedRun]
) -> Iterator[Chosen]:
    """Yield what rules see of a draw: only the oracle reads a result on the unseen domain."""
    if _BY_PAIRS in rules and partners and all(p.folder.finished for p in partners.values()):
        folders = {other: pair.folder for other, pair in partners.items()}
        seen = [
            _score(each.read_result(), source_evaluations(each), _IN_EACH_RUN, [other])
            for other, each in folders.items()
        ]
        scores, losses = zip(*seen, strict=True)
        yield Chosen(_BY_PAIRS, run, fmean(scores), _IN_EACH_RUN, fmean(losses))
    folder = run.folder
    if not folder.finished:
        return
    evaluations = source_evaluations(folder)
    for rule in (each for each in rules if each != _BY_PAIRS):
        if rule == "oracle":  # every checkpoint that was measured
            result = folder.read_result()
            for recorded in result.rules:
                score, loss = _score(result, evaluations, recorded, result.unseen_domains)
                yield Chosen(rule, run, score, recorded, loss)
        else:
            score, loss = validation_score(evaluations, rule)
            yield Chosen(rule, run, score, rule, loss)


def _score(
    result: RunResult, evaluations: Sequence[Evaluation], recorded: str, domains: Sequence[str]
) -> tuple[float, float]:
    """Return the mean over held-out domains under one of the run's rules, and the validation loss
    at its step; infinite where there are no validation images."""
    measured, step = result.view(recorded, "out_of_domain"), result.under(recorded).step
    score = fmean(measured[domain].measures[result.metric] for domain in domains)
    return score, next((each.loss for each in evaluations if each.step == step), math.inf)


def source_evaluations(folder: RunFolder) -> list[Evaluation]:
    """Return validation results that may be chosen on; of an unseen domain nothing is taken over
    but what rules found in unlabelled images."""
    return [
        Evaluation(
            record["step"],
            recorded_validation(record),
            validation_loss=record.get("validation_loss"),
            without_labels=record.get("without_labels"),
        )
        for record in folder.read_metrics("validation")
        if record.get("candidate", True)
    ]


def validation_score(
    evaluations: Sequence[Evaluation], rule: str = "source"
) -> tuple[float, float]:
    """Return the mean over the training domains at the step that the rule prefers, or what a rule
    without labels found there; and the validation loss of that step."""
    step = choose(rule, evaluations)
    chosen = next(each for each in evaluations if each.step == step)
    found = chosen.seen_by(rule) if rule in WITHOUT_LABELS else chosen.deciding
    return fmean(found.values()), chosen.loss


def rounds(plan: Plan) -> Iterator[list[PlannedRun]]:
    """Yield the runs of a plan, round after round: each has to be trained before the next is asked
    for. Under halving, the best draws on validation images continue."""
    halving = plan.sweep.halving
    if halving is None:
        yield list(plan.listed)
        return
    ladders = {run.path: rungs(run.experiment, run.steps, halving) for run in plan.singles}
    alive = dict(plan.draws)
    for number in range(max(map(len, ladders.values()))):
        for condition, draws in alive.items():
            alive[condition] = [
                replace(run, until=ladders[run.path][: number + 1][-1]) for run in draws
            ]
        yield [run for draws in alive.values() for run in draws]
        for condition, draws in alive.items():
            keep = math.ceil(len(plan.draws[condition]) / halving.keep_one_in ** (number + 1))
            best = survivors({run.draw: (run.folder, run.until or 0) for run in draws}, keep)
            alive[condition] = [run for run in draws if run.draw in best]
    yield [replace(run, until=None) for draws in alive.values() for run in draws]


def rungs(experiment: Experiment, steps: int, halving: Halving) -> list[int]:
    """Return the steps at which draws are compared: evaluations at or after the shares that were
    asked for."""
    found: list[int] = []
    share, every = halving.first, experiment.evaluate_every
    while share < 1:
        step = math.ceil(round(share * steps / every, 9)) * every
        if step < steps and step not in found:
            found.append(step)
        share *= halving.keep_one_in
    if not found:
        raise SettingsError(
            "halving compares draws at evaluations before the end, but there are none: "
            f"evaluate_every={every}, steps={steps}; lower evaluate_every or halving.first"
        )
    return found


def survivors(reached: Mapping[int, tuple[RunFolder, int]], keep: int) -> list[int]:
    """Return the draws that continue, by number; given are the folder of each and the step it
    reached. The others are marked as stopped, so that a reader of their folder sees why.

    Where a draw has only prepared until then (`candidate: false`), there is nothing to compare, and
    all continue.
    """
    arrived = {
        number: [each for each in source_evaluations(folder) if each.step <= step]
        for number, (folder, step) in reached.items()
        if any(record["step"] == step for record in folder.read_metrics("validation"))
    }
    scores = {number: validation_score(until) for number, until in arrived.items() if until}
    best = sorted(scores, key=lambda number: (*rank(*scores[number]), number))[:keep]
    if len(scores) < len(arrived):
        best = list(arrived)
    for number, (folder, step) in reached.items():
        mark = folder.path / STOPPED
        if number in best:  # perhaps after all: under a milder rule than before
            mark.unlink(missing_ok=True)
        elif number in scores:
            score, others = scores[number][0], [other for other, _ in scores.values()]
            better = sum(other > score for other in others)
            content = {"step": step, "validation": score, "better": better, "compared": len(others)}
            if not mark.is_file() or read_json(mark) != content:
                write_json(mark, content)
    return sorted(best)


def state_of(folder: RunFolder) -> str:
    """Return where a run stands, by its records alone."""
    if folder.finished:
        return "finished"
    if (folder.path / STOPPED).is_file():
        return "stopped"
    if folder.failure.is_file():
        return "failed"
    return "to resume" if folder.checkpoint.is_file() else "to train"
