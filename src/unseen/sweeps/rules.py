"""Which runs are trained when, and which draw a rule chooses. Both are read from the records."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import NamedTuple

from unseen.atomic import read_json, write_json
from unseen.errors import SettingsError, UnseenError, unknown_name
from unseen.results.folder import RunFolder
from unseen.results.result import RunResult
from unseen.results.rules import (
    DRAW_RULES,
    WITHOUT_LABELS,
    Evaluation,
    choose,
    rank,
    recorded_validation,
)
from unseen.settings.experiment import Experiment
from unseen.sweeps.plan import Condition, Plan, PlannedRun
from unseen.sweeps.sweep_file import Halving

_IN_EACH_RUN = "source"
"""The run's own rule that chooses the step under leave-one-domain-out."""
STOPPED = "stopped.json"


class Draw(NamedTuple):
    """The finished runs of one draw: one domain held out, and that one with each other one."""

    number: int
    run: RunFolder
    pairs: Mapping[str, RunFolder] = {}
    """By the name of the other domain."""


class Candidate(NamedTuple):
    """All that a rule gets to see of a draw."""

    draw: int
    score: float
    recorded: str
    """The run's own rule under which its result is then read."""
    loss: float
    """Mean validation loss there, which decides between equal scores."""


def choose_draw(rule: str, draws: Sequence[Draw]) -> Candidate:
    """The highest score; of equal ones the lowest validation loss, or else the first draw."""
    if rule not in DRAW_RULES:
        raise SettingsError(unknown_name("selection rule", rule, DRAW_RULES))
    candidates = [each for draw in draws for each in _CANDIDATES[rule](draw)]
    if not candidates:
        raise UnseenError("there is no finished draw to choose from")
    return min(candidates, key=lambda each: (*rank(each.score, each.loss), each.draw))


def source_evaluations(folder: RunFolder) -> list[Evaluation]:
    """Validation results that may be chosen on; of an unseen domain nothing is taken over but what
    rules found in unlabelled images."""
    return [
        Evaluation(
            record["step"],
            recorded_validation(record),
            validation_loss=record.get("validation_loss"),
            without_labels=record.get("without_labels"),
        )
        for record in folder.read_metrics()
        if "validation" in record and record.get("candidate", True)
    ]


def validation_score(
    evaluations: Sequence[Evaluation], rule: str = "source"
) -> tuple[float, float]:
    """Mean over the training domains at the step that the rule prefers, or what a rule without
    labels found there; and the validation loss of that step."""
    step = choose(rule, evaluations)
    chosen = next(each for each in evaluations if each.step == step)
    found = chosen.seen_by(rule) if rule in WITHOUT_LABELS else chosen.deciding
    return fmean(found.values()), chosen.loss


def _by_validation(rule: str) -> Callable[[Draw], Iterator[Candidate]]:
    def candidates(draw: Draw) -> Iterator[Candidate]:
        score, loss = validation_score(source_evaluations(draw.run), rule)
        yield Candidate(draw.number, score, rule, loss)

    return candidates


def _by_other_domains(draw: Draw) -> Iterator[Candidate]:
    """Of a run with two domains held out, only the result on the other one is read."""
    if not draw.pairs:
        raise UnseenError(
            "leave-one-domain-out needs runs with two domains held out; set pairs=all"
        )
    scores, losses = [], []
    for other, run in draw.pairs.items():
        result = run.read_result()
        scores.append(_mean(result, _IN_EACH_RUN, [other]))
        losses.append(_validation_loss(run, result, _IN_EACH_RUN))
    yield Candidate(draw.number, fmean(scores), _IN_EACH_RUN, fmean(losses))


def _by_unseen_labels(draw: Draw) -> Iterator[Candidate]:
    """Every checkpoint that was measured."""
    result = draw.run.read_result()
    for recorded in result.rules:
        score = _mean(result, recorded, result.unseen_domains)
        yield Candidate(draw.number, score, recorded, _validation_loss(draw.run, result, recorded))


def _validation_loss(run: RunFolder, result: RunResult, recorded: str) -> float:
    """At the step that the run's own rule chose; infinite where it has no validation images."""
    step = result.under(recorded).step
    found = (each.loss for each in source_evaluations(run) if each.step == step)
    return next(found, math.inf)


def _mean(result: RunResult, recorded: str, domains: Sequence[str]) -> float:
    """The mean over domains, by the run's metric."""
    measured = result.view(recorded, "out_of_domain")
    return fmean(measured[domain].measures[result.metric] for domain in domains)


_CANDIDATES: dict[str, Callable[[Draw], Iterator[Candidate]]] = {
    "source": _by_validation("source"),
    "last": _by_validation("last"),
    "leave-one-domain-out": _by_other_domains,
    **{rule: _by_validation(rule) for rule in WITHOUT_LABELS},
    "oracle": _by_unseen_labels,
}


def rounds(plan: Plan) -> Iterator[list[PlannedRun]]:
    """The runs of a plan, round after round: each has to be trained before the next is asked
    for."""
    if plan.sweep.halving is not None:
        yield from _halving(plan, plan.sweep.halving)
    elif plan.sweep.pairs == "nested":
        yield list(plan.pairs)
        yield list(winners(plan))
    else:
        yield [*plan.pairs, *plan.singles]


def winners(plan: Plan) -> Iterator[PlannedRun]:
    """The draws that the finished pairs choose: those worth a run with one domain held out."""
    for condition, draws in plan.draws.items():
        candidates = paired_draws(plan, condition)
        if candidates:
            yield draws[choose_draw("leave-one-domain-out", candidates).draw]


def paired_draws(plan: Plan, condition: Condition) -> list[Draw]:
    """Draws all of whose pairs are finished."""
    draws = []
    for run in plan.draws[condition]:
        partners = plan.partners.get((condition, run.draw), {})
        pairs = {other: pair.folder for other, pair in partners.items()}
        if pairs and all(folder.finished for folder in pairs.values()):
            draws.append(Draw(run.draw, run.folder, pairs))
    return draws


def rungs(experiment: Experiment, steps: int, halving: Halving) -> list[int]:
    """Steps at which draws are compared: evaluations at or after the shares that were asked for."""
    found: list[int] = []
    share = halving.first
    while share < 1:
        every = experiment.evaluate_every
        step = math.ceil(round(share * steps / every, 9)) * every
        if step < steps and step not in found:
            found.append(step)
        share *= halving.keep_one_in
    if not found:
        raise SettingsError(
            "halving compares draws at evaluations before the end, but there are none: "
            f"evaluate_every={experiment.evaluate_every}, steps={steps}; lower evaluate_every "
            "or halving.first"
        )
    return found


def kept(draws: int, halving: Halving, round_number: int) -> int:
    """How many of all draws continue after a round; the first is 1."""
    return max(1, math.ceil(draws / halving.keep_one_in**round_number))


def _halving(plan: Plan, halving: Halving) -> Iterator[list[PlannedRun]]:
    ladders = {run.path: rungs(run.experiment, run.steps, halving) for run in plan.singles}
    alive = dict(plan.draws)
    for number in range(max(map(len, ladders.values()))):
        for condition, draws in alive.items():
            ends = [ladders[run.path][: number + 1][-1] for run in draws]
            alive[condition] = [
                replace(run, until=step) for run, step in zip(draws, ends, strict=True)
            ]
        yield [run for draws in alive.values() for run in draws]
        for condition, draws in alive.items():
            reached = {run.draw: (run.folder, run.until or 0) for run in draws}
            keep = kept(len(plan.draws[condition]), halving, number + 1)
            best = _compare_draws(reached, keep)
            alive[condition] = [run for run in draws if run.draw in best]
    yield [replace(run, until=None) for draws in alive.values() for run in draws]


def _compare_draws(reached: Mapping[int, tuple[RunFolder, int]], keep: int) -> list[int]:
    """The draws that continue, by number; given are the folder of each and the step it reached.
    The others are marked as stopped."""
    best, scores = survivors(reached, keep)
    for number, (folder, step) in reached.items():
        mark = folder.path / STOPPED
        if number in best:  # perhaps after all: under a milder rule than before
            mark.unlink(missing_ok=True)
        elif number in scores:  # so that a reader of the folder sees why it ends there
            better = sum(other > scores[number] for other in scores.values())
            content = {"step": step, "validation": scores[number]}
            content |= {"better": better, "compared": len(scores)}
            if not mark.is_file() or read_json(mark) != content:
                write_json(mark, content)
    return best


def survivors(
    reached: Mapping[int, tuple[RunFolder, int]], keep: int
) -> tuple[list[int], dict[int, float]]:
    """The draws that continue, and the scores of all that reached their step.

    Where a draw has only prepared until then (`candidate: false`), there is nothing to compare, and
    all continue.
    """
    scores: dict[int, tuple[float, float]] = {}
    arrived: list[int] = []
    for number, (folder, step) in reached.items():
        if any(r["step"] == step and "validation" in r for r in folder.read_metrics()):
            arrived.append(number)
            until = [each for each in source_evaluations(folder) if each.step <= step]
            if until:
                scores[number] = validation_score(until)
    best = sorted(scores, key=lambda number: (*rank(*scores[number]), number))
    everyone = len(scores) < len(arrived)
    return arrived if everyone else sorted(best[:keep]), {n: s for n, (s, _) in scores.items()}


def state_of(folder: RunFolder) -> str:
    """Where a run stands, by its records alone."""
    if folder.finished:
        return "finished"
    if (folder.path / STOPPED).is_file():
        return "stopped"
    if folder.failure.is_file():
        return "failed"
    return "to resume" if folder.checkpoint.is_file() else "to train"


def expected_share(plan: Plan, run: PlannedRun) -> float:
    """The share of a run's steps that is trained on average, where not all draws are trained to the
    end."""
    halving, draws = plan.sweep.halving, len(plan.draws.get(run.condition, ()))
    if plan.sweep.pairs == "nested" and len(run.condition.unseen) == 1:
        return 1 / draws
    if halving is None:
        return 1.0
    share, before, alive = 0.0, 0, draws
    for number, step in enumerate((*rungs(run.experiment, run.steps, halving), run.steps), 1):
        share += (step - before) / run.steps * alive / draws
        before, alive = step, kept(draws, halving, number)
    return share
