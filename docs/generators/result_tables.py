"""Results in the README and on the pages, all from docs/results/NAME.csv: the table
`out_of_domain.csv` that `unseen compare` or `unseen sweep` writes.

A page says where a table stands, and may name the rows and the columns that it wants:

<!-- results digits: aggregate, dmg | overall -->
<!-- end of results -->

The list of experiments in docs/results.md comes from the pages in docs/lab.
"""

import csv
import re
from collections.abc import Iterable
from pathlib import Path

from unseen.reports.text import aligned_table

_BLOCK = re.compile(
    r"(?P<start><!-- results (?P<name>\w+)"
    r"(?:: (?P<rows>[^>|]*?))?(?: \| (?P<columns>[^>]*?))? -->\n)"
    r".*?(?P<end><!-- end of results -->)",
    flags=re.DOTALL,
)

_LAB_BOOK = re.compile(r"(<!-- lab book -->\n).*?(<!-- end of lab book -->)", flags=re.DOTALL)

Numbers = dict[str, dict[str, str]]
"""By row and column, as text: 90.8 ± 0.7."""


def result_pages(root: Path) -> dict[Path, str]:
    """Returns README and pages, with the numbers as they should be."""
    stored = sorted((root / "docs" / "results").glob("*.csv"))
    tables = {file.stem: read_numbers(file) for file in stored if _is_table(file)}
    written: dict[Path, str] = {}
    for page in (root / "README.md", *sorted((root / "docs").rglob("*.md"))):
        text = page.read_text(encoding="utf-8")
        if _BLOCK.search(text):
            written[page] = _BLOCK.sub(lambda found: _filled(found, tables), text)
    results = root / "docs" / "results.md"
    if results in written:
        pages = sorted((root / "docs" / "lab").glob("*.md"), reverse=True)
        book = "".join(f"- {page.stem[:10]}: [{_title(page)}](lab/{page.name})\n" for page in pages)
        written[results] = _LAB_BOOK.sub(rf"\1{book}\2", written[results])
    return written


def _title(page: Path) -> str:
    return page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def _is_table(file: Path) -> bool:
    return file.read_text(encoding="utf-8").startswith("dataset,view,rule,method,")


def read_numbers(file: Path) -> Numbers:
    """Reads a comparison's table, in its order of rows and columns."""
    numbers: Numbers = {}
    with file.open(encoding="utf-8", newline="") as lines:
        for line in csv.DictReader(lines):
            sign = "+" if line["quantity"] == "difference" else ""
            text = f"{float(line['mean']):{sign}.1f}"
            if line["half_width"]:
                text += f" ± {float(line['half_width']):.1f}"
            numbers.setdefault(line["method"], {})[line["column"]] = text
    return numbers


def _filled(found: re.Match[str], tables: dict[str, Numbers]) -> str:
    name = found["name"]
    if name not in tables:
        raise SystemExit(f"there is no docs/results/{name}.csv for '{found['start'].strip()}'")
    numbers = tables[name]
    columns = list(dict.fromkeys(column for row in numbers.values() for column in row))
    rows = _wanted(found["rows"], list(numbers), f"docs/results/{name}.csv has no row")
    columns = _wanted(found["columns"], columns, f"docs/results/{name}.csv has no column")
    return f"{found['start']}{_table(numbers, rows, columns)}\n{found['end']}"


def _wanted(text: str | None, known: list[str], problem: str) -> list[str]:
    """The names in a list, all of which have to be known; all known ones where there is no list."""
    names = [name.strip() for name in text.split(",")] if text else known
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"{problem} {', '.join(unknown)}")
    return names


def _table(numbers: Numbers, rows: Iterable[str], columns: list[str]) -> str:
    cells = [[name, *(numbers[name].get(column, "") for column in columns)] for name in rows]
    return aligned_table(["", *columns], cells)
