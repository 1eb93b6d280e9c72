"""Sentences about a forecast, the same ones in the terminal and on the page."""

from unseen.forecast.differences import Differences
from unseen.forecast.estimate import LEVEL
from unseen.forecast.forecast import Forecast
from unseen.reports.formats import MISSING


def percent(value: float | None) -> str:
    return MISSING if value is None else f"{100 * value:.0f} %"


def headline(made: Forecast) -> str:
    return (
        f"{made.text} of the answers on these {made.images} images will be right "
        f"({percent(made.source_accuracy)} on validation images)"
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
