"""The digits' results in the README, on the page of results and in the recipes, all from one file:
docs/results/digits.csv, the table `out_of_domain.csv` that `unseen compare digits` writes."""

import csv
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

DEMO = ("aggregate", "multihead", "dmg")
START, END = "<!-- digits -->", "<!-- end of digits -->"
_RESULT = re.compile(r"^# Result.*\n", flags=re.MULTILINE)

Numbers = dict[str, dict[str, str]]
"""By method and column, as text: 90.8 ± 0.7."""


def digit_pages(root: Path) -> dict[Path, str]:
    """README, page of results and recipes, with the numbers as they should be."""
    numbers = read_numbers(root / "docs" / "results" / "digits.csv")
    readme, results = root / "README.md", root / "docs" / "results.md"
    pages = {readme: _with_table(readme, numbers, DEMO)}
    pages[results] = _with_table(results, numbers, numbers)
    for name in numbers:
        recipe = root / "src" / "unseen" / "recipes" / "digits" / f"{name}.yaml"
        text = recipe.read_text(encoding="utf-8")
        pages[recipe] = _RESULT.sub(f"# {_sentence(numbers[name])}\n", text)
    return pages


def read_numbers(file: Path) -> Numbers:
    """Of a comparison's table, in its order of methods and columns."""
    numbers: Numbers = {}
    with file.open(encoding="utf-8", newline="") as lines:
        for line in csv.DictReader(lines):
            sign = "+" if line["quantity"] == "difference" else ""
            text = f"{float(line['mean']):{sign}.1f}"
            if line["half_width"]:
                text += f" ± {float(line['half_width']):.1f}"
            numbers.setdefault(line["method"], {})[line["column"]] = text
    return numbers


def _with_table(page: Path, numbers: Numbers, methods: Iterable[str]) -> str:
    text = page.read_text(encoding="utf-8")
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not (start and end):
        raise SystemExit(f"{page.name} lacks the lines {START} and {END}")
    columns = list(dict.fromkeys(column for row in numbers.values() for column in row))
    rows = [[name, *(numbers[name].get(column, "") for column in columns)] for name in methods]
    return f"{before}{START}\n{_table([['method', *columns], *rows])}\n{END}{after}"


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, texts)) for texts in zip(*rows, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    padded = [[row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in (padded[0], rule, *padded[1:]))


def _sentence(row: dict[str, str]) -> str:
    """`Result: 90.8 ± 0.7 % out of domain (plain 95.8, …)`, without what is beside a mean."""
    means = ", ".join(
        f"{column} {text.partition(' ')[0]}"
        for column, text in row.items()
        if column != "overall" and not column.startswith("difference")
    )
    return f"Result: {row['overall']} % out of domain ({means})"
