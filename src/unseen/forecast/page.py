"""A forecast as sentences and tables: on the terminal, and as one web page that fetches nothing."""

from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from unseen.forecast.differences import Differences
from unseen.forecast.estimate import LEVEL, NAMES, percent
from unseen.forecast.forecast import FileForecast, Forecast, Outlier
from unseen.forecast.profile import MEANINGS, STATISTICS
from unseen.reports.figures.charts import Axis, ChartRow, Mark, row_chart
from unseen.reports.figures.figure import Figure
from unseen.reports.figures.grids import heat_map, image_sheet, picture
from unseen.reports.figures.svg import Key
from unseen.reports.page.parts import (
    Fold,
    PageCell,
    PageTable,
    Part,
    Section,
    page_row,
    render_page,
    write_whole,
)

_TEMPLATE = Path(__file__).with_name("forecast.html")
_DARKEST = 3.0
"""The standardised difference that has the full colour."""
_MOST_CLASSES, _CLASSES_ON_TERMINAL = 40, 12
_STATISTICS_ON_TERMINAL = 6
_INTERVALS = f"{percent(LEVEL)} of intervals like this one should hold the truth."


def write_page(found: FileForecast, path: Path) -> None:
    made = found.forecast
    sections = [_estimates_section(found), _classes_section(made)]
    if made.differences is not None:
        sections[1:1] = [_differences_section(made.differences), *_outliers_section(found)]
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
    write_whole(path, render_page(_TEMPLATE, content))


def print_forecast(found: FileForecast, console: Console) -> None:
    made = found.forecast

    def say(text: str = "", style: str | None = None) -> None:
        console.print(text, style=style, markup=False, highlight=False)

    say(
        f"Best guess: {percent(made.accuracy)} of the predictions on these {made.images} images "
        f"are right, {made.interval} ({percent(made.source_accuracy)} on validation images)",
        "bold",
    )
    say(f"{about_references(made)} {_INTERVALS}")
    for warning in made.warnings:
        say(f"! {warning}", "yellow")
    say()
    low, high = made.spread
    title = f"Single estimates, from {percent(low)} to {percent(high)}"
    console.print(_for_terminal(_estimates_table(made), title))
    console.print(_for_terminal(_shares_table(made)))
    if made.differences is not None:
        say(about_closest(made.differences))
        if made.differences.closest.statistics:
            console.print(_for_terminal(_closest_table(made.differences)))
        strange = ", ".join(str(each.file) for each in found.outliers[:3])
        say(f"The images least like validation images: {strange} (all with -o PAGE.html)")
    say()
    say("What to do", "bold")
    for number, advice in enumerate(made.advice, start=1):
        say(f"{number}. {advice.action}. {advice.reason} ({advice.command})")


def _for_terminal(table: PageTable, title: str = "") -> Table:
    shown = Table(
        title=title or table.title, title_justify="left", title_style="", box=None, pad_edge=False
    )
    for number, column in enumerate(table.header):
        shown.add_column(column, justify="left" if number == 0 else "right")
    for row in table.rows:
        shown.add_row(*(cell.text for cell in row.cells))
    return shown


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


def _estimates_section(found: FileForecast) -> Section:
    made = found.forecast
    parts: list[Part] = [found.plot(), _estimates_table(made)]
    lead = f"Single estimates lie between {' and '.join(map(percent, made.spread))}."
    if made.references:
        parts.append(Fold("References", (_references_table(made),)))
        lead += " Each counts the more, the closer it was on the references."
    return Section("estimates", "Estimates", lead, tuple(parts))


def _share(value: float | None) -> PageCell | None:
    return None if value is None else PageCell(percent(value), value)


def _estimates_table(made: Forecast) -> PageTable:
    header = ("estimate", "as it is", "calibrated", "weight", "usual error")
    rows = tuple(
        page_row(
            NAMES[each.name], *map(_share, (each.plain, each.accuracy, each.weight, each.error))
        )
        for each in made.estimates
    )
    notes = ("Usual error: on each reference, calibrated on those that left out other domains.",)
    return PageTable("Estimates", header, rows, notes if made.references else ())


def _references_table(made: Forecast) -> PageTable:
    rows = tuple(
        page_row(each.domain, _share(each.accuracy), _share(each.source_accuracy), each.run)
        for each in made.references
    )
    header = ("domain left out", "accuracy there", "on validation images", "run")
    return PageTable("References", header, rows)


def _differences_section(differences: Differences) -> Section:
    parts: list[Part] = [_domains_table(differences)]
    if differences.closest.statistics:
        parts.insert(0, _statistics_figure(differences))
    explained = "; ".join(f"{name}: {meaning}" for name, meaning in MEANINGS.items())
    parts.append(Fold("What the statistics mean", (f"{explained}.",)))
    return Section("different", "What is different", about_closest(differences), tuple(parts))


def _closest_table(differences: Differences) -> PageTable:
    closest = differences.closest
    rows = tuple(
        page_row(
            each.statistic, f"{each.new:.3g}", f"{each.domain:.3g}", f"{each.size:+.1f} sd"
        )
        for each in closest.statistics[:_STATISTICS_ON_TERMINAL]
    )  # fmt: skip
    header = ("statistic", "here", closest.domain, "difference")
    return PageTable(f"Images here and in {closest.domain}", header, rows)


def _statistics_figure(differences: Differences) -> Figure:
    """The statistics that differ most from the closest domain first."""
    order = [each.statistic for each in differences.closest.statistics]
    names = [*order, *(name for name in STATISTICS if name not in order)]
    sizes = np.full((len(names), len(differences.domains)), np.nan)
    texts = [[""] * len(differences.domains) for _ in names]
    for column, domain in enumerate(differences.domains):
        for each in domain.statistics:
            row = names.index(each.statistic)
            sizes[row, column] = min(abs(each.size) / _DARKEST, 1.0)
            texts[row][column] = f"{each.size:+.1f}".replace("-", "−")
    known = np.flatnonzero(np.isfinite(sizes).any(axis=1))
    panel = heat_map(
        "",
        [names[row] for row in known],
        [each.domain for each in differences.domains],
        sizes[known],
        [texts[row] for row in known],
        column_axis="training domain, the closest first",
    )
    return Figure(
        "statistics",
        "Images here against each training domain",
        "Difference of the means in standard deviations; + is more here. 0.2 is small, 0.8 large.",
        (panel,),
    )


def _domains_table(differences: Differences) -> PageTable:
    rows: list[tuple[str, Any]] = [(each.domain, each.auc) for each in differences.domains]
    cells = tuple(
        page_row(name, None if auc is None else PageCell(f"{auc:.2f}", auc))
        for name, auc in (*rows, ("all together", differences.auc))
    )
    notes = (
        f"AUC of a classifier on {differences.measured_by}, cross-validated: 0.5 where new images "
        "cannot be told from this domain's, 1 where they always can.",
    )
    return PageTable("How well they can be told apart", ("training domain", "AUC"), cells, notes)


def _outliers_section(found: FileForecast) -> list[Section]:
    if not found.outliers or found.forecast.differences is None:
        return []
    figure = Figure(
        "outliers",
        f"The {len(found.outliers)} images least like validation images",
        "The model's prediction, and the distance to the nearest validation images: 1 is usual.",
        (image_sheet("", [picture(each.thumbnail, *_captions(each)) for each in found.outliers]),),
        wide=True,
    )
    by = found.forecast.differences.measured_by
    lead = f"Furthest from all validation images by {by}. Look at them: are they what you expect?"
    return [Section("outliers", "Outliers", lead, (figure,))]


def _captions(each: Outlier) -> tuple[str, str]:
    about = f"{each.file}: predicted {each.prediction} with {percent(each.confidence)} confidence"
    return f"{each.prediction} · {each.distance:.1f}", about


def _shares_table(made: Forecast) -> PageTable:
    rows = tuple(
        page_row(each.name, _share(each.predicted), _share(each.training))
        for each in made.shares_by_shift[:_CLASSES_ON_TERMINAL]
    )
    return PageTable("Class shares", ("class", "predicted here", "in training"), rows)


def _classes_section(made: Forecast) -> Section:
    rows = tuple(
        ChartRow(
            each.name, 3,
            (Mark("predicted here", 100 * each.predicted),
             Mark("in training", 100 * each.training, look="hollow")),
            percent(each.predicted),
        )
        for each in made.shares_by_shift[:_MOST_CLASSES]
    )  # fmt: skip
    highest = max(max(each.predicted, each.training) for each in made.shares)
    figure = Figure(
        "classes",
        "Predictions by class",
        "Filled: share of the predictions here; hollow: share of the validation images' labels.",
        (row_chart("", rows, Axis(0, max(10.0, 110 * highest), "share, %")),),
        legend=(Key("predicted here", 3, "dot"), Key("in training", 3, "hollow")),
    )
    lead = "Shares that differ much mean other classes at this place, or a model that prefers some."
    return Section("classes", "Classes", lead, (figure,))
