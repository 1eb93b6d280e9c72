"""Importance masks: weights and their importance as grids of circles, layers side by side."""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from unseen.reports.figures.charts import Line
from unseen.reports.figures.figure import Figure
from unseen.reports.figures.grids import circle_grid
from unseen.reports.figures.svg import Drawing, Key
from unseen.reports.page.parts import Fold, Part, Section
from unseen.reports.page.runs import Run
from unseen.reports.page.studies import Study
from unseen.reports.page.training import curves_by_column, run_curves
from unseen.results.folder import safe_name
from unseen.results.result import VIEWS

LARGEST = 16  # rows and columns of a grid; of a larger layer the first ones are shown
Arrays = Mapping[str, np.ndarray]

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


def importance_section(study: Study) -> Section:
    runs = _importance_runs(study)
    phases = _phases(study, runs)
    folds: list[Fold] = []
    for run in study.first_runs(runs):
        if arrays := run.arrays():
            title = f"{run.label}: {run.column} unseen, seed {run.seed}"
            folds.append(Fold(title, tuple(_grids(run, arrays)), open=not folds))
    return Section(
        "importance",
        "Importance masks",
        "The importance of a weight is how far training on the domains moved it from its common "
        "start. Stronger colour: larger; for weights, blue is positive and red negative.",
        (*([phases] if phases.panels else []), *folds),
    )


def _importance_runs(study: Study) -> list[Run]:
    return [run for run in study.runs if run.method == "importance"]


def _phases(study: Study, runs: list[Run]) -> Figure:
    """Draws loss and accuracy, dashed while importance is found, then solid."""
    panels: list[Drawing] = []
    curves = {run.name: run_curves(run) for run in runs}
    for name in ("loss", "accuracy"):
        lines: dict[tuple[str, str], list[Line]] = {}
        for run in runs:
            points, end = curves[run.name].get((name, ""), ()), end_of_phase_1(run)
            for phase in (1, 2):
                part = tuple(point for point in points if (point[0] <= end) == (phase == 1))
                label = f"{study.row_name(run.row)}, seed {run.seed}, phase {phase}"
                look = (study.color(run.row), part, phase == 1, study.tags(run.row, run.seed))
                lines.setdefault((run.column, ""), []).append(Line(label, *look))
        panels += curves_by_column(study, lines, f"{name}, {{}} unseen")
    color = study.color(runs[0].row) if runs else 0
    keys = (
        Key("phase 1: importance is found", color, "dashed"),
        Key("phase 2: the classifier", color, "line"),
    )
    return Figure("importance_phases", "Both phases", "", tuple(panels), keys)


def end_of_phase_1(run: Run) -> float:
    """Returns the last step of phase 1; of a run under way, the last that was logged in it."""
    arrays = run.arrays()
    if "phase_steps" in arrays:
        return float(arrays["phase_steps"][1])
    logged = [(each["statistics"].get("phase"), each["step"]) for each in run.evaluations]
    if not any(phase == 2 for phase, _ in logged):
        return run.steps_done
    return max((step for phase, step in logged if phase == 1), default=0)


def _grids(run: Run, arrays: Arrays) -> Iterator[Part]:
    """Yields one figure for what belongs to all domains, and one for each domain."""
    if any(max(values.shape, default=0) > LARGEST for values in arrays.values()):
        yield f"Layers larger than {LARGEST} × {LARGEST} show their first rows and columns."
    stem = f"importance_{safe_name(run.label)}_{safe_name(run.column)}"
    figures = {("all", "All domains together"): _OF_ALL}
    for domain in run.training_domains:
        own = {f"{what}/{domain}": title for what, title in _OF_DOMAIN.items()}
        figures[safe_name(domain), f"Trained on {domain} alone"] = own
    for (name, title), quantities in figures.items():
        panels = tuple(panel for each in quantities.items() for panel in _panels(arrays, *each))
        if panels:
            yield Figure(f"{stem}_{name}", title, "", panels)


def _panels(arrays: Arrays, prefix: str, title: str) -> Iterator[Drawing]:
    """Yields the layers side by side, on one scale of colour."""
    found = {
        name.rpartition("/")[2]: values.astype(float)
        for name, values in arrays.items()
        if name.rpartition("/")[0] == prefix and values.ndim == 2
    }
    high = max((float(np.abs(values).max()) for values in found.values()), default=0.0)
    digits = 0 if prefix.partition("/")[0] == "mask" else 2
    for layer, values in found.items():
        yield circle_grid(f"{title}, {layer}", values[:LARGEST, :LARGEST], high, digits)


def summary_text(studies: Iterable[Study]) -> str:
    """Describes the importance runs in words and numbers; empty without any."""
    lines: list[str] = []
    for study in studies:
        for run in _importance_runs(study):
            if arrays := run.arrays():
                lines += [*_summary(study, run, arrays), ""]
    return "\n".join(lines)


def _summary(study: Study, run: Run, arrays: Arrays) -> Iterator[str]:
    yield f"{study.title}: {run.label} ({run.backbone}), {run.column} unseen, seed {run.seed}"
    if run.result is not None:
        for view, by_domain in run.result.under(run.rule).views.items():
            for domain, measured in by_domain.items():
                share = f"{100 * measured.accuracy:.1f} % of {measured.images} images"
                yield f"  {VIEWS[view].title}, {domain}: {share}"
    for name, values in arrays.items():
        if values.ndim != 2:
            continue
        shape = " × ".join(map(str, values.shape))
        text = f"mean {values.mean():.4f}, lowest {values.min():.4f}, highest {values.max():.4f}"
        if name.startswith("mask/"):
            text = f"{100 * values.mean():.1f} % important"
        yield f"  {name} ({shape}): {text}"
