"""How far forecasts are off where the truth is known: docs/results/forecast.csv and the table in
docs/forecast.md, from folders of finished runs.

python docs/generators/forecast_table.py PACS=RUNS RSSCN7=RUNS

RUNS holds runs that leave out one or two domains, as `unseen sweep … pairs=all` and `unseen auto`
make them. Each is forecast on each domain that it left out. Its references are runs of the same
recipe that left out two domains, by their accuracy on another domain; where the model left out one,
that one has to be missing in the references as well. Images of a domain: 200.
"""

import argparse
import csv
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from rich.console import Console

from unseen.forecast.estimate import NAMES, Combined, Reference, combine
from unseen.reports.text import MISSING
from unseen.results.folder import RunFolder, find_runs
from unseen.results.result import RunResult
from unseen.serve.evaluate import read_reference

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"(<!-- forecast table -->\n).*?(<!-- end of forecast table -->)", re.DOTALL)
IMAGES = 200
FAR = 0.15
"""Where validation accuracy is off by this much, forecasts have to prove themselves."""


class Case(NamedTuple):
    """A model and the domain that it left out."""

    dataset: str
    row: str
    domain: str
    seed: int
    own: Reference
    combined: Combined
    references: int

    @property
    def error(self) -> float:
        return abs(self.combined.accuracy - self.own.accuracy)

    @property
    def is_covered(self) -> bool:
        return self.combined.low <= self.own.accuracy <= self.combined.high


def read_cases(dataset: str, runs: Path) -> Iterable[Case]:
    rows: dict[str, list[tuple[RunFolder, RunResult]]] = {}
    for folder in find_runs(runs):
        if folder.finished and (result := folder.read_result()).merged is None:
            row = str(folder.read_settings().get("name") or result.method)
            rows.setdefault(row, []).append((folder, result))
    for row, own in rows.items():
        known = [
            (set(result.unseen_domains), result.seed, reference)
            for folder, result in own
            for reference in read_reference(folder, result.unseen_domains, "cpu", IMAGES)
        ]
        for left_out, seed, case in known:
            references = [
                other
                for others, _, other in known
                if len(others) == 2 and other.domain != case.domain
                and (len(left_out) == 2 or case.domain in others)
            ]  # fmt: skip
            if references:
                combined = combine(case.source_accuracy, case.gaps, references, IMAGES)
                yield Case(dataset, row, case.domain, seed, case, combined, len(references))


def to_markdown(cases: Sequence[Case]) -> str:
    """By domain, then the mean absolute errors of all, and of those that are far off."""
    header = ("domain left out", "cases", "truth", "validation images", "forecast", "off by")
    lines = [_row(*header, "inside"), f"|---|{'---:|' * len(header)}"]
    for dataset, domain in dict.fromkeys((each.dataset, each.domain) for each in cases):
        own = [each for each in cases if (each.dataset, each.domain) == (dataset, domain)]
        columns = (
            [each.own.accuracy for each in own],
            [each.own.source_accuracy for each in own],
            [each.combined.accuracy for each in own],
            [each.error for each in own],
        )
        inside = f"{sum(each.is_covered for each in own)} of {len(own)}"
        lines.append(_row(f"{dataset}, {domain}", str(len(own)), *map(_mean, columns), inside))
    datasets = list(dict.fromkeys(each.dataset for each in cases))
    parts = {name: [each for each in cases if each.dataset == name] for name in datasets}
    parts["all"] = list(cases)
    far = [each for each in cases if abs(each.own.drop) >= FAR]
    parts[f"validation off by {100 * FAR:.0f} or more"] = far
    columns = [f"{name} ({len(part)})" for name, part in parts.items()]
    lines += ["", _row("mean absolute error, points", *columns), f"|---|{'---:|' * len(parts)}"]
    errors = {
        "accuracy on validation images": [[abs(c.own.drop) for c in p] for p in parts.values()]
    }
    for name, text in NAMES.items():
        errors[text] = [_single_errors(p, name) for p in parts.values()]
    errors["**combined forecast**"] = [[each.error for each in part] for part in parts.values()]
    lines += [_row(name, *map(_mean, found)) for name, found in errors.items() if any(found)]
    inside = (f"{_mean([each.is_covered for each in part])} %" for part in parts.values())
    lines.append(_row("intervals (80 %) that hold the truth", *inside))
    return "\n".join(lines) + "\n"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _single_errors(cases: Sequence[Case], name: str) -> list[float]:
    """Of an estimate as it is; those that are calibrated on references are in forecast.csv."""
    pairs = ((case, each) for case in cases for each in case.combined.estimates)
    return [
        abs(value - case.own.accuracy)
        for case, each in pairs
        if each.name == name and (value := each.plain) is not None
    ]


def _mean(values: Iterable[float]) -> str:
    found = list(values)
    return f"{100 * fmean(found):.1f}" if found else MISSING


def write_csv(cases: Sequence[Case], path: Path) -> None:
    header = ["dataset", "row", "domain", "seed", "truth", "validation", "forecast", "low", "high"]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*header, "references", *NAMES])
        for case in cases:
            made = case.combined
            by_name = {each.name: each.accuracy for each in made.estimates}
            numbers = (
                case.own.accuracy,
                case.own.source_accuracy,
                made.accuracy,
                made.low,
                made.high,
            )
            singles = [
                "" if by_name.get(name) is None else f"{by_name[name]:.4f}" for name in NAMES
            ]
            about = case.dataset, case.row, case.domain, case.seed
            writer.writerow(
                [*about, *(f"{each:.4f}" for each in numbers), case.references, *singles]
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", metavar="NAME=RUNS")
    pairs = (each.split("=", 1) for each in parser.parse_args().folders)
    cases = [case for name, runs in pairs for case in read_cases(name, Path(runs))]
    cases.sort(key=lambda each: (each.dataset, each.domain, each.row, each.seed))
    write_csv(cases, ROOT / "results" / "forecast.csv")
    table = to_markdown(cases)
    page = ROOT / "forecast.md"
    text = page.read_text(encoding="utf-8")
    page.write_text(_BLOCK.sub(lambda found: found[1] + table + found[2], text), encoding="utf-8")
    Console().print(table, markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
