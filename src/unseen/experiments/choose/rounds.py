"""Which runs are trained when. What a later round depends on is read from the records."""

from collections.abc import Iterator
from pathlib import Path

from unseen.experiments.choose.halving import compare_draws, kept, rungs
from unseen.experiments.choose.rules import Draw, choose_draw
from unseen.experiments.plan import Condition, Plan, PlannedRun


def rounds(plan: Plan, runs: Path) -> Iterator[list[PlannedRun]]:
    """Each round has to be trained before the next one is asked for."""
    if plan.sweep.halving is not None:
        yield from _halving(plan, runs)
    elif plan.sweep.pairs == "nested":
        yield list(plan.pairs)
        yield list(winners(plan, runs))
    else:
        yield [*plan.pairs, *plan.singles]


def expected_share(plan: Plan, run: PlannedRun) -> float:
    """Of a run's steps that are trained on average, where not all draws are trained to the end."""
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


def winners(plan: Plan, runs: Path) -> Iterator[PlannedRun]:
    """The draws that the finished pairs choose: those worth a run with one domain held out."""
    for condition, draws in plan.draws.items():
        candidates = paired_draws(plan, condition, runs)
        if candidates:
            yield draws[choose_draw("leave-one-domain-out", candidates).draw]


def paired_draws(plan: Plan, condition: Condition, runs: Path) -> list[Draw]:
    """Draws all of whose pairs are finished."""
    draws = []
    for run in plan.draws[condition]:
        partners = plan.partners.get((condition, run.draw), {})
        pairs = {other: pair.folder(runs) for other, pair in partners.items()}
        if pairs and all(folder.finished for folder in pairs.values()):
            draws.append(Draw(run.draw, run.folder(runs), pairs))
    return draws


def _halving(plan: Plan, runs: Path) -> Iterator[list[PlannedRun]]:
    halving = plan.sweep.halving
    assert halving is not None
    ladders = {
        (run.condition, run.draw): rungs(run.experiment, run.steps, halving) for run in plan.singles
    }
    alive = dict(plan.draws)
    for number in range(max(map(len, ladders.values()))):
        for condition, draws in alive.items():
            own = [ladders[condition, run.draw] for run in draws]
            steps = [ladder[min(number, len(ladder) - 1)] for ladder in own]
            alive[condition] = [
                run._replace(until=step) for run, step in zip(draws, steps, strict=True)
            ]
        yield [run for draws in alive.values() for run in draws]
        for condition, draws in alive.items():
            folders = {run.draw: (run.folder(runs), run.until or 0) for run in draws}
            keep = kept(len(plan.draws[condition]), halving, number + 1)
            best = compare_draws(folders, keep)
            alive[condition] = [run for run in draws if run.draw in best]
    yield [run._replace(until=None) for draws in alive.values() for run in draws]
