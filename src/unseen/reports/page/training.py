"""Curves of all runs: loss and its parts, accuracy by domain; one panel per held-out domain. And
the weights that sample re-weighting trains with."""

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from unseen.reports.figures.charts import (
    Axis,
    ChartRow,
    Line,
    Mark,
    Points,
    curve_axes,
    curve_chart,
    row_chart,
    thinned,
)
from unseen.reports.figures.figure import Figure
from unseen.reports.figures.svg import Drawing
from unseen.reports.page.parts import Fold, PageTable, Part, Section, capital, number
from unseen.reports.page.runs import Run
from unseen.reports.page.studies import Study
from unseen.results.folder import safe_name
from unseen.settings.experiment import METRICS

_NOT_CURVES = {"step", "lr"}
_BY_DOMAIN = ("validation ", "oracle's look at ")
"""The names of quantities that an evaluation measured begin like this."""


def training_section(study: Study) -> Section:
    curves = {run.name: run_curves(run) for run in study.runs}
    quantities = sorted(dict.fromkeys(name for own in curves.values() for name in own), key=_rank)
    figures = {name: _figure(study, curves, name) for name in quantities}
    parts: list[Part] = [figure for name, figure in figures.items() if _rank(name) != 2]
    of_losses = tuple(figure for name, figure in figures.items() if _rank(name) == 2)
    if of_losses:
        parts.append(Fold("Parts of the losses, and what else methods log", of_losses))
    return Section(
        "training",
        "Training",
        "One line per run; point at a panel to read its values. Validation images come from the "
        "training domains: the unseen domain plays no part.",
        tuple(parts),
    )


def _rank(name: str) -> int:
    """Puts loss first, then accuracy, and what evaluations measured last."""
    return 3 if name.startswith(_BY_DOMAIN) else {"loss": 0, "accuracy": 1}.get(name, 2)


def run_curves(run: Run) -> dict[str, Points]:
    """Returns what the method logged and what evaluations measured, by name. A merged model was not
    trained and has none."""
    found: dict[str, list[tuple[float, float]]] = {}
    if run.result is not None and run.result.merged is not None:
        return {}
    for record in run.metrics:
        for name, value in _values(record):
            if isinstance(value, int | float) and math.isfinite(value):
                found.setdefault(name, []).append((record["step"], value))
    return {name: thinned(points) for name, points in found.items()}


def _values(record: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    if "validation" not in record:
        return [(name, value) for name, value in record.items() if name not in _NOT_CURVES]
    measured = {"validation accuracy, ": record["validation"]}
    measured |= {
        f"validation {name}, ": record.get(f"validation_{metric}") or {}
        for metric, name in METRICS.items()
        if metric != "accuracy"
    }
    measured["oracle's look at unseen "] = record.get("unseen") or {}
    return [
        (prefix + domain, value)
        for prefix, by_domain in measured.items()
        for domain, value in by_domain.items()
    ]


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
    title = "accuracy on training batches" if name == "accuracy" else name.replace("_", " ")
    return Figure(
        f"curve_{safe_name(name)}",
        capital(title),
        "",
        tuple(curves_by_column(study, lines)),
        study.legend(dict.fromkeys(run.row for run in logging)),
    )


def curves_by_column(
    study: Study, lines: Mapping[str, list[Line]], title: str = "{} unseen"
) -> Iterable[Drawing]:
    """Yields a panel for each held-out domain, on axes that all of them share."""
    x, y = curve_axes(line for own in lines.values() for line in own)
    for column in study.columns:
        if any(line.points for line in lines.get(column, ())):
            yield curve_chart(title.format(column), lines[column], x, y)


def reweighting_section(study: Study) -> Section:
    """Shows the weights of source images, and how well a classifier separates the domains."""
    runs = [run for run in study.runs if run.method == "reweighting"]
    rows, panels = [], []
    for run in runs:
        auc, size = (run.statistics.get(key) for key in ("auc", "effective_sample_size"))
        if isinstance(auc, int | float) and isinstance(size, int | float):
            about = (study.row_name(run.row), run.column, run.seed)
            numbers = (number(auc, ".3f"), number(size, ",.0f"))
            rows.append(study.table_row(run.row, *about, *numbers, seed=run.seed))
        arrays = run.arrays()
        if {"histogram_counts", "histogram_edges"} <= set(arrays):
            edges, counts = arrays["histogram_edges"], arrays["histogram_counts"]
            shares = 100 * counts / max(counts.sum(), 1)
            bins = [f"{low:.2f} – {high:.2f}" for low, high in pairwise(edges)]
            bars = [
                ChartRow(name, study.color(run.row), (Mark("", share, look="bar"),), f"{share:.1f}")
                for name, share in zip(bins, shares.tolist(), strict=True)
            ]
            axis = Axis(0, max(float(shares.max()), 1.0), "images, %")
            panels.append(row_chart(f"{run.column} unseen, seed {run.seed}", bars, axis))
    header = ("method", "unseen", "seed", "AUC", "effective sample size")
    about = "Share of the source images by weight; in plain training every weight is 1."
    parts: list[Part] = []
    if rows:
        parts.append(PageTable("Domain classifier and weights", header, tuple(rows)))
    if panels:
        parts.append(Figure("reweighting", "Weights of source images", about, tuple(panels)))
    return Section(
        "reweighting",
        "Sample re-weighting",
        "Source images that look like the target count more. A high AUC means that the domains are "
        "easy to tell apart; a small effective sample, that few images do the training.",
        tuple(parts),
    )
