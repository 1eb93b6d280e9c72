"""Curves of all runs: loss and its parts, accuracy by domain; one panel per held-out domain."""

import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from unseen.reports.figures.charts import Line, Points, curve_axes, curve_chart, thinned
from unseen.reports.figures.figure import Figure
from unseen.reports.figures.svg import Drawing
from unseen.reports.page.parts import Fold, Part, Section, capital
from unseen.reports.page.studies import Run, Study
from unseen.results.folder import safe_name
from unseen.settings.experiment import METRICS

Curves = dict[tuple[str, str], Points]
"""By quantity and domain; what is not measured by domain has an empty one."""
_NOT_CURVES = {"step", "lr"}
_MEASURED = ("validation ", "oracle's look at ")
"""The names of quantities that an evaluation measured, by domain, begin like this."""


def training_section(study: Study) -> Section:
    study = study.drawn
    curves = {run.name: run_curves(run) for run in study.runs}
    quantities = dict.fromkeys(name for own in curves.values() for name, _ in own)
    names = sorted(quantities, key=_rank)
    parts: list[Part] = [_figure(study, curves, name) for name in names if _rank(name) != 2]
    of_losses = tuple(_figure(study, curves, name) for name in names if _rank(name) == 2)
    if of_losses:
        parts.append(Fold("Parts of the losses, and what else methods log", of_losses))
    return Section(
        "training",
        "Training",
        "One line per run; point at a panel to read its values, click on it to enlarge "
        "it. Validation images come from the training domains: the unseen domain plays no part.",
        tuple(parts),
    )


def _rank(name: str) -> int:
    """Puts loss first, then accuracy, and what evaluations measured last."""
    return 3 if name.startswith(_MEASURED) else {"loss": 0, "accuracy": 1}.get(name, 2)


def run_curves(run: Run) -> Curves:
    """Returns what the method logged and what evaluations measured. A merged model was not trained
    and has none."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    if run.result is not None and run.result.merged is not None:
        return {}
    for record in run.metrics:
        for place, value in _values(record):
            if isinstance(value, int | float) and math.isfinite(value):
                found.setdefault(place, []).append((record["step"], value))
    return {place: thinned(points) for place, points in found.items()}


def _values(record: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], Any]]:
    if "validation" not in record:
        yield from (((name, ""), v) for name, v in record.items() if name not in _NOT_CURVES)
        return
    measured = {f"validation_{metric}": f"validation {name}" for metric, name in METRICS.items()}
    measured |= {"validation": "validation accuracy", "unseen": "oracle's look at unseen domains"}
    for key, name in measured.items():
        yield from (((name, domain), value) for domain, value in (record.get(key) or {}).items())


def _figure(study: Study, curves: Mapping[str, Curves], name: str) -> Figure:
    """Draws a quantity, a small panel for each held-out domain."""
    lines: dict[tuple[str, str], list[Line]] = {}
    logging = [run for run in study.runs if any(name == own for own, _ in curves[run.name])]
    for run in logging:
        label = study.row_name(run.row)
        if len(study.seeds) > 1:
            label += f", seed {run.seed}"
        color, tags = study.color(run.row), study.tags(run.row, run.seed)
        for (own, domain), points in curves[run.name].items():
            if own == name:
                line = Line(label, color, points, tags=tags)
                lines.setdefault((run.column, domain), []).append(line)
    x, y = curve_axes(line for own in lines.values() for line in own)
    panels: list[Drawing] = []
    domains = sorted({domain for _, domain in lines}, key=study.rank)
    for column, domain in product(study.columns, domains):
        if (column, domain) in lines:
            title = f"{domain}, " * bool(domain) + f"{column} unseen"
            panels.append(curve_chart(title, lines[column, domain], x, y))
    title = "accuracy on training batches" if name == "accuracy" else name.replace("_", " ")
    about = "A panel for each domain that was measured and each unseen domain."
    return Figure(
        f"curve_{safe_name(name)}",
        capital(title),
        about if name.startswith(_MEASURED) else "",
        tuple(panels),
        study.legend(dict.fromkeys(run.row for run in logging)),
        small=True,
    )
