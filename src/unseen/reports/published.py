"""Numbers that others have published, to lay beside own results and never to mix with them."""

import csv
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).with_name("published.csv")
CAUTION = (
    "Published by others under their own protocols (splits, image size, augmentation, search): "
    "a reference, not a comparison. Nothing here was measured by unseen."
)


class PublishedNumber(NamedTuple):
    """One number of one source, in percent; the mean over the domains, each held out in turn."""

    method: str
    """Its name here, or that of the source where there is no such method."""
    backbone: str
    dataset: str
    accuracy: float
    standard_error: float | None
    rule: str
    """The selection rule; empty where the source does not say."""
    source: str

    @property
    def text(self) -> str:
        error = "" if self.standard_error is None else f" ± {self.standard_error:.1f}"
        return f"{self.accuracy:.1f}{error}"


@cache
def published_numbers() -> tuple[PublishedNumber, ...]:
    with FILE.open(encoding="utf-8", newline="") as file:
        return tuple(_number(record) for record in csv.DictReader(file))


def published_on(dataset: str) -> list[PublishedNumber]:
    """Returns the numbers on one dataset, highest first within a source and rule."""
    own = [each for each in published_numbers() if each.dataset == dataset]
    sources = list(dict.fromkeys((each.source, each.rule) for each in own))
    return sorted(own, key=lambda each: (sources.index((each.source, each.rule)), -each.accuracy))


def by_source(
    numbers: Iterable[PublishedNumber],
) -> dict[tuple[str, str], list[PublishedNumber]]:
    """Returns numbers by source and selection rule, in their order."""
    found: dict[tuple[str, str], list[PublishedNumber]] = {}
    for each in numbers:
        found.setdefault((each.source, each.rule), []).append(each)
    return found


def _number(record: dict[str, str]) -> PublishedNumber:
    error = record.pop("standard_error")
    accuracy = float(record.pop("accuracy"))
    return PublishedNumber(
        **record, accuracy=accuracy, standard_error=float(error) if error else None
    )
