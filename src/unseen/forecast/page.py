"""A forecast as one web page: no script, style, font or image is fetched from anywhere."""

from pathlib import Path

import numpy as np

from unseen.forecast.differences import Differences
from unseen.forecast.estimate import NAMES, AccuracyEstimate
from unseen.forecast.forecast import FileForecast, Forecast, Outlier
from unseen.forecast.profile import MEANINGS, STATISTICS
from unseen.forecast.text import about_closest, about_interval, about_references, percent
from unseen.reports.figures.charts import Axis, ChartRow, Mark, row_chart
from unseen.reports.figures.figure import Figure
from unseen.reports.figures.grids import heat_map, image_sheet, picture
from unseen.reports.figures.svg import Key, Picture
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
_MOST_CLASSES = 40


def write_page(found: FileForecast, path: Path) -> None:
    write_whole(path, _render(found))


def _render(found: FileForecast) -> str:
    """The page as text."""
    made = found.forecast
    sections = (
        _estimates_section(made),
        _differences_section(made),
        _outliers_section(found),
        _classes_section(made),
    )
    content = {
        "text": made.text,
        "guess": percent(made.accuracy),
        "likely": made.interval,
        "model": found.model,
        "images": made.images,
        "source": percent(made.source_accuracy),
        "references": about_references(made),
        "interval": about_interval(),
        "warnings": made.warnings,
        "advice_list": made.advice,
        "sections": [section for section in sections if section is not None],
    }
    return render_page(_TEMPLATE, content)


def _estimates_section(made: Forecast) -> Section:
    mark = Mark("forecast", 100 * made.accuracy, 100 * made.half_width)
    rows = [
        ChartRow("forecast", 1, (mark,), percent(made.accuracy)),
        ChartRow(
            "validation", 0, (Mark("validation images", 100 * made.source_accuracy),),
            percent(made.source_accuracy),
        ),
    ]  # fmt: skip
    rows += [_dots(each) for each in made.estimates if each.accuracy is not None]
    figure = Figure(
        "estimates",
        "Forecast and single estimates",
        "The bar is the interval. Hollow: an estimate as it is; filled: calibrated on references.",
        (row_chart("", rows, Axis(0, 100, "accuracy, %")),),
    )
    parts: list[Part] = [figure, _estimates_table(made)]
    if made.references:
        parts.append(Fold("References", (_references_table(made),)))
    low, high = made.spread
    lead = f"Single estimates lie between {percent(low)} and {percent(high)}."
    if made.references:
        lead += " Each counts the more, the closer it was on the references."
    return Section("estimates", "Estimates", lead, tuple(parts))


def _dots(each: AccuracyEstimate) -> ChartRow:
    assert each.accuracy is not None
    marks = [Mark("calibrated", 100 * each.accuracy)]
    if each.plain is not None and each.error is not None:
        marks.append(Mark("as it is", 100 * each.plain, look="hollow"))
    return ChartRow(each.name, 2, tuple(marks), percent(each.accuracy))


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


def _differences_section(made: Forecast) -> Section | None:
    differences = made.differences
    if differences is None:
        return None
    parts: list[Part] = [_domains_table(differences)]
    if differences.closest.statistics:
        parts.insert(0, _statistics_figure(differences))
    explained = "; ".join(f"{name}: {meaning}" for name, meaning in MEANINGS.items())
    parts.append(Fold("What the statistics mean", (f"{explained}.",)))
    return Section("different", "What is different", about_closest(differences), tuple(parts))


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
    rows = [("all together", differences.auc)]
    rows[:0] = [(each.domain, each.auc) for each in differences.domains]
    cells = tuple(
        page_row(name, None if auc is None else PageCell(f"{auc:.2f}", auc)) for name, auc in rows
    )
    notes = (
        f"AUC of a classifier on {differences.measured_by}, cross-validated: 0.5 where new images "
        "cannot be told from this domain's, 1 where they always can.",
    )
    return PageTable("How well they can be told apart", ("training domain", "AUC"), cells, notes)


def _outliers_section(found: FileForecast) -> Section | None:
    if not found.outliers or found.forecast.differences is None:
        return None
    sheet = image_sheet("", [_picture(each) for each in found.outliers])
    by = found.forecast.differences.measured_by
    figure = Figure(
        "outliers",
        f"The {len(found.outliers)} images least like validation images",
        "The model's prediction, and the distance to the nearest validation images: 1 is usual.",
        (sheet,),
        wide=True,
    )
    lead = f"Furthest from all validation images by {by}. Look at them: are they what you expect?"
    return Section("outliers", "Outliers", lead, (figure,))


def _picture(each: Outlier) -> Picture:
    caption = f"{each.prediction} · {each.distance:.1f}"
    told = f"{each.file}: called {each.prediction} with {each.confidence:.0%} confidence"
    return picture(each.thumbnail, caption, told)


def _classes_section(made: Forecast) -> Section:
    shares = sorted(made.shares, key=lambda each: -abs(each.predicted - each.training))
    rows = tuple(
        ChartRow(
            each.name, 3,
            (Mark("predictions here", 100 * each.predicted),
             Mark("in training", 100 * each.training, look="hollow")),
            percent(each.predicted),
        )
        for each in shares[:_MOST_CLASSES]
    )  # fmt: skip
    highest = max(max(each.predicted, each.training) for each in shares)
    figure = Figure(
        "classes",
        "Predictions by class",
        "Filled: share of the predictions here; hollow: share of the validation images' labels.",
        (row_chart("", rows, Axis(0, max(10.0, 110 * highest), "share, %")),),
        legend=(Key("predictions here", 3, "dot"), Key("in training", 3, "hollow")),
    )
    lead = "Shares that differ much mean other classes at this place, or a model that prefers some."
    return Section("classes", "Classes", lead, (figure,))
