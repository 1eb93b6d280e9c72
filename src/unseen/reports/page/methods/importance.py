"""Importance masks: weights and their importance as grids of circles, layers side by side."""

from collections.abc import Iterable, Mapping

import numpy as np

from unseen.records.views import VIEWS
from unseen.reports.figures.panels import (
    Axis,
    Bar,
    BarPanel,
    CirclePanel,
    CurvePanel,
    Figure,
    Key,
    Line,
)
from unseen.reports.formats import cell_text
from unseen.reports.page.arrays import method_arrays
from unseen.reports.page.parts import Fold, Note, Part, Section
from unseen.reports.page.runs import Run
from unseen.reports.page.studies import Study
from unseen.reports.page.training import curve_axes, run_curves, safe
from unseen.reports.statistics import estimate
from unseen.reports.tables import Cell, Column

LARGEST = 16  # rows and columns of a grid; of a larger layer the first ones are shown

_OF_ALL = {
    "initial": "initial weights",
    "summed": "importance, summed",
    "normalised": "summed, normalised",
    "mask": "mask of phase 2",
    "second_initial": "phase 2, initial weights",
    "second_final": "phase 2, final weights",
}
_OF_DOMAIN = {
    "final": "final weights",
    "importance": "importance, normalised",
    "mask": "binary mask",
}


def importance_section(study: Study) -> Section | None:
    runs = [run for run in study.runs if run.method == "importance"]
    if not runs:
        return None
    figures = (_configurations(study, runs), _phases(study, runs))
    parts: list[Part] = [figure for figure in figures if figure.panels]
    first: dict[tuple[str, str], Run] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        first.setdefault((run.label, run.column), run)
    for run in first.values():
        arrays = method_arrays(run)
        if arrays:
            title = f"{run.label}: {run.column} unseen, seed {run.seed}"
            parts.append(
                Fold(
                    title,
                    tuple(_grids(run, arrays)),
                    open=not any(isinstance(part, Fold) for part in parts),
                )
            )
    if not parts:
        return None
    return Section(
        "importance",
        "Importance masks",
        "The importance of a weight is how far the domains moved it from where all of them began. "
        "Stronger colour: larger; for weights, blue is positive and red negative.",
        tuple(parts),
    )


def _phases(study: Study, runs: list[Run]) -> Figure:
    """Loss and accuracy, dashed while importance is found, solid while the classifier trains."""
    panels = []
    curves = {run.name: run_curves(run) for run in runs}
    for name in ("loss", "accuracy"):
        by_column: dict[str, list[Line]] = {}
        for run in runs:
            points = curves[run.name].get(name, ())
            boundary = phase_boundary(run)
            for phase in (1, 2):
                part = tuple(p for p in points if (p[0] <= boundary) == (phase == 1))
                label = f"{study.row_name(run.row)}, seed {run.seed}, phase {phase}"
                tags = study.tags(run.row, run.seed)
                line = Line(label, study.color(run.row), part, phase == 1, tags)
                by_column.setdefault(run.column, []).append(line)
        x, y = curve_axes(line for lines in by_column.values() for line in lines)
        panels += [
            CurvePanel(f"{name}, {column} unseen", tuple(by_column[column]), x, y)
            for column in study.columns
            if any(line.points for line in by_column.get(column, ()))
        ]
    color = study.color(runs[0].row)
    keys = (
        Key("phase 1: importance is found", color, "dashed"),
        Key("phase 2: the classifier", color, "line"),
    )
    return Figure("importance_phases", "Both phases", "", tuple(panels), keys)


def phase_boundary(run: Run) -> float:
    """The step after which phase 2 begins."""
    steps = run.result.steps if run.result else run.settings["steps"] or run.steps_done
    return round(steps * run.settings["method"].get("phase_share", 0.5))


def _configurations(study: Study, runs: list[Run]) -> Figure:
    """What the method reached, held-out domain by held-out domain."""
    numbers = study.numbers(study.main_rule, "out_of_domain")
    panels = []
    for row in dict.fromkeys(run.row for run in runs):
        bars = []
        for column, by_seed in numbers.get(row, {}).items():
            value = estimate(list(by_seed.values()))
            if value is not None:
                text = cell_text(Cell(value, value.n), Column(column, "accuracy"))
                points = tuple(by_seed.values())
                look = (value.mean, value.half_width, points, text)
                bars.append(Bar(f"{column} unseen", study.color(row), *look))
        if bars:
            axis = Axis(0, 100, "accuracy, %")
            panels.append(BarPanel(study.row_name(row), tuple(bars), axis))
    about = f"Accuracy on the domain that was held out, rule {study.main_rule}."
    return Figure("importance_accuracy", "Held-out domains", about, tuple(panels))


def _grids(run: Run, arrays: Mapping[str, np.ndarray]) -> Iterable[Part]:
    """One figure for what belongs to all domains, one for each domain."""
    stem = f"importance_{safe(run.label)}_{safe(run.column)}"
    if any(max(values.shape, default=0) > LARGEST for values in arrays.values()):
        yield Note(f"Layers larger than {LARGEST} × {LARGEST} show their first rows and columns.")
    together = [panel for what, title in _OF_ALL.items() for panel in _panels(arrays, what, title)]
    if together:
        yield Figure(f"{stem}_all", "All domains together", "", tuple(together))
    for domain in run.training_domains:
        panels = [
            panel
            for what, title in _OF_DOMAIN.items()
            for panel in _panels(arrays, f"{what}/{domain}", title)
        ]
        if panels:
            yield Figure(f"{stem}_{safe(domain)}", f"Trained on {domain} alone", "", tuple(panels))


def _panels(arrays: Mapping[str, np.ndarray], prefix: str, title: str) -> Iterable[CirclePanel]:
    """The layers side by side, on one scale of colour."""
    found = {
        name.rpartition("/")[2]: values.astype(float)
        for name, values in arrays.items()
        if name.rpartition("/")[0] == prefix and values.ndim == 2
    }
    high = max((float(np.abs(values).max()) for values in found.values()), default=0.0)
    digits = 0 if prefix.partition("/")[0] == "mask" else 2
    for layer, values in found.items():
        yield CirclePanel(f"{title}, {layer}", values[:LARGEST, :LARGEST], high, digits)


def summary_text(studies: Iterable[Study]) -> str:
    """The importance runs in words and numbers, for those who read text; empty without any."""
    lines: list[str] = []
    for study in studies:
        for run in study.runs:
            arrays = method_arrays(run) if run.method == "importance" else {}
            if arrays:
                lines += [*_summary(study, run, arrays), ""]
    return "\n".join(lines)


def _summary(study: Study, run: Run, arrays: Mapping[str, np.ndarray]) -> Iterable[str]:
    yield f"{study.title}: {run.label} ({run.backbone}), {run.column} unseen, seed {run.seed}"
    if run.result is not None:
        for view, by_domain in run.result.under(run.rule).views.items():
            for domain, measured in by_domain.items():
                share = f"{100 * measured.accuracy:.1f} % of {measured.images} images"
                yield f"  {VIEWS[view].title}, {domain}: {share}"
    for name, values in arrays.items():
        if values.ndim != 2:
            continue
        what = name.partition("/")[0]
        shape = " × ".join(map(str, values.shape))
        if what == "mask":
            yield f"  {name} ({shape}): {values.mean():.1%} important".replace("%", " %")
        else:
            yield (
                f"  {name} ({shape}): mean {values.mean():.4f}, lowest {values.min():.4f}, "
                f"highest {values.max():.4f}"
            )
