"""Numbers as text, and tables as CSV, Markdown and LaTeX, with names escaped as each needs it."""

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from unseen.atomic import atomic_file
from unseen.errors import UnseenError
from unseen.reports.tables import Cell, Column, Table
from unseen.reports.text import aligned_table, csv_cell, escaped, one_line
from unseen.results.result import VIEWS, View, Views, ViewTexts
from unseen.results.statistics import Estimate
from unseen.settings.experiment import METRICS, Metric

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
    """Returns a text such as `65.2 ± 1.3`, with a sign for differences and * where seeds are
    missing."""
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


def result_table(
    views: Views, metrics: Sequence[Metric], texts: Mapping[View, ViewTexts] = VIEWS
) -> tuple[list[str], list[list[str]]]:
    """Returns header and rows with what was measured of one model, by domain in each view: metrics,
    the share of the largest class, which a model has to beat, and how honest confidence is, before
    and after calibration."""
    scaled = any(each.calibrated for domains in views.values() for each in domains.values())
    header = ["domain", "view", *(METRICS[metric] for metric in metrics)]
    header += ["largest class", "images", "calibration error", *(["after scaling"] * scaled)]
    rows = [
        [
            domain,
            texts[view].title,
            *(f"{each.measures[metric]:.1%}" for metric in metrics),
            f"{each.always_largest['accuracy']:.1%}",
            str(each.images),
            f"{each.calibration_error:.1%}",
            *([f"{each.calibrated_error:.1%}"] if each.calibrated_error is not None else []),
        ]
        for view, domains in views.items()
        for domain, each in domains.items()
    ]
    return header, rows


def records(table: Table) -> Iterator[dict[str, Any]]:
    """Yields each number with its place, in percent at full precision; None where there is none."""
    for row in table.lines:
        for column, cell in zip(table.columns, row.cells, strict=True):
            if cell is None:
                continue
            place = (table.dataset, table.view, table.rule, row.method, row.backbone)
            numbers = cell.estimate or (None, None, 0)
            values = (*place, column.quantity, column.name, *numbers, cell.planned, table.metric)
            yield dict(zip(_columns(table), values, strict=True))


def _columns(table: Table) -> tuple[str, ...]:
    return (*_CSV_PLACE, "mean", table.spread, "n", "planned", "metric")


def result_records(views: Views) -> Iterator[dict[str, Any]]:
    """Yields what was measured of one model, for each domain in each view."""
    for view, domains in views.items():
        for domain, each in domains.items():
            counts = {"images": each.images, "correct": each.correct}
            errors = each.calibration_error, each.calibrated_error
            calibration = dict(zip(("calibration_error", "calibrated_error"), errors, strict=True))
            yield {"view": view, "domain": domain} | counts | each.measures | calibration


def to_csv(table: Table) -> str:
    """Returns a line for each number; empty where there is none."""
    out = io.StringIO()
    writer = csv.DictWriter(out, _columns(table), lineterminator="\n")
    writer.writeheader()
    for record in records(table):
        writer.writerow({name: csv_cell(value) for name, value in record.items()})
    return out.getvalue()


def to_markdown(table: Table) -> str:
    """Returns a heading, a pipe table and the notes."""
    header, *rows = _texts(table, escaped, escaped, "**{}**")
    notes = "\n".join(f"- {escaped(note)}" for note in table.notes)
    return f"### {escaped(table.title)}\n\n{aligned_table(header, rows)}\n\n{notes}\n"


def to_latex(table: Table) -> str:
    """Returns a floating table; the document needs the booktabs package."""
    header, *rows = (
        " & ".join(row) + r" \\" for row in _texts(table, _latex, _latex_number, r"\textbf{{{}}}")
    )
    body = "\n".join(rows)
    return rf"""% needs \usepackage{{booktabs}}
\begin{{table}}
\centering
\caption{{{_latex(" ".join((f"{table.title}.", *table.notes)))}}}
\begin{{tabular}}{{l{"r" * len(table.columns)}}}
\toprule
{header}
\midrule
{body}
\bottomrule
\end{{tabular}}
\end{{table}}
"""


def _texts(
    table: Table, name: Callable[[str], str], number: Callable[[str], str], bold: str
) -> list[list[str]]:
    """Returns the header and all rows of a table; `name` and `number` escape what a cell holds."""
    lines = [[name(text) for text in ("method", *(column.name for column in table.columns))]]
    for row in table.lines:
        texts = [name(row.name)]
        for column, cell in zip(table.columns, row.cells, strict=True):
            text = number(cell_text(cell, column))
            texts.append(bold.format(text) if cell and cell.best else text)
        lines.append(texts)
    return lines


def _latex_number(text: str) -> str:
    return _latex(text).replace("-", "$-$")


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in one_line(text))


FILES: dict[str, tuple[str, str, Callable[[Table], str]]] = {
    ".csv": ("CSV", "text/csv;charset=utf-8", to_csv),
    ".md": ("Markdown", "text/markdown;charset=utf-8", to_markdown),
    ".tex": ("LaTeX", "application/x-tex;charset=utf-8", to_latex),
}
"""By the ending of a file: the format's name and type, and what makes it of a table."""


def write_tables(tables: Sequence[Table], folder: Path) -> list[Path]:
    """Writes every table as .csv, .md and .tex, named by its view; no file is ever half-written."""
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
    """Writes one table in all formats, under a name."""
    paths = []
    for suffix, (_, _, render) in FILES.items():
        path = folder / f"{stem}{suffix}"
        with atomic_file(path) as part:
            part.write_text(render(table), encoding="utf-8", newline="")
        paths.append(path)
    return paths
