"""What `unseen auto` reached in each domain that it had to do without: docs/results/NAME_auto.csv.

python docs/generators/auto_table.py pacs SEED_0 SEED_1 SEED_2

Each folder is what one `unseen auto` wrote, with another seed.
"""

import csv
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console

from unseen.atomic import read_json
from unseen.automatic.answer import FILE
from unseen.results.statistics import Estimate, estimate, paired_difference

RESULTS = Path(__file__).parents[1] / "results"
HEADER = (
    *("dataset", "view", "rule", "method", "backbone", "quantity", "column", "mean"),
    *("half_width", "n", "planned", "metric"),
)
PLAIN, CHOSEN = "plain training", "auto"


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


def main(name: str, *folders: str) -> None:
    say = Console(width=160).print
    answers = [read_json(Path(folder) / FILE) for folder in folders]
    with (RESULTS / f"{name}_auto.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([HEADER, *rows(name, answers)])
    for answer in answers:
        say(answer["choice"]["row"], answer["expectation"]["rows"], f"{answer['minutes']:.1f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
