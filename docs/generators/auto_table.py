"""What `unseen auto` reached in each domain that it had to do without: docs/results/NAME_auto.csv.

python docs/generators/auto_table.py pacs SEED_0 SEED_1 SEED_2

Each folder is what one `unseen auto` wrote, with another seed. Prints also what each candidate of
the first rounds is worth on places that were left out, and how far the nested choice among them is
ahead of one by validation images of the domains that trained.
"""

import csv
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console

from unseen.atomic import read_json
from unseen.automatic.answer import FILE
from unseen.automatic.candidates import ladder
from unseen.automatic.choice import Cell, Design, Row, choose
from unseen.automatic.search import HEAD_STEPS, PLAN, RUNS
from unseen.results.folder import find_runs
from unseen.results.statistics import Estimate, estimate, paired_difference
from unseen.sweeps.rules import source_evaluations, validation_score

RESULTS = Path(__file__).parents[1] / "results"
HEADER = (
    *("dataset", "view", "rule", "method", "backbone", "quantity", "column", "mean"),
    *("half_width", "n", "planned", "metric"),
)
PLAIN, CHOSEN = "plain training", "auto"
STAGES = ("stem", *(f"blocks.{n}" for n in range(7)), "conv_head", "pool", "classifier")
SIMPLEST_FIRST = [each.name for each in ladder(STAGES, "blocks.6", True, "32")]
Cells = dict[Cell, float]
Scores = dict[Row, Cells]


def rows(name: str, answers: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """Returns the lines of the table: accuracy by domain, their mean, and the difference, paired by
    seed."""
    found, overall = [], dict[str, list[float]]()

    def add(row: str, quantity: str, column: str, value: Estimate | None) -> None:
        assert value is not None
        half = "" if value.half_width is None else 100 * value.half_width
        numbers = [100 * value.mean, half, len(answers), len(answers)]
        about = [name, "out_of_domain", "source", row, "efficientnet_lite0"]
        found.append([*about, quantity, column, *numbers, answers[0]["metric"]])

    for row, key in ((PLAIN, "plain"), (CHOSEN, "expectation")):
        by_seed = [each[key]["by_place"] for each in answers]
        for place in by_seed[0]:
            add(row, "accuracy", place, estimate([each[place] for each in by_seed]))
        overall[row] = [fmean(each.values()) for each in by_seed]
        add(row, "overall", "overall", estimate(overall[row]))
    first, second = (dict(enumerate(overall[row])) for row in (PLAIN, CHOSEN))
    difference = f"difference to {PLAIN}"
    add(CHOSEN, "difference", difference, paired_difference(first, second))
    return found


def first_rounds(folder: Path, seed_places: Sequence[str]) -> tuple[Scores, Scores]:
    """Returns what the runs of the first rounds were worth, which all left out two places: on these
    places, and on validation images of the others."""
    left_out, validation = defaultdict[Row, Cells](dict), defaultdict[Row, Cells](dict)
    first = read_json(folder / PLAN)["decided"].get("screening") or {"steps": HEAD_STEPS}
    for run in find_runs(folder / RUNS):
        result = run.read_result() if run.finished else None
        if result is None or len(result.unseen_domains) != 2:
            continue
        settings = run.read_settings()
        if settings["steps"] not in (HEAD_STEPS, first["steps"]):
            continue
        measured = result.view(result.selection, "out_of_domain")
        chosen_by = validation_score(source_evaluations(run))[0]
        for place in set(seed_places).intersection(result.unseen_domains):
            cell = Cell(frozenset(result.unseen_domains), place, 0)
            row = settings["recipe"], settings["steps"]
            left_out[row][cell] = measured[place].measures[result.metric]
            validation[row][cell] = chosen_by
    return left_out, validation


def ahead_of_validation(folder: Path, answer: Mapping[str, Any]) -> tuple[dict[str, float], float]:
    """Returns what the candidates of the first rounds are worth, and the mean over the places of
    how much better the nested choice among them is than the choice by validation images."""
    places = tuple(answer["expectation"]["by_place"])
    left_out, validation = first_rounds(folder, places)
    design = Design(places, nested=True)
    worth = design.worth(left_out)
    gains = []
    for place in places:
        chosen = choose(design.worth(left_out, frozenset({place})), SIMPLEST_FIRST)
        means = {row: _mean_on(validation[row], place) for row in worth}
        other = max(means, key=lambda row: means[row])
        assert chosen is not None
        gains.append(_mean_on(left_out[chosen.row], place) - _mean_on(left_out[other], place))
    return {row[0]: fmean(own.values()) for row, own in worth.items()}, fmean(gains)


def _mean_on(cells: Cells, place: str) -> float:
    return fmean(value for cell, value in cells.items() if cell.place == place)


def main(name: str, *folders: str) -> None:
    say = Console(width=160).print
    answers = [read_json(Path(folder) / FILE) for folder in folders]
    with (RESULTS / f"{name}_auto.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([HEADER, *rows(name, answers)])
    ahead = []
    for folder, answer in zip(folders, answers, strict=True):
        say(answer["choice"]["row"], answer["expectation"]["rows"], f"{answer['minutes']:.1f}")
        worth, gain = ahead_of_validation(Path(folder), answer)
        ahead.append(gain)
        for row, value in sorted(worth.items(), key=lambda item: -item[1]):
            say(f"  {100 * value:5.1f}  {row}")
    say("ahead of the choice by validation images:", ahead, estimate(ahead))


if __name__ == "__main__":
    main(*sys.argv[1:])
