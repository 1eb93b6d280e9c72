"""Tables as CSV, Markdown, LaTeX and on a terminal, each with names escaped its own way."""

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from unseen.atomic import atomic_file
from unseen.errors import UnseenError
from unseen.reports.tables import Cell, Column, Table

if TYPE_CHECKING:
    from rich.table import Table as RichTable

MISSING = "–"
_GAP = 3  # between two columns on a terminal

_CSV_HEADER = (
    *("dataset", "view", "rule", "method", "backbone", "quantity", "column"),
    *("mean", "half_width", "n", "planned"),
)

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
    mean = round(cell.estimate.mean, 1) + 0.0  # -0.0 becomes 0.0
    text = f"{mean:+.1f}" if column.quantity == "difference" else f"{mean:.1f}"
    if cell.estimate.half_width is not None:
        text += f" ± {cell.estimate.half_width:.1f}"
    return text if cell.complete else text + "*"


def to_csv(table: Table) -> str:
    """One line for each number, in percent at full precision; empty where there is none."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_CSV_HEADER)
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            if cell is None:
                continue
            place = (table.dataset, table.view, table.rule, row.method, row.backbone)
            numbers = cell.estimate or ("", "", 0)
            writer.writerow((*place, column.quantity, column.name, *numbers, cell.planned))
    return out.getvalue()


def to_markdown(table: Table) -> str:
    """A heading, a pipe table and the notes."""
    lines = [["method", *(_markdown(column.name) for column in table.columns)]]
    for row in table.rows:
        texts = [_markdown(row.name)]
        for column, cell in zip(table.columns, row.cells, strict=True):
            text = _markdown(cell_text(cell, column))
            texts.append(f"**{text}**" if cell and cell.best else text)
        lines.append(texts)
    widths = [max(3, *map(len, texts)) for texts in zip(*lines, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    padded = [
        [texts[0].ljust(widths[0]), *map(str.rjust, texts[1:], widths[1:])] for texts in lines
    ]
    body = "\n".join(f"| {' | '.join(texts)} |" for texts in (padded[0], rule, *padded[1:]))
    notes = "\n".join(f"- {_markdown(note)}" for note in table.notes)
    return f"### {_markdown(table.title)}\n\n{body}\n\n{notes}\n"


def to_latex(table: Table) -> str:
    """A floating table; the document needs the booktabs package."""
    header = ["method", *(column.name for column in table.columns)]
    lines = [" & ".join(map(_latex, header)) + r" \\", r"\midrule"]
    for row in table.rows:
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


def to_rich(table: Table, width: int = 100) -> "RichTable":
    """For a terminal `width` columns wide; intervals move to a second line where space is short."""
    from rich import box
    from rich.cells import cell_len
    from rich.table import Table as RichTable
    from rich.text import Text

    names = [_one_line(row.name) for row in table.rows]
    texts = [list(map(cell_text, row.cells, table.columns)) for row in table.rows]
    headers = [_heading(column) for column in table.columns]
    natural = max(map(cell_len, ["method", *names])) + sum(
        _GAP + max(cell_len(line) for text in column for line in text.split("\n"))
        for column in zip(headers, *texts, strict=True)
    )
    if natural + 2 > width:
        texts = [[text.replace(" ± ", "\n±") for text in line] for line in texts]
    rich_table = RichTable(
        title=Text(_one_line(table.title)),
        title_justify="left",
        title_style="bold",
        caption=Text("\n".join(map(_one_line, table.notes))),
        caption_justify="left",
        caption_style="dim",
        box=box.SIMPLE_HEAD,
    )
    rich_table.add_column(Text("method"), overflow="fold")
    for header in headers:
        rich_table.add_column(Text(header), justify="right", overflow="fold")
    for name, row, line in zip(names, table.rows, texts, strict=True):
        styles = ["bold" if cell and cell.best else "" for cell in row.cells]
        rich_table.add_row(Text(name), *map(Text, line, styles))
    return rich_table


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
    paths = []
    for stem, table in zip(stems, tables, strict=True):
        for suffix, render in _FILES.items():
            path = folder / f"{stem}{suffix}"
            with atomic_file(path) as part:
                part.write_text(render(table), encoding="utf-8", newline="")
            paths.append(path)
    return paths


def _heading(column: Column) -> str:
    name = _one_line(column.name)
    return name.replace(" to ", "\nto ", 1) if column.quantity == "difference" else name


def _one_line(text: str) -> str:
    """Line breaks, escape codes and direction marks would break a table apart."""
    return "".join(character if character.isprintable() else " " for character in text)


def _markdown(text: str) -> str:
    """Escape what GitHub's Markdown acts on; an underscore within a word is safe and stays."""
    escaped = re.sub(r"([\\`*|<>\[\]~$&#])", r"\\\1", _one_line(text))
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", escaped)


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in _one_line(text))


_FILES: dict[str, Callable[[Table], str]] = {
    ".csv": to_csv,
    ".md": to_markdown,
    ".tex": to_latex,
}
