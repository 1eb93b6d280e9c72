"""What others have published on the same dataset, in a table of its own."""

from unseen.reports.page.parts import Fold, Note, PageCell, PageRow, PageTable, Section
from unseen.reports.page.studies import Study
from unseen.reports.published import CAUTION, PublishedNumber, by_source, published_on


def published_section(study: Study) -> Section | None:
    """Only beside results with one domain held out and nothing of it seen, which these are."""
    if study.setting != "generalization" or study.number_unseen != 1:
        return None
    sources = by_source(published_on(study.dataset))
    if not sources:
        return None
    tables = tuple(_table(*key, numbers) for key, numbers in sources.items())
    return Section(
        "published",
        "Published numbers",
        "What papers and other toolkits report on this dataset.",
        (Note(CAUTION), Fold("Tables, by source and selection rule", tables)),
    )


def _table(source: str, rule: str, numbers: list[PublishedNumber]) -> PageTable:
    rows = tuple(
        PageRow(
            (
                PageCell(each.method, each.method),
                PageCell(each.backbone, each.backbone),
                PageCell(each.text, each.accuracy),
            )
        )
        for each in numbers
    )
    chosen = f"chosen by rule {rule}" if rule else "selection rule not said"
    header = ("method", "backbone", "out of domain, published")
    return PageTable(f"Published: {chosen}", header, rows, (source,))
