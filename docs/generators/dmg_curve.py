"""The curve of DMG against aggregate, over the share of the images and the length of training:
docs/results/dmg_curve.csv and .svg, from the folders of finished runs. Points that the file
has already and that these runs do not measure again stay: a long curve can grow day by day.

python docs/generators/dmg_curve.py --runs DIR
"""

import argparse
import csv
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from unseen.errors import UnseenError
from unseen.reports.figures.charts import Axis, Line, axis_around, curve_chart
from unseen.reports.figures.figure import Figure
from unseen.reports.figures.svg import Drawing
from unseen.reports.tables import OVERALL, Expected, check_results, gather, lay_out
from unseen.results.folder import find_runs
from unseen.results.result import RunResult
from unseen.results.statistics import paired_difference

NAME = "dmg_curve"
REFERENCE, METHOD = "aggregate", "dmg"


class Point(NamedTuple):
    """One length of training with one share of the images; percent, means over seeds."""

    share: float
    steps: int
    reference: float
    method: float
    difference: float
    half_width: float | None
    """Of the paired 95 % interval; None for a single seed."""
    seeds: int


def read_points(runs: Path, rule: str = "source") -> list[Point]:
    """Where both methods have finished all domains, for one seed at least. Controls, which have
    other masks than one for each domain, are left out."""
    groups: dict[tuple[float, int], list[RunResult]] = {}
    for folder in find_runs(runs):
        if folder.finished:
            result, settings = folder.read_result(), folder.read_settings()
            control = settings["method"].get("masks", "domain") != "domain"
            if result.method in (REFERENCE, METHOD) and not control:
                share = settings["data"].get("share", 1.0)
                groups.setdefault((share, result.steps), []).append(result)
    domains = {each.unseen_domains for results in groups.values() for each in results}
    points = (_point(*key, groups[key], sorted(domains), rule) for key in sorted(groups))
    found = [point for point in points if point is not None]
    if not found:
        raise UnseenError(
            f"{runs} has no finished runs of {REFERENCE} and {METHOD} with the same share of the "
            "images, steps, unseen domains and seeds"
        )
    return found


def with_earlier(points: Iterable[Point], folder: Path) -> list[Point]:
    """And those that an earlier call has written there, unless they were measured again."""
    found: dict[tuple[float, int], Point] = {}
    table = folder / f"{NAME}.csv"
    if table.is_file():
        with table.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                numbers = (float(row[name]) for name in (REFERENCE, METHOD, "difference"))
                half = float(row["half_width"]) if row["half_width"] else None
                share, steps = float(row["share"]), int(row["steps"])
                found[share, steps] = Point(share, steps, *numbers, half, int(row["seeds"]))
    found |= {(point.share, point.steps): point for point in points}
    return [found[key] for key in sorted(found)]


def _point(
    share: float,
    steps: int,
    results: Sequence[RunResult],
    domains: Sequence[tuple[str, ...]],
    rule: str,
) -> Point | None:
    check_results(results, rule)
    layout = lay_out(results, Expected(unseen_domains=tuple(domains)))
    numbers = gather(results, rule, "out_of_domain", layout, "accuracy")
    overall = {method: by_column[OVERALL] for (method, _), by_column in numbers.items()}
    reference, own = overall.get(REFERENCE, {}), overall.get(METHOD, {})
    difference = paired_difference(reference, own)
    if difference is None:
        return None
    both = [seed for seed in reference if seed in own]
    means = (sum(each[seed] for seed in both) / len(both) for each in (reference, own))
    return Point(share, steps, *means, *difference)


def figure(points: Iterable[Point]) -> Figure:
    """A panel for each share: difference over steps, with its intervals."""
    points = list(points)
    lengths = sorted({point.steps for point in points})
    x = Axis(0, 1.05 * max(lengths), "steps")
    edges = [0.0]
    for point in points:
        half = point.half_width or 0.0
        edges += [point.difference - half, point.difference + half]
    y = axis_around(edges, "points")
    shares = sorted({point.share for point in points})
    return Figure(
        NAME,
        f"{METHOD} − {REFERENCE}, out of domain",
        "Mean over unseen domains; bars are paired 95 % intervals over seeds.",
        tuple(_panel(share, [p for p in points if p.share == share], x, y) for share in shares),
    )


def _panel(share: float, points: Sequence[Point], x: Axis, y: Axis) -> Drawing:
    line = Line(
        f"{METHOD} − {REFERENCE}",
        2,
        tuple((float(point.steps), point.difference) for point in points),
        half_widths=tuple(point.half_width for point in points),
    )
    none = Line("no difference", 0, ((x.low, 0.0), (x.high, 0.0)), dashed=True)
    images = "all images" if share == 1 else f"{100 * share:g} % of the images"
    return curve_chart(f"{METHOD} − {REFERENCE}, {images}", (none, line), x, y, dots=True)


def write_curve(points: Sequence[Point], folder: Path) -> list[Path]:
    """The numbers as CSV, the figure as SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    table = folder / f"{NAME}.csv"
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["share", "steps", REFERENCE, METHOD, "difference", "half_width", "seeds"])
        for point in points:
            numbers = (point.reference, point.method, point.difference, point.half_width)
            texts = ("" if number is None else f"{number:.2f}" for number in numbers)
            writer.writerow([f"{point.share:g}", point.steps, *texts, point.seeds])
    drawing = folder / f"{NAME}.svg"
    drawing.write_text(figure(points).draw().as_file(), encoding="utf-8")
    return [table, drawing]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, required=True, help="folder with finished runs")
    parser.add_argument("--rule", default="source", help="selection rule (default: source)")
    default = Path(__file__).resolve().parents[1] / "results"
    parser.add_argument("--into", type=Path, default=default, help="folder (default: docs/results)")
    given = parser.parse_args()
    points = with_earlier(read_points(given.runs, given.rule), given.into)
    for path in write_curve(points, given.into):
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
