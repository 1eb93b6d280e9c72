"""What is sent of a finished run: final numbers, the table of its views, confusion matrices."""

from collections.abc import Iterator, Sequence
from statistics import fmean

import numpy as np

from unseen.reports.confusions import most_confused, shares
from unseen.reports.figures.grids import HeatPanel, number_texts
from unseen.reports.figures.svg import Drawing
from unseen.results.folder import safe_name
from unseen.results.result import RunResult
from unseen.settings.experiment import METRICS

TABLE_HEADER = (
    *("view", "domain", *METRICS.values()),
    *("largest class", "calibration error", "images"),
)

_CELL, _LABELS, _FEWEST = 34, 110, 8  # pixels; and the number of columns that a title needs


def final_numbers(result: RunResult) -> dict[str, float]:
    """By view and domain, under the run's own selection rule: accuracy, and the metric that its
    checkpoint was chosen by."""
    found: dict[str, float] = {}
    for view, domains in result.under(result.selection).views.items():
        if not domains:
            continue
        for domain, each in domains.items():
            found[f"final/{view}/{domain}/ece"] = each.calibration_error
            if each.calibrated_error is not None:
                found[f"final/{view}/{domain}/ece after scaling"] = each.calibrated_error
        for metric in dict.fromkeys(("accuracy", result.metric)):
            name = METRICS[metric]
            values = {domain: each.measure(metric) for domain, each in domains.items()}
            for domain, value in values.items():
                found[f"final/{view}/{domain}/{name}"] = value
            found[f"final/{view}/mean {name}"] = fmean(values.values())
            found[f"final/{view}/worst {name}"] = min(values.values())
    return found


def final_rows(result: RunResult) -> list[tuple[str, ...]]:
    """Under `TABLE_HEADER`."""
    return [
        (
            view,
            domain,
            *(f"{each.measure(metric):.1%}" for metric in METRICS),
            f"{each.largest_class_share:.1%}",
            f"{each.calibration_error:.1%}",
            str(each.images),
        )
        for view, domains in result.under(result.selection).views.items()
        for domain, each in domains.items()
    ]


def confusion_drawings(result: RunResult) -> Iterator[tuple[str, Drawing]]:
    """A matrix for each unseen domain."""
    for domain, each in result.view(result.selection, "out_of_domain").items():
        confusion = each.confusion
        drawing = draw_confusion(confusion, result.names_of(confusion))
        yield f"confusion-{safe_name(domain)}", drawing


def draw_confusion(counts: np.ndarray, classes: Sequence[str]) -> Drawing:
    """Counts, the darker, the larger their share of the true class. Of many classes those that
    are confused most: a picture of all would be too large to send and to read."""
    chosen = most_confused(counts)
    names = tuple(str(classes[number]) for number in chosen)
    shown = np.ix_(chosen, chosen)
    texts = number_texts(counts[shown], "d")
    predicted = "predicted"
    if len(chosen) < len(classes):
        predicted = f"predicted ({len(chosen)} most confused of {len(classes)} classes)"
    panel = HeatPanel("", names, names, shares(counts)[shown], texts, "true", predicted)
    return panel.draw(width=_LABELS + _CELL * max(len(names), _FEWEST))
