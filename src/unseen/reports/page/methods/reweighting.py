"""Re-weighted source images: how the weights are spread, and how well domains were told apart."""

from unseen.reports.figures.axes import Axis
from unseen.reports.figures.figure import Figure
from unseen.reports.figures.rows import Bar, BarPanel
from unseen.reports.page.look import method_row, number
from unseen.reports.page.parts import PageTable, Part, Section
from unseen.reports.page.runs import Run
from unseen.reports.page.studies import Study
from unseen.results.files import read_arrays_if_whole


def reweighting_section(study: Study) -> Section | None:
    runs = [run for run in study.runs if run.method == "reweighting"]
    parts: list[Part] = []
    table = _table(study, runs)
    if table.rows:
        parts.append(table)
    panels = tuple(panel for run in runs if (panel := _histogram(study, run)) is not None)
    if panels:
        about = "Share of the source images by weight; in plain training every weight is 1."
        parts.append(Figure("reweighting", "Weights of source images", about, panels))
    if not parts:
        return None
    lead = "Source images that look like the target count more. A high AUC means that the domains "
    lead += "are easy to tell apart; a small effective sample, that few images do the training."
    return Section("reweighting", "Sample re-weighting", lead, tuple(parts))


def _table(study: Study, runs: list[Run]) -> PageTable:
    rows = []
    for run in runs:
        auc, size = (run.statistics.get(key) for key in ("auc", "effective_sample_size"))
        if isinstance(auc, int | float) and isinstance(size, int | float):
            name, numbers = study.row_name(run.row), (number(auc, ".3f"), number(size, ",.0f"))
            row = method_row(study, run.row, name, run.column, run.seed, *numbers)
            rows.append(row._replace(tags=study.tags(run.row, run.seed)))
    header = ("method", "unseen", "seed", "AUC", "effective sample size")
    return PageTable("Domain classifier and weights", header, tuple(rows))


def _histogram(study: Study, run: Run) -> BarPanel | None:
    arrays = read_arrays_if_whole(run.folder.arrays)
    if not {"histogram_counts", "histogram_edges"} <= set(arrays):
        return None
    edges, counts = arrays["histogram_edges"], arrays["histogram_counts"]
    shares = 100 * counts / max(counts.sum(), 1)
    bars = tuple(
        Bar(f"{low:.2f} – {high:.2f}", study.color(run.row), share, None, (), f"{share:.1f}")
        for low, high, share in zip(edges, edges[1:], shares.tolist(), strict=False)
    )
    title = f"{run.column} unseen, seed {run.seed}"
    return BarPanel(title, bars, Axis(0, max(float(shares.max()), 1.0), "images, %"))
