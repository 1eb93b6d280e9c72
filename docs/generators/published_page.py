"""docs/published.md and docs/published.csv: numbers of papers and other toolkits, with sources."""

from pathlib import Path

from unseen.reports.page import results
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
    for (source, rule), numbers in results.by_source().items():
        if rule not in _SHOWN:
            continue
        name = source.partition(",")[0]
        chosen = f"rule {rule}" if rule else "selection rule not said"
        sections.append(f"## {name}, {chosen}\n\n{source}.\n\n{_table(numbers)}\n")
    return {
        docs / "published.md": "\n".join(sections),
        docs / "published.csv": Path(results.__file__)
        .with_name("published.csv")
        .read_text(encoding="utf-8"),
    }


def _table(numbers: list[results.PublishedNumber]) -> str:
    """Methods (and backbones, where one has several) as rows, datasets as columns."""
    datasets = list(dict.fromkeys(each.dataset for each in numbers))
    several = len({(each.method, each.dataset) for each in numbers}) < len(numbers)
    rows: dict[str, dict[str, str]] = {}
    for each in numbers:
        name = f"{each.method} ({each.backbone})" if several else each.method
        error = "" if each.standard_error is None else f" ± {each.standard_error:.1f}"
        rows.setdefault(escaped(name), {})[each.dataset] = f"{each.accuracy:.1f}{error}"
    cells = [[name, *(row.get(d, "") for d in datasets)] for name, row in rows.items()]
    return aligned_table(["method", *map(escaped, datasets)], cells)
