"""A forecast as sentences and tables: on the terminal, and as one web page that fetches nothing."""

from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from unseen.forecast.estimate import LEVEL, NAMES, Differences, percent
from unseen.forecast.forecast import FileForecast, Forecast
from unseen.forecast.profile import MEANINGS, STATISTICS
from unseen.reports.figures.charts import Axis, ChartRow, Mark, row_chart
from unseen.reports.figures.figure import Figure
from unseen.reports.figures.grids import heat_map, image_sheet, picture
from unseen.reports.figures.svg import Key
from unseen.reports.page import parts
from unseen.reports.page.parts import Fold, PageCell, PageTable, Part, Section, page_row

_TEMPLATE = Path(__file__).with_name("forecast.html")
_DARKEST = 3.0
"""The standardised difference that has the full colour."""
_MOST_CLASSES, _CLASSES_ON_TERMINAL = 40, 12
_STATISTICS_ON_TERMINAL = 6
_INTERVALS = f"{percent(LEVEL)} of intervals like this one should hold the truth."


def write_page(found: FileForecast, path: Path) -> None:
    made = found.forecast
    charts: list[Part] = [found.plot(), _estimates_table(made)]
    lead = f"Single estimates lie between {' and '.join(map(percent, made.spread))}."
    if made.references:
        header = ("domain left out", "accuracy there", "on validation images", "run")
        rows = (
            page_row(each.domain, _share(each.accuracy), _share(each.source_accuracy), each.run)
            for each in made.references
        )
        charts.append(Fold("References", (PageTable("References", header, tuple(rows)),)))
        lead += " Each counts the more, the closer it was on the references."
    sections = [Section("estimates", "Estimates", lead, tuple(charts))]
    if made.differences is not None:
        explained = "; ".join(f"{name}: {meaning}" for name, meaning in MEANINGS.items())
        meanings = Fold("What the statistics mean", (f"{explained}.",))
        different: tuple[Part, ...] = (_domains_table(made.differences), meanings)
        if made.differences.closest.statistics:
            different = (_statistics_figure(made.differences), *different)
        lead = about_closest(made.differences)
        sections.append(Section("different", "What is different", lead, different))
        if found.outliers:
            by = made.differences.measured_by
            lead = f"Furthest from all validation images by {by}: are they what you expect?"
            sections.append(Section("outliers", "Outliers", lead, (_outliers_figure(found),)))
    lead = "Shares that differ much mean other classes at this place, or a model that prefers some."
    sections.append(Section("classes", "Classes", lead, (_classes_figure(made),)))
    content = {
        "text": made.text,
        "guess": percent(made.accuracy),
        "likely": made.interval,
        "model": found.model,
        "images": made.images,
        "source": percent(made.source_accuracy),
        "references": about_references(made),
        "interval": _INTERVALS,
        "warnings": made.warnings,
        "advice_list": made.advice,
        "sections": sections,
    }
    parts.write_whole(path, parts.render_page(_TEMPLATE, content))


def print_forecast(found: FileForecast, console: Console) -> None:
    made = found.forecast

    def say(text: str = "", style: str | None = None) -> None:
        console.print(text, style=style, markup=False, highlight=False)

    def show(table: PageTable, title: str = "") -> None:
        title = title or table.title
        shown = Table(title=title, title_justify="left", title_style="", box=None, pad_edge=False)
        for number, column in enumerate(table.header):
            shown.add_column(column, justify="left" if number == 0 else "right")
        for row in table.rows:
            shown.add_row(*(cell.text for cell in row.cells))
        console.print(shown)

    say(
        f"Best guess: {percent(made.accuracy)} of the predictions on these {made.images} images "
        f"are right, {made.interval} ({percent(made.source_accuracy)} on validation images)",
        "bold",
    )
    say(f"{about_references(made)} {_INTERVALS}")
    for warning in made.warnings:
        say(f"! {warning}", "yellow")
    say()
    show(_estimates_table(made), f"Single estimates, from {' to '.join(map(percent, made.spread))}")
    header = ("class", "predicted here", "in training")
    rows = tuple(
        page_row(each.name, _share(each.predicted), _share(each.training))
        for each in made.shares_by_shift[:_CLASSES_ON_TERMINAL]
    )
    show(PageTable("Class shares", header, rows))
    if made.differences is not None:
        say(about_closest(made.differences))
        closest = made.differences.closest
        header = ("statistic", "here", closest.domain, "difference")
        rows = tuple(
            page_row(e.statistic, f"{e.new:.3g}", f"{e.domain:.3g}", f"{e.size:+.1f} sd")
            for e in closest.statistics[:_STATISTICS_ON_TERMINAL]
        )
        if rows:
            show(PageTable(f"Images here and in {closest.domain}", header, rows))
        strange = ", ".join(str(each.file) for each in found.outliers[:3])
        say(f"The images least like validation images: {strange} (all with -o PAGE.html)")
    say()
    say("What to do", "bold")
    for number, advice in enumerate(made.advice, start=1):
        say(f"{number}. {advice.action}. {advice.reason} ({advice.command})")


def about_references(made: Forecast) -> str:
    if not made.references:
        return "From the model's own validation images; no references."
    domains = list(dict.fromkeys(each.domain for each in made.references))
    runs = len({each.run for each in made.references})
    return (
        f"Calibrated on {runs} run{'s' if runs > 1 else ''} that left out {', '.join(domains)}; "
        f"usual error {100 * made.error:.0f} points."
    )


def about_closest(differences: Differences) -> str:
    closest = differences.closest
    if closest.auc is None:
        return f"Closest training domain: {closest.domain}. There are too few images to say more."
    return (
        f"Closest training domain: {closest.domain}. A classifier on {differences.measured_by} "
        f"tells these images from it with AUC {closest.auc:.2f}, from all training images with "
        f"AUC {differences.auc:.2f} (0.5: not at all, 1: always)."
    )


def _share(value: float | None) -> PageCell | None:
    return None if value is None else PageCell(percent(value), value)


def _estimates_table(made: Forecast) -> PageTable:
    header = ("estimate", "as it is", "calibrated", "weight", "usual error")
    rows = tuple(
        page_row(NAMES[e.name], *map(_share, (e.plain, e.accuracy, e.weight, e.error)))
        for e in made.estimates
    )
    notes = ("Usual error: on each reference, calibrated on those that left out other domains.",)
    return PageTable("Estimates", header, rows, notes if made.references else ())


def _statistics_figure(differences: Differences) -> Figure:
    """The statistics that differ most from the closest domain first."""
    order = [each.statistic for each in differences.closest.statistics]
    names = [*order, *(name for name in STATISTICS if name not in order)]
    sizes = np.full((len(names), len(differences.domains)), np.nan)
    for column, domain in enumerate(differences.domains):
        for each in domain.statistics:
            sizes[names.index(each.statistic), column] = each.size
    known = np.flatnonzero(np.isfinite(sizes).any(axis=1))
    panel = heat_map(
        "",
        [names[row] for row in known],
        [each.domain for each in differences.domains],
        np.minimum(np.abs(sizes[known]) / _DARKEST, 1.0),
        [
            ["" if np.isnan(s) else f"{s:+.1f}".replace("-", "−") for s in row]
            for row in sizes[known]
        ],
        column_axis="training domain, the closest first",
    )
    about = (
        "Difference of the means in standard deviations; + is more here. 0.2 is small, 0.8 large."
    )
    return Figure("statistics", "Images here against each training domain", about, (panel,))


def _domains_table(differences: Differences) -> PageTable:
    found = {each.domain: each.auc for each in differences.domains}
    rows = tuple(
        page_row(name, parts.number(auc, ".2f"))
        for name, auc in (*found.items(), ("all together", differences.auc))
    )
    notes = (
        f"AUC of a classifier on {differences.measured_by}, cross-validated: 0.5 where new images "
        "cannot be told from this domain's, 1 where they always can.",
    )
    return PageTable("How well they can be told apart", ("training domain", "AUC"), rows, notes)


def _outliers_figure(found: FileForecast) -> Figure:
    title = f"The {len(found.outliers)} images least like validation images"
    about = "The model's prediction, and the distance to the nearest validation images: 1 is usual."
    images = [
        picture(
            each.thumbnail,
            f"{each.prediction} · {each.distance:.1f}",
            f"{each.file}: predicted {each.prediction} with {percent(each.confidence)} confidence",
        )
        for each in found.outliers
    ]
    return Figure("outliers", title, about, (image_sheet("", images),), wide=True)


def _classes_figure(made: Forecast) -> Figure:
    rows: list[ChartRow] = []
    for each in made.shares_by_shift[:_MOST_CLASSES]:
        here = Mark("predicted here", 100 * each.predicted)
        there = Mark("in training", 100 * each.training, look="hollow")
        rows.append(ChartRow(each.name, 3, (here, there), percent(each.predicted)))
    highest = max(max(each.predicted, each.training) for each in made.shares)
    axis = Axis(0, max(10.0, 110 * highest), "share, %")
    about = "Filled: share of the predictions here; hollow: share of the validation images' labels."
    legend = Key("predicted here", 3, "dot"), Key("in training", 3, "hollow")
    return Figure("classes", "Predictions by class", about, (row_chart("", rows, axis),), legend)
