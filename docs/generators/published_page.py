"""docs/published.md and docs/published.csv: numbers of papers and other toolkits, with sources."""

from pathlib import Path

from unseen.reports.page.published import FILE, PublishedNumber, by_source
from unseen.reports.text import aligned_table, escaped

_INTRODUCTION = """# Published numbers

Numbers that papers and other toolkits report: mean accuracy in percent over the domains of a
dataset, each held out in turn. They come from protocols of their own (splits, image size,
augmentation, search), so they are a reference and not a comparison; nothing on this page was
measured by `unseen`, and they are never mixed with its [own results](results.md). The page that
`unseen report` writes shows those of its dataset in a section of their own. As a file:
[published.csv](published.csv). A method has the name that it has here; `aggregate` is ERM.
"""


def published_pages(docs: Path) -> dict[Path, str]:
    sections = [_INTRODUCTION]
    for (source, rule), numbers in by_source().items():
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
