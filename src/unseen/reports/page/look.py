"""Colours, legends, axes and table rows that look the same in every section of the page."""

import math
from collections.abc import Iterable, Sequence

from unseen.reports.figures.axes import Axis, spanning
from unseen.reports.figures.curves import Line
from unseen.reports.figures.figure import Key
from unseen.reports.formats import MISSING
from unseen.reports.gather import MethodKey
from unseen.reports.page.parts import PageCell, PageRow
from unseen.reports.page.studies import Study

MOST_POINTS = 80  # of a curve; more cannot be seen
Points = tuple[tuple[float, float], ...]


def percent(study: Study) -> Axis:
    return Axis(0, 100, f"{study.measure}, %")


def capital(text: str) -> str:
    """Its first letter."""
    return text[0].upper() + text[1:]


def method_legend(study: Study, rows: Iterable[MethodKey] | None = None) -> tuple[Key, ...]:
    chosen = study.rows if rows is None else rows
    return tuple(
        Key(study.row_name(row), study.color(row), "line", study.tags(row)) for row in chosen
    )


def domain_color(study: Study, domain: str) -> int:
    return 1 + study.domains.index(domain) % 11


def domain_legend(study: Study) -> tuple[Key, ...]:
    return tuple(Key(domain, domain_color(study, domain), "line") for domain in study.domains)


def method_row(study: Study, row: MethodKey, *values: PageCell | str | int | None) -> PageRow:
    """A row of a table in the method's colour; it is hidden together with the method."""
    return PageRow(page_cells(*values), study.tags(row), study.color(row))


def page_cells(*values: PageCell | str | int | None) -> tuple[PageCell, ...]:
    return tuple(
        value if isinstance(value, PageCell) else
        PageCell(MISSING) if value is None else PageCell(str(value), value)
        for value in values
    )  # fmt: skip


def number(value: float | None, text: str) -> PageCell | None:
    """`number(0.5, ".1f")`; None stays None."""
    return None if value is None else PageCell(format(value, text), value)


def curve_axes(lines: Iterable[Line]) -> tuple[Axis, Axis]:
    """One pair for all panels; a loss that explodes does not press the others flat."""
    points = [point for line in lines for point in line.points]
    if not points:
        return Axis(0, 1, "step"), Axis(0, 1)
    values = sorted(value for _, value in points)
    shares = values[0] >= 0 and values[-1] <= 1
    trimmed = values[: max(1, math.ceil(0.98 * len(values)))]
    high = values if values[-1] < 4 * max(trimmed[-1], 1e-9) else trimmed
    y = spanning(high, floor=0.0 if values[0] >= 0 and not shares else None)
    return Axis(0, max(max(step for step, _ in points), 1), "step"), y


def thinned(points: Sequence[tuple[float, float]], most: int = MOST_POINTS) -> Points:
    """Evenly spaced records, the first and the last among them; values as they were recorded."""
    if len(points) <= most:
        return tuple(points)
    last = len(points) - 1
    return tuple(points[round(i * last / (most - 1))] for i in range(most))
