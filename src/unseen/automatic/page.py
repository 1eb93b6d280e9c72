"""The answer as one web page: no script, style, font or image is fetched from anywhere."""

from collections.abc import Iterator
from pathlib import Path

from unseen.automatic.answer import Answer, percent, short_name
from unseen.reports.figures.charts import Axis, ChartRow, Mark, row_chart
from unseen.reports.figures.figure import Figure
from unseen.reports.figures.grids import confusion_map, image_sheet
from unseen.reports.figures.svg import Key
from unseen.reports.page.parts import (
    Fold,
    PageCell,
    PageTable,
    Section,
    page_row,
    render_page,
    write_whole,
)
from unseen.reports.page.pictures import mistakes

_MOST_PICTURES = 14
_TEMPLATE = Path(__file__).with_name("answer.html")


def write_page(answer: Answer, path: Path) -> None:
    """Writes the page of an answer."""
    sections = (_places(answer), _candidates(answer), _classes(answer), _next(answer))
    content = {
        "title": answer.run.result.dataset,
        "headline": answer.headline,
        "sentences": answer.sentences,
        "limits": answer.limits,
        "sections": sections,
    }
    write_whole(path, render_page(_TEMPLATE, content))


def _places(answer: Answer) -> Section:
    found, plain = answer.expectation, answer.plain
    rows = []
    for place, value in sorted(found.by_place.items(), key=lambda each: each[1]):
        marks = [Mark("the choice", 100 * value)]
        if plain is not None:
            marks.append(Mark("plain training", 100 * plain.by_place[place], look="hollow"))
        rows.append(ChartRow(short_name(place), 1, tuple(marks), percent(value)))
    half = 50 * (found.high - found.low)
    new = Mark("expected", 50 * (found.high + found.low), half, "hollow")
    rows.append(ChartRow("a new place", 0, (new,), percent(found.mean)))
    figure = Figure(
        "places",
        "Each place, by models that never saw it",
        "Filled: what was chosen; hollow: plain training. Below: the interval for a new place, "
        "which should hold the truth four times out of five.",
        (row_chart("", rows, Axis(0, 100, f"{answer.measure}, %")),),
        legend=(Key("the choice", 1, "dot"), Key("plain training", 1, "hollow")),
    )
    return Section("places", "Places", answer.kind_text, (figure,))


def _candidates(answer: Answer) -> Section:
    places = list(answer.expectation.by_place)
    rows = []
    for tried in sorted(answer.tried, key=lambda each: -each.mean):
        chosen = tried.row == answer.compared
        cells = [PageCell(tried.row[0], tried.row[0], best=chosen), PageCell(*_count(tried.row[1]))]
        for value in (tried.mean, *(tried.by_place.get(place) for place in places)):
            text = PageCell("–") if value is None else PageCell(f"{100 * value:.1f}", value)
            cells.append(text._replace(best=chosen and value == tried.mean))
        rows.append(page_row(*cells))
    header = ("candidate", "steps", "mean", *map(short_name, places))
    notes = "Each number is from a model that was trained without the place in its column."
    if answer.expectation.kind == "nested":
        notes += " In the expectation above, what stands for a place was chosen without it."
    table = PageTable("What was tried", header, tuple(rows), (notes,))
    return Section("candidates", "Candidates", answer.choice_text, (table,))


def _count(steps: int) -> tuple[str, float]:
    return f"{steps:,}", float(steps)


def _classes(answer: Answer) -> Section:
    classes, confusion = answer.run.classes, answer.confusion
    about = "Share of each class (row) that is taken for another (column), in percent."
    drawn = confusion_map("", confusion, classes)
    figure = Figure("classes", "Confusions on places that were left out", about, (drawn,))
    lead = "All places together, each answered by a model that never saw it."
    return Section("classes", "Classes", lead, (figure, *_mistakes(answer)))


def _mistakes(answer: Answer) -> Iterator[Figure]:
    """Yields pictures of the two classes that are confused most, and where the models looked."""
    true, predicted = answer.most_confused
    names = answer.run.classes
    found = [each for run in answer.behind for each in mistakes(run.folder, names, true, predicted)]
    if found:
        about = "The most confident of these mistakes; below each image: where the model looked."
        title = f"{names[true]} taken for {names[predicted]}"
        sheet = image_sheet("", found[:_MOST_PICTURES])
        yield Figure("confused", title, about, (sheet,), wide=True)


def _next(answer: Answer) -> Section:
    parts = tuple(
        Fold(title, code=command, open=True) for title, command in answer.commands.items()
    )
    return Section("next", "Next", "The model is a run folder like any other.", parts)
