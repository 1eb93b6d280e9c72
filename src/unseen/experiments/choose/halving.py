"""Successive halving: all draws start, the best on source validation continue. No torch.

It is decided from the records alone, up to the step of the decision: a sweep that was killed
decides the same again, and a run that continues equals one that was never paused.
"""

import math
from collections.abc import Mapping, Sequence

from unseen.atomic import read_json, write_json
from unseen.config import Experiment
from unseen.errors import SettingsError
from unseen.experiments.choose.rules import source_evaluations, validation_score
from unseen.experiments.sweep_file import Halving
from unseen.records.folder import RunFolder

STOPPED = "stopped.json"


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


def compare_draws(folders: Mapping[int, tuple[RunFolder, int]], keep: int) -> list[int]:
    """The draws that continue, by number; given are the folder of each and the step it reached.
    The others are marked as stopped."""
    best, scores = survivors(folders, keep)
    for number, (folder, step) in folders.items():
        if number in best:  # perhaps after all: under a milder rule than before
            (folder.path / STOPPED).unlink(missing_ok=True)
        elif number in scores:
            _mark_stopped(folder, step, scores[number], list(scores.values()))
    return best


def survivors(
    folders: Mapping[int, tuple[RunFolder, int]], keep: int
) -> tuple[list[int], dict[int, float]]:
    """The draws that continue, and the scores of all that reached their step.

    Where a draw has only prepared until then (`candidate: false`), there is nothing to compare, and
    all continue.
    """
    scores: dict[int, float] = {}
    reached: list[int] = []
    for number, (folder, step) in folders.items():
        if any(r["step"] == step and "validation" in r for r in folder.read_metrics()):
            reached.append(number)
            until = [each for each in source_evaluations(folder) if each.step <= step]
            if until:
                scores[number] = validation_score(until)
    if len(scores) < len(reached):
        return reached, scores
    best = sorted(scores, key=lambda number: (-scores[number], number))
    return sorted(best[:keep]), scores


def kept(draws: int, halving: Halving, round_number: int) -> int:
    """How many of all draws continue after a round; the first is 1."""
    return max(1, math.ceil(draws / halving.keep_one_in**round_number))


def state_of(folder: RunFolder) -> str:
    """Where a run stands, by its records alone."""
    if folder.finished:
        return "finished"
    if (folder.path / STOPPED).is_file():
        return "stopped"
    if folder.failure.is_file():
        return "failed"
    return "to resume" if folder.checkpoint.is_file() else "to train"


def _mark_stopped(folder: RunFolder, step: int, score: float, scores: Sequence[float]) -> None:
    """So that a reader of the folder sees why it ends there; no decision is read from it."""
    better = sum(other > score for other in scores)
    content = {"step": step, "validation": score, "better": better, "compared": len(scores)}
    file = folder.path / STOPPED
    if not file.is_file() or read_json(file) != content:
        write_json(file, content)
