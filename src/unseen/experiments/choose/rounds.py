"""Which runs are carried out when; what a later round depends on is read from the records."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from unseen.experiments.choose.halving import kept, mark_stopped, rungs, survivors, unmark
from unseen.experiments.choose.rules import Draw, choose_draw
from unseen.experiments.plan import Place, Plan, Trial
from unseen.records.folder import RunFolder
from unseen.training.execute import length


class Errand(NamedTuple):
    """A run, and the step at which it pauses; none: it goes on to its end."""

    trial: Trial
    until: int | None = None


def rounds(plan: Plan, runs: Path) -> Iterator[list[Errand]]:
    """Each round has to be carried out before the next one is asked for."""
    if plan.sweep.halving is not None:
        yield from _halving(plan, runs)
    elif plan.sweep.pairs == "nested":
        yield [Errand(trial) for trial in plan.pairs]
        yield [Errand(trial) for trial in winners(plan, runs)]
    else:
        yield [Errand(trial) for trial in (*plan.pairs, *plan.singles)]


def winners(plan: Plan, runs: Path) -> Iterator[Trial]:
    """The draws that the finished pairs choose: those worth a run with one domain held out."""
    for place, trials in plan.groups.items():
        draws = paired_draws(plan, place, runs)
        if draws:
            yield trials[choose_draw("leave-one-domain-out", draws).draw]


def paired_draws(plan: Plan, place: Place, runs: Path) -> list[Draw]:
    """Draws all of whose pairs are finished."""
    draws = []
    for trial in plan.groups[place]:
        partners = plan.partners[place, trial.draw]
        pairs = {other: pair.folder(runs) for other, pair in partners.items()}
        if all(folder.finished for folder in pairs.values()):
            draws.append(Draw(trial.draw, trial.folder(runs), pairs))
    return draws


def _halving(plan: Plan, runs: Path) -> Iterator[list[Errand]]:
    halving = plan.sweep.halving
    assert halving is not None
    ladders = {
        (t.place, t.draw): rungs(t.experiment, length(t.experiment), halving) for t in plan.singles
    }
    alive = {place: list(trials) for place, trials in plan.groups.items()}
    for number in range(max(map(len, ladders.values()))):

        def rung(trial: Trial, number: int = number) -> int:
            ladder = ladders[trial.place, trial.draw]
            return ladder[min(number, len(ladder) - 1)]

        yield [Errand(trial, rung(trial)) for group in alive.values() for trial in group]
        for place, group in alive.items():
            keep = kept(len(plan.groups[place]), halving, number + 1)
            alive[place] = _decide(group, {t.draw: rung(t) for t in group}, keep, runs)
    yield [Errand(trial) for group in alive.values() for trial in group]


def _decide(group: list[Trial], rung: Mapping[int, int], keep: int, runs: Path) -> list[Trial]:
    """The draws that go on; the others are marked."""
    folders: dict[int, RunFolder] = {trial.draw: trial.folder(runs) for trial in group}
    best, scores = survivors(folders, rung, keep)
    for number, folder in folders.items():
        if number in best:
            unmark(folder)
        elif number in scores:
            mark_stopped(folder, rung[number], scores[number], list(scores.values()))
    return [trial for trial in group if trial.draw in best]
