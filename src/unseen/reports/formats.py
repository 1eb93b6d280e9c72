"""Tables as CSV, Markdown and LaTeX, each with names escaped its own way."""

import csv
import io
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from unseen.atomic import atomic_file
from unseen.errors import UnseenError
from unseen.reports.markdown import aligned_table, escaped, one_line
from unseen.reports.tables import Cell, Column, Table
from unseen.results.statistics import Estimate

MISSING = "–"

_CSV_PLACE = ("dataset", "view", "rule", "method", "backbone", "quantity", "column")

_LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    # A row that begins with one of these would be read as an argument of the \\ before it
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    "±": r"$\pm$",
    MISSING: r"\textendash{}",
}


def cell_text(cell: Cell | None, column: Column) -> str:
    """`65.2 ± 1.3`, with a sign for differences and * where seeds are missing."""
    if cell is None:
        return ""
    if cell.estimate is None:
        return MISSING
    text = estimate_text(cell.estimate, signed=column.quantity == "difference")
    return text if cell.complete else text + "*"


def estimate_text(value: Estimate, signed: bool = False) -> str:
    mean = round(value.mean, 1) + 0.0  # -0.0 becomes 0.0
    text = f"{mean:+.1f}" if signed else f"{mean:.1f}"
    return text if value.half_width is None else f"{text} ± {value.half_width:.1f}"


def to_csv(table: Table) -> str:
    """One line for each number, in percent at full precision; empty where there is none."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow((*_CSV_PLACE, "mean", table.spread, "n", "planned", "metric"))
    for row in table.lines:
        for column, cell in zip(table.columns, row.cells, strict=True):
            if cell is None:
                continue
            place = (table.dataset, table.view, table.rule, row.method, row.backbone)
            numbers = cell.estimate or ("", "", 0)
            about = (cell.planned, table.metric)
            writer.writerow((*place, column.quantity, column.name, *numbers, *about))
    return out.getvalue()


def to_markdown(table: Table) -> str:
    """A heading, a pipe table and the notes."""
    rows = []
    for row in table.lines:
        texts = [escaped(row.name)]
        for column, cell in zip(table.columns, row.cells, strict=True):
            text = escaped(cell_text(cell, column))
            texts.append(f"**{text}**" if cell and cell.best else text)
        rows.append(texts)
    body = aligned_table(["method", *(escaped(column.name) for column in table.columns)], rows)
    notes = "\n".join(f"- {escaped(note)}" for note in table.notes)
    return f"### {escaped(table.title)}\n\n{body}\n\n{notes}\n"


def to_latex(table: Table) -> str:
    """A floating table; the document needs the booktabs package."""
    header = ["method", *(column.name for column in table.columns)]
    lines = [" & ".join(map(_latex, header)) + r" \\", r"\midrule"]
    for row in table.lines:
        texts = [_latex(row.name)]
        for column, cell in zip(table.columns, row.cells, strict=True):
            text = _latex(cell_text(cell, column)).replace("-", "$-$")
            texts.append(rf"\textbf{{{text}}}" if cell and cell.best else text)
        lines.append(" & ".join(texts) + r" \\")
    caption = " ".join((f"{table.title}.", *table.notes))
    return "\n".join(
        [
            r"% needs \usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_latex(caption)}}}",
            rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}",
            r"\toprule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def write_tables(tables: Sequence[Table], folder: Path) -> list[Path]:
    """Write every table as .csv, .md and .tex, named by its view; no file is ever half-written."""
    several = len({table.rule for table in tables}) > 1
    stems = [f"{table.view}_{table.rule}" if several else table.view for table in tables]
    twice = [stem for stem, number in Counter(stems).items() if number > 1]
    if twice:
        raise UnseenError(
            f"two tables would be written to '{twice[0]}.csv'; write each dataset's tables "
            "to a folder of their own"
        )
    named = zip(tables, stems, strict=True)
    return [path for table, stem in named for path in write_table(table, folder, stem)]


def write_table(table: Table, folder: Path, stem: str) -> list[Path]:
    """One table in all formats, under a name."""
    paths = []
    for suffix, render in _FILES.items():
        path = folder / f"{stem}{suffix}"
        with atomic_file(path) as part:
            part.write_text(render(table), encoding="utf-8", newline="")
        paths.append(path)
    return paths


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in one_line(text))


_FILES: dict[str, Callable[[Table], str]] = {
    ".csv": to_csv,
    ".md": to_markdown,
    ".tex": to_latex,
}
