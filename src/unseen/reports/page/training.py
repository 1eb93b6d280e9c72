"""Curves of all runs: loss and its parts, accuracy by domain; one panel per held-out domain."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from unseen.reports.figures.curves import CurvePanel, Line
from unseen.reports.figures.figure import Figure
from unseen.reports.page.look import Points, capital, curve_axes, method_legend, thinned
from unseen.reports.page.parts import Fold, Part, Section
from unseen.reports.page.runs import Run
from unseen.reports.page.studies import Study
from unseen.results.folder import safe_name
from unseen.settings.experiment import METRICS

_NOT_CURVES = {"step", "lr"}
_BY_DOMAIN = ("validation ", "oracle's look at ")
"""How the names of quantities begin that an evaluation measured."""


def training_section(study: Study) -> Section | None:
    curves = {run.name: run_curves(run) for run in study.runs}
    quantities = _ordered(name for own in curves.values() for name in own)
    figures = {name: _figure(study, curves, name) for name in quantities}
    drawn = _folded({name: figure for name, figure in figures.items() if figure.panels})
    if not drawn:
        return None
    return Section(
        "training",
        "Training",
        "One line per run; point at a panel to read its values. Validation images come from the "
        "training domains: the unseen domain plays no part.",
        drawn,
    )


def _folded(figures: Mapping[str, Figure]) -> tuple[Part, ...]:
    """Loss and accuracies are open; the parts of losses, which only some methods have, fold up."""
    common = [figure for name, figure in figures.items() if _rank(name) != 2]
    parts = tuple(figure for name, figure in figures.items() if _rank(name) == 2)
    if not parts:
        return tuple(common)
    return (*common, Fold("Parts of the losses, and what else methods log", parts))


def run_curves(run: Run) -> dict[str, Points]:
    """By quantity: what the method logged, then accuracy on each domain's validation images. A
    merged model was not trained."""
    found: dict[str, list[tuple[float, float]]] = {}
    if run.merged is not None:
        return {}
    for record in run.metrics:
        for name, value in _values(record):
            if isinstance(value, int | float) and math.isfinite(value):
                found.setdefault(name, []).append((record["step"], value))
    return {name: thinned(points) for name, points in found.items()}


def _values(record: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    if "validation" not in record:
        return [(name, value) for name, value in record.items() if name not in _NOT_CURVES]
    looks = {"validation accuracy, ": record["validation"]}
    looks |= {
        f"validation {name}, ": record.get(f"validation_{metric}") or {}
        for metric, name in METRICS.items()
        if metric != "accuracy"
    }
    looks["oracle's look at unseen "] = record.get("unseen") or {}
    return [
        (prefix + domain, value)
        for prefix, by_domain in looks.items()
        for domain, value in by_domain.items()
    ]


def _ordered(names: Iterable[str]) -> Sequence[str]:
    """Loss first, then accuracy; the rest as it comes, validation last."""
    return sorted(dict.fromkeys(names), key=_rank)


def _rank(name: str) -> int:
    return 3 if name.startswith(_BY_DOMAIN) else {"loss": 0, "accuracy": 1}.get(name, 2)


def _figure(study: Study, curves: Mapping[str, Mapping[str, Points]], name: str) -> Figure:
    lines: dict[str, list[Line]] = {}
    logging = [run for run in study.runs if name in curves[run.name]]
    for run in logging:
        label = study.row_name(run.row)
        if len(study.seeds) > 1:
            label += f", seed {run.seed}"
        tags = study.tags(run.row, run.seed)
        line = Line(label, study.color(run.row), curves[run.name][name], tags=tags)
        lines.setdefault(run.column, []).append(line)
    x, y = curve_axes(line for group in lines.values() for line in group)
    panels = tuple(
        CurvePanel(f"{column} unseen", tuple(lines[column]), x, y)
        for column in study.columns
        if column in lines
    )
    legend = method_legend(study, dict.fromkeys(run.row for run in logging))
    title = "accuracy on training batches" if name == "accuracy" else name.replace("_", " ")
    stem = f"curve_{safe_name(name)}"
    return Figure(stem, capital(title), "", panels, legend)
