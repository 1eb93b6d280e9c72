"""What not to conclude from a model's numbers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from unseen.records.result import DomainResult, RunResult

Content = Mapping[str, Any]

_MUCH = 0.1
"""A calibration error worth a warning."""


def limits(result: RunResult, data: Content) -> list[str]:
    """One sentence each, from the content of result.json and data.json."""
    return [*_of_the_numbers(result), *_of_the_model(result, data), *result.remarks]


def _of_the_numbers(result: RunResult) -> Iterator[str]:
    origin = f"one run with one seed ({result.seed}); another seed gives"
    if result.merged is not None:
        origin = f"one model merged from {len(result.merged.runs)} runs; others would give"
    yield (
        f"All numbers come from {origin} other "
        "numbers, and the difference is often larger than that between methods."
    )
    unseen = ", ".join(result.unseen_domains)
    if result.selection == "oracle":
        yield (
            "The checkpoint was chosen by the labels of the unseen domain (rule oracle): its "
            "out-of-domain accuracy is an upper bound, not what to expect."
        )
    if result.trained_on_unseen:
        yield (
            f"It was trained on labelled images of {unseen}, too: its accuracy there is an upper "
            "bound for models without such labels, and says nothing about domains that it has not "
            "seen."
        )
    elif result.setting == "adaptation":
        yield (
            f"Training saw unlabelled images of {unseen}: its accuracy there says nothing about "
            "domains that it has not seen at all."
        )
    elif unseen:
        yield (
            f"Of all domains that it never saw, it was tested on {unseen} only; others may be "
            "harder."
        )
    else:
        yield "No domain was held out, so nothing is known about domains it was not trained on."
    for domain, measured in result.view(result.selection, "out_of_domain").items():
        yield from _of_one_domain(domain, measured, result.classes)


def _of_one_domain(domain: str, measured: DomainResult, classes: Sequence[str]) -> Iterator[str]:
    recall = measured.recall
    worst = int(np.nanargmin(recall))
    yield (
        f"On {domain} it is weakest on {classes[worst]}: {recall[worst]:.1%} of these were "
        "recognised."
    )
    after = measured.calibrated_error
    error = measured.calibration_error if after is None else after
    if error > _MUCH:
        yield (
            f"On {domain} its confidence is off by {error:.1%} on average: "
            "do not read its probabilities there as chances of being right."
        )


def _of_the_model(result: RunResult, data: Content) -> Iterator[str]:
    yield (
        f"It always answers with one of its {len(result.classes)} classes, also for a picture "
        "that shows none of them."
    )
    size = data["image_size"]
    yield f"It sees {size} x {size} pixels, whatever the picture's size and shape."
    if data["left_out"]:
        yield f"{len(data['left_out'])} unreadable images of the dataset were left out."
