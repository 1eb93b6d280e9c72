"""Tables on a terminal: names are broken at words and numbers never, however narrow it is."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from unseen.reports.formats import cell_text, result_table, to_markdown
from unseen.reports.tables import Table, notes_once
from unseen.reports.text import one_line, words, wrapped
from unseen.results.result import RunResult, Views
from unseen.results.rules import RULES
from unseen.settings.experiment import Metric

_GAP, _EDGES = 2, 3  # between two columns, and left and right of them all
_SHORT, _LONGEST_WORD = 12, 14  # letters of a header that is not broken, and of a word of others
_LONGEST_HEADER = 12  # letters in the table of one run


class _Column(NamedTuple):
    header: str
    texts: Sequence[str]
    best: Sequence[bool]

    @property
    def width(self) -> int:
        return _GAP + max(map(_width, (self.header, *self.texts)))

    def narrow(self) -> "_Column":
        """Returns the column with intervals close to numbers and the header broken at words."""
        texts = [text.replace(" ± ", "±") for text in self.texts]
        longest = min(max(map(len, words(self.header))), _LONGEST_WORD)
        room = max(*map(_width, texts), longest, min(_width(self.header), _SHORT))
        return _Column(wrapped(self.header, room), texts, self.best)


def show_tables(tables: Iterable[Table], console: Console) -> None:
    """Prints tables one below the other, each note once; where nobody looks at a terminal, as lines
    that other programs can search: a line for each method, however long."""
    for table in notes_once(tables):
        if console.is_terminal:
            console.print(to_rich(table, console.width))
        else:
            console.print(to_markdown(table), markup=False, highlight=False, soft_wrap=True)


def to_rich(table: Table, width: int = 100) -> RenderableType:
    """Lays a table out for a terminal `width` columns wide, a line for each method. Where space is
    short, intervals move close to their numbers, then headers are broken, then the intervals of
    domains go, then domains move below the overall and the difference."""
    names = [one_line(row.name) for row in table.rows]
    if table.always_largest:
        names.append(wrapped(table.always_largest.name, max(map(_width, ["method", *names]))))
    columns = [
        _Column(
            "difference" if column.quantity == "difference" else one_line(column.name),
            [cell_text(row.cells[place], column) for row in table.lines],
            [bool(cell and cell.best) for row in table.lines for cell in (row.cells[place],)],
        )
        for place, column in enumerate(table.columns)
    ]
    close = [each._replace(texts=each.narrow().texts) for each in columns]
    broken = [each.narrow() for each in columns]
    domains = sum(column.quantity not in ("overall", "difference") for column in table.columns)
    bare = [
        each._replace(texts=[re.sub(r" ± [\d.]+", "", t) for t in each.texts]).narrow()
        for each in columns[:domains]
    ]
    forms = (columns, close, broken, [*bare, *broken[domains:]])
    blocks = [
        form for form in forms if _names_width(names) + sum(each.width for each in form) <= width
    ][:1]
    if not blocks:
        room = width - _EDGES - max(each.width for each in broken)
        names = [wrapped(name, max(room, 8)) for name in names]
        ordered = [*broken[domains:], *broken[:domains]]
        blocks = list(_blocks(ordered, width - _names_width(names)))
    title = Text(one_line(table.title), "bold")
    lacking = blocks[0] is forms[-1] and "±" in "".join(text for c in columns for text in c.texts)
    gone = ["Too narrow for the intervals of single domains: they are in the files."] * lacking
    notes = Text("\n".join([*map(one_line, table.notes), *gone, ""]), "dim")
    return Group(title, *(_table(names, block) for block in blocks), notes)


def _names_width(names: Sequence[str]) -> int:
    return _EDGES + max(map(_width, ["method", *names]))


def _blocks(columns: Sequence[_Column], room: int) -> Iterator[list[_Column]]:
    """Yields as many columns beside each other as there is room for."""
    block: list[_Column] = []
    for column in columns:
        if block and sum(each.width for each in (*block, column)) > room:
            yield block
            block = []
        block.append(column)
    yield block


def _table(names: Sequence[str], columns: Sequence[_Column]) -> RichTable:
    rich_table = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    rich_table.add_column(Text("method"))
    for column in columns:
        rich_table.add_column(Text(column.header), justify="right")
    for number, name in enumerate(names):
        styled = (Text(c.texts[number], "bold" if c.best[number] else "") for c in columns)
        rich_table.add_row(Text(name), *styled)
    return rich_table


def _width(text: str) -> int:
    return max(map(cell_len, text.split("\n")))


def run_table(result: RunResult, width: int = 100) -> RichTable:
    """Returns the views of a finished run under its own selection rule."""
    rule = result.selection
    chosen = result.under(rule)
    where = f"{result.label} on {result.dataset} ({result.backbone}"
    if result.merged is None:
        title = f"{where}, seed {result.seed}), selection: {rule}, step {chosen.step}"
    else:
        title = f"{where}), selection: {rule}"
    return views_table(chosen.views, title, result.metric, width)


def rules_table(result: RunResult) -> RichTable:
    """Returns what every recorded selection rule chose, in the order of tables."""
    table = RichTable(title=Text("What each selection rule chose"), title_justify="left")
    table.add_column("rule")
    for column in ("step", "out of\ndomain", "in\ndomain", "temperature"):
        table.add_column(column, justify="right", no_wrap=True)
    for rule in (each for each in RULES if each in result.rules):
        chosen = result.under(rule)
        means = (result.mean(rule, view) for view in ("out_of_domain", "in_domain"))
        table.add_row(
            rule,
            str(chosen.step),
            *("" if mean is None else f"{mean:.1%}" for mean in means),
            f"{chosen.temperature:.3g}",
        )
    return table


def views_table(views: Views, title: str, metric: Metric, width: int = 100) -> RichTable:
    """Returns what was measured by domain in each view: the metric that counts, accuracy, and what
    a model has to beat. Headers and, where it is narrow, domains are broken at words."""
    header, rows = result_table(views, tuple(dict.fromkeys((metric, "accuracy"))))
    header = [*header[:2], *(wrapped(name, _LONGEST_HEADER) for name in header[2:])]
    columns = list(zip(header, *rows, strict=True))
    taken = sum(_GAP + max(map(_width, column)) for column in columns[1:])
    room = max(width - taken - _EDGES, 8)
    table = RichTable(title=Text(title), title_justify="left")
    table.add_column(header[0])
    table.add_column(header[1], no_wrap=True)
    for name in header[2:]:
        table.add_column(name, justify="right", no_wrap=True)
    for domain, *texts in rows:
        table.add_row(Text(wrapped(one_line(domain), room)), *texts)
    return table
