"""Numbers as text: tables as CSV, Markdown and LaTeX, what was measured of one model, and
predictions, row by row, in little memory. Names are escaped as each format needs it. No torch."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.cells import cell_len, set_cell_size

from unseen.atomic import atomic_file
from unseen.errors import UnseenError
from unseen.reports.tables import Table
from unseen.reports.text import MISSING, aligned_table, csv_cell, escaped, one_line
from unseen.results.result import VIEWS, View, Views, ViewTexts
from unseen.settings.experiment import METRICS, Metric

_LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    # A row that begins with one of these would be read as an argument of the \\ before it
    **{character: f"{{{character}}}" for character in "[]*"},
    "±": r"$\pm$",
    MISSING: r"\textendash{}",
}


def result_table(
    views: Views, metrics: Sequence[Metric], texts: Mapping[View, ViewTexts] = VIEWS
) -> tuple[list[str], list[list[str]]]:
    """Returns header and rows with what was measured of one model, by domain in each view: metrics,
    the share of the largest class, which a model has to beat, and how honest confidence is, before
    and after calibration."""
    scaled = any(each.calibrated for domains in views.values() for each in domains.values())
    header = ["domain", "view", *(METRICS[metric] for metric in metrics)]
    header += ["largest class", "images", "calibration error", *(["after scaling"] * scaled)]
    rows = []
    for view, domains in views.items():
        for domain, each in domains.items():
            shares = [each.measures[metric] for metric in metrics]
            shares.append(each.always_largest["accuracy"])
            row = [domain, texts[view].title, *(f"{share:.1%}" for share in shares)]
            row += [str(each.images), f"{each.calibration_error:.1%}"]
            after = each.calibrated_error
            rows.append([*row, *([] if after is None else [f"{after:.1%}"])])
    return header, rows


def result_records(views: Views) -> Iterator[dict[str, Any]]:
    """Yields what was measured of one model, for each domain in each view."""
    for view, domains in views.items():
        for domain, each in domains.items():
            about = {"view": view, "domain": domain, "images": each.images, "correct": each.correct}
            errors = each.calibration_error, each.calibrated_error
            calibration = dict(zip(("calibration_error", "calibrated_error"), errors, strict=True))
            yield about | each.measures | calibration


def records(table: Table) -> Iterator[dict[str, Any]]:
    """Yields each number with its place, in percent at full precision; None where there is none."""
    kinds = [*[table.metric] * table.domains, "overall", "difference"]
    for row in table.lines:
        for column, kind, cell in zip(table.columns, kinds, row.cells, strict=False):
            if cell.planned:
                mean, spread, n = cell.estimate or (None, None, 0)
                yield {
                    **{"dataset": table.dataset, "view": table.view, "rule": table.rule},
                    **{"method": row.method, "backbone": row.backbone},
                    **{"quantity": kind, "column": column, "mean": mean, table.spread: spread},
                    **{"n": n, "planned": cell.planned, "metric": table.metric},
                }


def to_csv(table: Table) -> str:
    """Returns a line for each number; empty where there is none."""
    found = [list(record.items()) for record in records(table)]
    header = [name for name, _ in found[0]] if found else []
    return "".join(
        _csv_line(*cells) for cells in (header, *([value for _, value in each] for each in found))
    )


def _csv_line(*cells: object) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(map(csv_cell, cells))
    return line.getvalue()


def to_markdown(table: Table) -> str:
    """Returns a heading, a pipe table and the notes."""
    header, *rows = _written(table, escaped, escaped, "**{}**")
    notes = "\n".join(f"- {escaped(note)}" for note in table.notes)
    return f"### {escaped(table.title)}\n\n{aligned_table(header, rows)}\n\n{notes}\n"


def to_latex(table: Table) -> str:
    """Returns a floating table; the document needs the booktabs package."""
    written = _written(table, _latex, _latex_number, r"\textbf{{{}}}")
    header, *rows = (" & ".join(row) + r" \\" for row in written)
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


def _written(
    table: Table, name: Callable[[str], str], number: Callable[[str], str], bold: str
) -> list[list[str]]:
    """Returns the header and all rows of a table; `name` and `number` escape what a cell holds."""
    written = [[*map(name, table.texts[0])]]
    for row in table.lines:
        cells = [(bold if cell.best else "{}").format(number(cell.text)) for cell in row.cells]
        written.append([name(row.name), *cells])
    return written


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
    named: dict[str, Table] = {}
    for table in tables:
        stem = f"{table.view}_{table.rule}" if several else table.view
        if stem in named:
            raise UnseenError(
                f"two tables would be written to '{stem}.csv'; write each dataset's tables "
                "to a folder of their own"
            )
        named[stem] = table
    return [path for stem, table in named.items() for path in write_table(table, folder, stem)]


def write_table(table: Table, folder: Path, stem: str) -> list[Path]:
    """Writes one table in all formats, under a name."""
    paths = [folder / f"{stem}{suffix}" for suffix in FILES]
    for path in paths:
        with atomic_file(path) as part:
            render = FILES[path.suffix][2]
            part.write_text(render(table), encoding="utf-8", newline="")
    return paths


Guess = tuple[str, float]
"""A class and its probability."""


class PredictedImage(NamedTuple):
    image: str
    top: Sequence[Guess]
    opinions: Mapping[str, Sequence[Guess]]
    """By training domain; empty where the model has none, or the domain was known."""
    disagreement: float | None

    @property
    def guesses(self) -> list[Guess]:
        """The classes that come first, and the first class in each domain's opinion."""
        return [*self.top, *(opinion[0] for opinion in self.opinions.values())]


class PredictedColumns(NamedTuple):
    """What all rows have in common."""

    top: int
    domains: Sequence[str]
    """Those with opinions."""
    image_width: int
    class_width: int
    """Of the longest name, as those of the images."""


def predictions_to_csv(rows: Iterable[PredictedImage], columns: PredictedColumns) -> Iterator[str]:
    """Yields a line for each image."""
    places = [*range(1, columns.top + 1)], ("class", "probability")
    top = [f"{what}_{rank}" for rank in places[0] for what in places[1]]
    own = [f"{domain}_{what}" for domain in columns.domains for what in places[1]]
    yield _csv_line("image", *top, *own, *(["disagreement"] if columns.domains else []))
    for row in rows:
        cells = [cell for name, share in row.guesses for cell in (name, f"{share:.6f}")]
        last = [] if row.disagreement is None else [f"{row.disagreement:.6f}"]
        yield _csv_line(row.image, *cells, *last)


def predictions_to_json(rows: Iterable[PredictedImage], columns: PredictedColumns) -> Iterator[str]:
    """Yields one array, an object on each line."""

    def objects(guesses: Sequence[Guess]) -> list[dict[str, object]]:
        return [{"class": name, "probability": round(share, 6)} for name, share in guesses]

    separator = "[\n"
    for row in rows:
        content: dict[str, object] = {"image": row.image, "top": objects(row.top)}
        if row.disagreement is not None:
            content["opinions"] = {name: objects(top) for name, top in row.opinions.items()}
            content["disagreement"] = round(row.disagreement, 6)
        yield separator + json.dumps(content, ensure_ascii=False)
        separator = ",\n"
    yield "[\n]\n" if separator == "[\n" else "\n]\n"


def predictions_to_table(
    rows: Iterable[PredictedImage], columns: PredictedColumns
) -> Iterator[str]:
    """Yields aligned columns, for people."""
    first = ["most likely", *(f"then {rank}" for rank in range(2, columns.top + 1))]
    widest = (columns.class_width + len(" 100.0%"), len("most likely"))
    width = max(*widest, *map(cell_len, columns.domains))

    def line(image: str, cells: Sequence[str], last: str) -> str:
        image = one_line(image)
        if cell_len(image) > columns.image_width:
            image = "…" + image[1 - columns.image_width :]
        texts = [set_cell_size(image, columns.image_width)]
        texts += [set_cell_size(one_line(cell), width) for cell in cells]
        return "  ".join([*texts, last]).rstrip() + "\n"

    yield line("image", [*first, *columns.domains], "disagreement" if columns.domains else "")
    for row in rows:
        last = "" if row.disagreement is None else f"{row.disagreement:.3f}"
        yield line(row.image, [f"{name} {share:.1%}" for name, share in row.guesses], last)


PREDICTIONS: dict[str, Callable[[Iterable[PredictedImage], PredictedColumns], Iterator[str]]] = {
    "table": predictions_to_table,
    "csv": predictions_to_csv,
    "json": predictions_to_json,
}
"""Each gives the text piece by piece, as rows arrive."""
