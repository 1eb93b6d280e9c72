"""Curves of all runs: loss and its parts, accuracy by domain; one panel per held-out domain."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from unseen.reports.figures.panels import Axis, CurvePanel, Figure, Line
from unseen.reports.figures.scales import spanning
from unseen.reports.page.accuracy import legend
from unseen.reports.page.parts import Fold, Part, Section
from unseen.reports.page.runs import Run
from unseen.reports.page.studies import Study

MOST_POINTS = 80  # of a curve; more cannot be seen
_NOT_CURVES = {"step", "lr"}
Points = tuple[tuple[float, float], ...]


def training_section(study: Study) -> Section | None:
    curves = {run.name: run_curves(run) for run in study.runs}
    quantities = _ordered(name for own in curves.values() for name in own)
    figures = [_figure(study, curves, name) for name in quantities]
    drawn = _folded([figure for figure in figures if figure.panels])
    if not drawn:
        return None
    return Section(
        "training",
        "Training",
        "One line per run; point at a panel to read values. Validation images are those of the "
        "training domains: the unseen domain plays no part.",
        drawn,
    )


def _folded(figures: Sequence[Figure]) -> tuple[Part, ...]:
    """Loss and accuracies are open; the parts of losses, which only some methods have, fold up."""
    parts = tuple(figure for figure in figures if not _is_common(figure))
    common = [figure for figure in figures if _is_common(figure)]
    if not parts:
        return tuple(common)
    return (*common, Fold("Parts of the losses, and what else methods log", parts))


def _is_common(figure: Figure) -> bool:
    return figure.name in {"curve_loss", "curve_accuracy"} or figure.name.startswith(
        ("curve_validation", "curve_oracle")
    )


def run_curves(run: Run) -> dict[str, Points]:
    """By quantity: what the method logged, then accuracy on each domain's validation images."""
    found: dict[str, list[tuple[float, float]]] = {}
    for record in run.metrics:
        for name, value in _values(record):
            if isinstance(value, int | float) and math.isfinite(value):
                found.setdefault(name, []).append((record["step"], value))
    return {name: thinned(points) for name, points in found.items()}


def _values(record: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    if "validation" not in record:
        return [(name, value) for name, value in record.items() if name not in _NOT_CURVES]
    seen = [(f"validation accuracy, {domain}", v) for domain, v in record["validation"].items()]
    peeked = record.get("unseen") or {}
    return [*seen, *((f"oracle's look at unseen {domain}", v) for domain, v in peeked.items())]


def thinned(points: Sequence[tuple[float, float]], most: int = MOST_POINTS) -> Points:
    """Evenly spaced records, the first and the last among them; values as they were recorded."""
    if len(points) <= most:
        return tuple(points)
    last = len(points) - 1
    return tuple(points[round(i * last / (most - 1))] for i in range(most))


def _ordered(names: Iterable[str]) -> list[str]:
    """Loss first, then accuracy; the rest as it comes, validation last."""
    distinct = list(dict.fromkeys(names))
    first = {"loss": 0, "accuracy": 1}

    def rank(name: str) -> int:
        return 3 if name.startswith(("validation", "oracle")) else first.get(name, 2)

    return sorted(distinct, key=rank)


def _figure(study: Study, curves: Mapping[str, Mapping[str, Points]], name: str) -> Figure:
    lines: dict[str, list[Line]] = {}
    rows = []
    for run in study.runs:
        points = curves[run.name].get(name)
        if points:
            rows.append(run.row)
            label = study.row_name(run.row)
            if len(study.seeds) > 1:
                label += f", seed {run.seed}"
            tags = study.tags(run.row, run.seed)
            line = Line(label, study.color(run.row), points, tags=tags)
            lines.setdefault(run.column, []).append(line)
    x, y = curve_axes([line for group in lines.values() for line in group])
    panels = tuple(
        CurvePanel(f"{column} unseen", tuple(lines[column]), x, y)
        for column in study.columns
        if column in lines
    )
    chosen = [row for row in study.rows if row in rows]
    title = {"accuracy": "accuracy on training batches"}.get(name, name.replace("_", " "))
    return Figure(
        f"curve_{safe(name)}", title[0].upper() + title[1:], "", panels, legend(study, chosen)
    )


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
    steps = [step for step, _ in points]
    return Axis(0, max(max(steps), 1), "step"), y


def safe(text: str) -> str:
    """Part of a file's name."""
    return "".join(c if c.isalnum() else "_" for c in text)[:60]
