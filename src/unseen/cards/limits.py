"""What a model's reader should not conclude from its numbers."""

from collections.abc import Iterator, Mapping
from typing import Any

Content = Mapping[str, Any]

_MUCH = 0.1
"""A calibration error worth a warning."""


def limits(result: Content, data: Content) -> list[str]:
    """One sentence each, from the content of result.json and data.json."""
    return [*_of_the_numbers(result), *_of_the_model(result, data), *result["remarks"]]


def _of_the_numbers(result: Content) -> Iterator[str]:
    yield (
        f"All numbers are of one run with one seed ({result['seed']}); another seed gives others, "
        "often by more than methods differ."
    )
    unseen = ", ".join(result["unseen_domains"])
    if result["selection"] == "oracle":
        yield (
            "The checkpoint was chosen by the labels of the unseen domain (rule oracle): its "
            "out-of-domain accuracy is an upper bound, not what to expect."
        )
    if result["setting"] == "adaptation":
        yield (
            f"Training saw unlabelled images of {unseen}: its accuracy there says nothing about "
            "domains of which nothing was seen."
        )
    elif unseen:
        yield (
            f"Of all domains that it never saw, it was tested on {unseen} only; others may be "
            "harder."
        )
    else:
        yield "No domain was held out, so nothing is known about domains it was not trained on."
    views = result["results"][result["selection"]]["views"]
    for domain, summary in views.get("out_of_domain", {}).items():
        yield from _of_one_domain(domain, summary, result["classes"])


def _of_one_domain(domain: str, summary: Content, classes: list[str]) -> Iterator[str]:
    shares = {
        name: row[position] / sum(row)
        for position, (name, row) in enumerate(zip(classes, summary["confusion"], strict=True))
        if sum(row)
    }
    worst = min(shares, key=lambda name: shares[name])
    yield f"On {domain} it is weakest on {worst}: {shares[worst]:.1%} of these were recognised."
    if summary["ece"] > _MUCH:
        yield (
            f"On {domain} its confidence is off by {summary['ece']:.1%} on average: do not read "
            "its probabilities there as chances of being right."
        )


def _of_the_model(result: Content, data: Content) -> Iterator[str]:
    yield (
        f"It always answers with one of its {len(result['classes'])} classes, also for a picture "
        "that shows none of them."
    )
    size = data["image_size"]
    yield f"It sees {size} x {size} pixels, whatever the picture's size and shape."
    if data["left_out"]:
        yield f"{len(data['left_out'])} unreadable images of the dataset were left out."
