"""A forecast in the terminal."""

from rich.console import Console
from rich.table import Table

from unseen.forecast.estimate import NAMES
from unseen.forecast.forecast import FileForecast, Forecast
from unseen.reports.forecast.words import (
    about_closest,
    about_interval,
    about_references,
    headline,
    percent,
)

_MOST_STATISTICS = 6
_MOST_CLASSES = 12


def print_forecast(found: FileForecast, console: Console) -> None:
    made = found.forecast

    def say(text: str = "", style: str | None = None) -> None:
        console.print(text, style=style, markup=False, highlight=False)

    say(headline(made), "bold")
    say(f"{about_references(made)} {about_interval()}")
    for warning in made.warnings:
        say(f"! {warning}", "yellow")
    say()
    console.print(_estimates(made))
    console.print(_shares(made))
    if made.differences is not None:
        say(about_closest(made.differences))
        if made.differences.closest.statistics:
            console.print(_statistics(made))
        strange = ", ".join(str(each.file) for each in found.outliers[:3])
        say(f"The images least like validation images: {strange} (all with -o PAGE.html)")
    say()
    say("What to do", "bold")
    for number, advice in enumerate(made.advice, start=1):
        say(f"{number}. {advice.action}. {advice.reason} (docs: {advice.page})")


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="", box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    return table


def _estimates(made: Forecast) -> Table:
    low, high = made.spread
    title = f"Single estimates, from {percent(low)} to {percent(high)}"
    table = _table(title, "estimate", "as it is", "calibrated", "weight", "usual error")
    for each in made.estimates:
        cells = (each.plain, each.accuracy, each.weight, each.error)
        table.add_row(NAMES[each.name], *map(percent, cells))
    return table


def _shares(made: Forecast) -> Table:
    table = _table("Class shares", "class", "answers here", "in training")
    by_shift = sorted(made.shares, key=lambda each: -abs(each.predicted - each.training))
    for each in by_shift[:_MOST_CLASSES]:
        table.add_row(each.name, percent(each.predicted), percent(each.training))
    return table


def _statistics(made: Forecast) -> Table:
    assert made.differences is not None
    closest = made.differences.closest
    table = _table(
        f"Pictures here and in {closest.domain}", "statistic", "here", closest.domain, "difference"
    )
    for each in closest.statistics[:_MOST_STATISTICS]:
        table.add_row(
            each.statistic, f"{each.new:.3g}", f"{each.domain:.3g}", f"{each.size:+.1f} sd"
        )
    return table
