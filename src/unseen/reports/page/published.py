"""Numbers that others have published, to lay beside own results and never to mix with them."""

import csv
from functools import cache
from pathlib import Path
from typing import NamedTuple

from unseen.reports.page.parts import Fold, PageCell, PageTable, Section, page_row
from unseen.reports.page.studies import Study

FILE = Path(__file__).with_name("published.csv")


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
        return tuple(_number(**record) for record in csv.DictReader(file))


def _number(accuracy: str, standard_error: str, **about: str) -> PublishedNumber:
    error = float(standard_error) if standard_error else None
    return PublishedNumber(accuracy=float(accuracy), standard_error=error, **about)


def by_source(dataset: str | None = None) -> dict[tuple[str, str], list[PublishedNumber]]:
    """Returns the numbers (on one dataset) by source and selection rule, in the order of the
    file."""
    found: dict[tuple[str, str], list[PublishedNumber]] = {}
    for each in published_numbers():
        if dataset in (each.dataset, None):
            found.setdefault((each.source, each.rule), []).append(each)
    return found


def published_section(study: Study) -> Section | None:
    """Returns what others have published on the same dataset. It stands only beside results of the
    same kind: one domain held out, and nothing of it seen."""
    if study.setting != "generalization" or study.number_unseen != 1:
        return None
    tables = []
    for (source, rule), numbers in by_source(study.dataset).items():
        rows = tuple(
            page_row(each.method, each.backbone, PageCell(each.text, each.accuracy))
            for each in sorted(numbers, key=lambda each: -each.accuracy)
        )
        chosen = f"chosen by rule {rule}" if rule else "selection rule not said"
        header = ("method", "backbone", "out of domain, published")
        tables.append(PageTable(f"Published: {chosen}", header, rows, (source,)))
    if not tables:
        return None
    caution = (
        "Published by others under their own protocols (splits, image size, augmentation, search): "
        "a reference, not a comparison. Nothing here was measured by unseen."
    )
    return Section(
        "published",
        "Published numbers",
        "What papers and other toolkits report on this dataset.",
        (caution, Fold("Tables, by source and selection rule", tuple(tables))),
    )
