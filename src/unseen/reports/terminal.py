"""Tables on a terminal: names are broken at words and numbers never, however narrow it is. Where
nobody looks at a terminal, a table is Markdown with a line for each row, however long."""

import re
from collections.abc import Iterable, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from unseen.reports.formats import result_table, to_markdown
from unseen.reports.tables import Table, notes_once
from unseen.reports.text import MISSING, aligned_table, escaped, one_line, words, wrapped
from unseen.results.result import RunResult, Views
from unseen.results.rules import RULES
from unseen.settings.experiment import Metric

_GAP, _EDGES = 2, 3  # between two columns, and left and right of them all
_SHORT, _LONGEST_WORD = 12, 14  # letters of a header that is not broken, and of a word of others

Texts = list[str]
"""The header of a column and its cells."""


def show_tables(tables: Iterable[Table], console: Console) -> None:
    """Prints tables one below the other, each note once."""
    for table in notes_once(tables):
        if console.is_terminal:
            console.print(to_rich(table, console.width))
        else:
            console.print(to_markdown(table), markup=False, highlight=False, soft_wrap=True)


def to_rich(table: Table, width: int = 100) -> RenderableType:
    """Lays a table out for a terminal `width` columns wide, a line for each method. Where space is
    short, headers are broken and intervals move close to their numbers, then domains move below
    the overall and the difference."""
    lines = [[*map(one_line, line)] for line in table.texts]
    names, *columns = ([*column] for column in zip(*lines, strict=True))
    if len(columns) > table.domains + 1:
        columns[-1][0] = "difference"
    cells = zip(*(row.cells for row in table.lines), strict=True)
    best = [[cell.best for cell in own] for own in cells]
    places = list(range(len(columns)))
    blocks = [places]
    if _EDGES + _taken([names, *columns]) - _GAP > width:
        columns = [_broken([text.replace(" ± ", "±") for text in column]) for column in columns]
        names = [names[0], *(wrapped(name, max(map(cell_len, names[:-1]))) for name in names[1:])]
    if _EDGES + _taken([names, *columns]) - _GAP > width:
        widest = max(map(_width, (text for column in columns for text in column)))
        names = [wrapped(name, max(width - _EDGES - _GAP - widest, 8)) for name in names]
        room = width - _EDGES - max(map(_width, names))
        blocks = [[]]
        for place in places[table.domains :] + places[: table.domains]:
            if blocks[-1] and _taken(columns[each] for each in (*blocks[-1], place)) > room:
                blocks.append([])
            blocks[-1].append(place)
    drawn = (
        _rich_table([names, *(columns[p] for p in block)], [[], *(best[p] for p in block)])
        for block in blocks
    )
    notes = Text("\n".join([*map(one_line, table.notes), ""]), "dim")
    return Group(Text(one_line(table.title), "bold"), *drawn, notes)


def _broken(column: Texts) -> Texts:
    """Returns the column with its header broken at words."""
    header, *texts = column
    longest = min(max(map(len, words(header))), _LONGEST_WORD)
    room = max(*map(_width, texts), longest, min(_width(header), _SHORT))
    return [wrapped(header, room), *texts]


def _taken(columns: Iterable[Texts]) -> int:
    return sum(_GAP + max(map(_width, column)) for column in columns)


def _width(text: str) -> int:
    return max(map(cell_len, text.split("\n")))


def _rich_table(columns: Sequence[Texts], best: Sequence[Sequence[bool]] = ()) -> RichTable:
    """Draws columns, those of numbers set to the right, the best of each in bold."""
    table = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    drawn = []
    for place, (header, *texts) in enumerate(columns):
        numbers = place > 0 and any(re.match(rf"[-+]?\d|{MISSING}", text) for text in texts)
        table.add_column(Text(header), justify="right" if numbers else "left", no_wrap=True)
        bold = (best[place] if best else ()) or [False] * len(texts)
        drawn.append([Text(text, "bold" * own) for text, own in zip(texts, bold, strict=True)])
    for row in zip(*drawn, strict=True):
        table.add_row(*row)
    return table


def show_run(result: RunResult, console: Console) -> None:
    """Prints the views of a finished run under its own selection rule."""
    rule = result.selection
    chosen = result.under(rule)
    seed, step = f", seed {result.seed}", f", step {chosen.step}"
    if result.merged:
        seed = step = ""
    where = f"{result.label} on {result.dataset} ({result.backbone}{seed})"
    show_views(chosen.views, f"{where}, selection: {rule}{step}", result.metric, console)


def show_rules(result: RunResult, console: Console) -> None:
    """Prints what every recorded selection rule chose, in the order of tables."""
    rows: list[Texts] = []
    for rule in (each for each in RULES if each in result.rules):
        chosen = result.under(rule)
        means = (result.mean(rule, view) for view in ("out_of_domain", "in_domain"))
        shares = ("" if mean is None else f"{mean:.1%}" for mean in means)
        rows.append([rule, str(chosen.step), *shares, f"{chosen.temperature:.3g}"])
    header = ["rule", "step", "out of domain", "in domain", "temperature"]
    _show("What each selection rule chose", header, rows, console)


def show_views(views: Views, title: str, metric: Metric, console: Console) -> None:
    """Prints what was measured by domain in each view: the metric that counts, accuracy, and what
    a model has to beat."""
    header, rows = result_table(views, tuple(dict.fromkeys((metric, "accuracy"))))
    _show(title, header, rows, console)


def _show(title: str, header: Texts, rows: Sequence[Texts], console: Console) -> None:
    """Prints a table. Headers and, where it is narrow, names are broken at words."""
    if not console.is_terminal:
        lines = aligned_table(header, [list(map(escaped, row)) for row in rows])
        text = f"{one_line(title)}\n\n{lines}\n"
        console.print(text, markup=False, highlight=False, soft_wrap=True)
        return
    names, *columns = map(list, zip(header, *rows, strict=True))
    columns = [[wrapped(header, _SHORT), *texts] for header, *texts in columns]
    room = max(console.width - _EDGES - _taken(columns), 8)
    names = [wrapped(one_line(name), room) for name in names]
    console.print(Text(one_line(title), "italic"), _rich_table([names, *columns]), sep="\n")
