"""A forecast as sentences and tables for the terminal; the page has the same sentences."""

from rich.console import Console
from rich.table import Table

from unseen.forecast.differences import Differences
from unseen.forecast.estimate import LEVEL, NAMES
from unseen.forecast.forecast import FileForecast, Forecast
from unseen.reports.formats import MISSING

_MOST_STATISTICS = 6
_MOST_CLASSES = 12


def percent(value: float | None) -> str:
    return MISSING if value is None else f"{100 * value:.0f} %"


def headline(made: Forecast) -> str:
    return (
        f"Best guess: {percent(made.accuracy)} of the predictions on these {made.images} images "
        f"are right, {made.interval} ({percent(made.source_accuracy)} on validation images)"
    )


def about_references(made: Forecast) -> str:
    if not made.references:
        return "From the model's own validation images; no references."
    domains = list(dict.fromkeys(each.domain for each in made.references))
    runs = len({each.run for each in made.references})
    return (
        f"Calibrated on {runs} run{'s' if runs > 1 else ''} that left out {', '.join(domains)}; "
        f"usual error {100 * made.error:.0f} points."
    )


def about_interval() -> str:
    return f"{LEVEL:.0%} of intervals like this one should hold the truth."


def about_closest(differences: Differences) -> str:
    closest = differences.closest
    if closest.auc is None:
        return f"Closest training domain: {closest.domain}. There are too few images to say more."
    return (
        f"Closest training domain: {closest.domain}. A classifier on {differences.measured_by} "
        f"tells these images from it with AUC {closest.auc:.2f}, from all training images with "
        f"AUC {differences.auc:.2f} (0.5: not at all, 1: always)."
    )


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
    table = _table("Class shares", "class", "predictions here", "in training")
    by_shift = sorted(made.shares, key=lambda each: -abs(each.predicted - each.training))
    for each in by_shift[:_MOST_CLASSES]:
        table.add_row(each.name, percent(each.predicted), percent(each.training))
    return table


def _statistics(made: Forecast) -> Table:
    assert made.differences is not None
    closest = made.differences.closest
    table = _table(
        f"Images here and in {closest.domain}", "statistic", "here", closest.domain, "difference"
    )
    for each in closest.statistics[:_MOST_STATISTICS]:
        table.add_row(
            each.statistic, f"{each.new:.3g}", f"{each.domain:.3g}", f"{each.size:+.1f} sd"
        )
    return table
