"""docs/published.md and docs/published.csv: numbers of papers and other toolkits, with sources."""

from pathlib import Path

from unseen.reports.page.results import FILE, PublishedNumber, by_source
from unseen.reports.text import aligned_table, escaped

_INTRODUCTION = """# Published numbers

What papers and other toolkits report: mean accuracy in percent over the domains of a dataset, each
left out in turn. Splits, image sizes, augmentation and search are their own, so these numbers are a
reference and not a comparison; none was measured by `unseen` ([own results](results.md)).
`unseen report` shows those of its dataset. [published.csv](published.csv) has all of them, with
those of DomainBed's other selection rules. Methods have the names they have here; `aggregate` is
ERM.
"""
_SHOWN = ("source", "")
"""Selection rules whose numbers the page shows."""


def published_pages(docs: Path) -> dict[Path, str]:
    sections = [_INTRODUCTION]
    for (source, rule), numbers in by_source().items():
        if rule not in _SHOWN:
            continue
        name = source.partition(",")[0]
        chosen = f"rule {rule}" if rule else "selection rule not said"
        sections.append(f"## {name}, {chosen}\n\n{source}.\n\n{_table(numbers)}\n")
    return {
        docs / "published.md": "\n".join(sections),
        docs / "published.csv": FILE.read_text(encoding="utf-8"),
    }


def _table(numbers: list[PublishedNumber]) -> str:
    """Methods (and backbones, where one has several) as rows, datasets as columns."""
    datasets = list(dict.fromkeys(each.dataset for each in numbers))
    several = len({(each.method, each.dataset) for each in numbers}) < len(numbers)
    rows: dict[str, dict[str, str]] = {}
    for each in numbers:
        name = f"{each.method} ({each.backbone})" if several else each.method
        rows.setdefault(escaped(name), {})[each.dataset] = each.text
    cells = [[name, *(row.get(d, "") for d in datasets)] for name, row in rows.items()]
    return aligned_table(["method", *map(escaped, datasets)], cells)
