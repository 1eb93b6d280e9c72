"""Tables on a terminal: names are broken at words and numbers never, however narrow it is."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich import box
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from unseen.reports.formats import cell_text
from unseen.reports.long_names import words, wrapped
from unseen.reports.markdown import one_line
from unseen.reports.tables import Column, Table
from unseen.results.result import VIEWS, DomainResult, RunResult, Views
from unseen.results.rules import RULES
from unseen.settings.experiment import METRICS, Metric

_GAP, _EDGES = 3, 4  # between two columns, and left and right of them all
_SHORT, _LONGEST_WORD = 12, 14  # letters of a header that is not broken, and of a word of others


class _Column(NamedTuple):
    header: str
    texts: Sequence[str]
    best: Sequence[bool]

    @property
    def width(self) -> int:
        return _GAP + max(map(_width, (self.header, *self.texts)))

    def narrow(self) -> "_Column":
        """The interval below its number, the header broken at words."""
        texts = [text.replace(" ± ", "\n±") for text in self.texts]
        longest = min(max(map(len, words(self.header))), _LONGEST_WORD)
        room = max(*map(_width, texts), longest, min(_width(self.header), _SHORT))
        header = wrapped(self.header.replace("\n", " "), room)
        return _Column(header, texts, self.best)


def to_rich(table: Table, width: int = 100) -> RenderableType:
    """For a terminal `width` columns wide. Where space is short, intervals move below their
    numbers, then headers are broken, then columns move below the others."""
    names = [one_line(row.name) for row in table.rows]
    if table.always_largest:
        names.append(wrapped(table.always_largest.name, max(map(_width, ["method", *names]))))
    columns = [
        _Column(
            _heading(column),
            [cell_text(row.cells[place], column) for row in table.lines],
            [bool(cell and cell.best) for row in table.lines for cell in (row.cells[place],)],
        )
        for place, column in enumerate(table.columns)
    ]
    names_width = _EDGES + max(map(_width, ["method", *names]))
    below = [each._replace(texts=each.narrow().texts) for each in columns]
    broken = [each.narrow() for each in columns]
    for form in (columns, below, broken):
        if names_width + sum(each.width for each in form) <= width:
            return _table(table, names, form, first=True, last=True)
    room = width - _EDGES - max(each.width for each in broken)
    names = [wrapped(name, max(room, 8)) for name in names]
    names_width = _EDGES + max(map(_width, ["method", *names]))
    blocks = list(_blocks(broken, width - names_width))
    return Group(
        *(_table(table, names, block, block is blocks[0], block is blocks[-1]) for block in blocks)
    )


def _blocks(columns: Sequence[_Column], room: int) -> Iterator[list[_Column]]:
    """As many columns beside each other as there is room for."""
    block: list[_Column] = []
    for column in columns:
        if block and sum(each.width for each in (*block, column)) > room:
            yield block
            block = []
        block.append(column)
    yield block


def _table(
    table: Table, names: Sequence[str], columns: Sequence[_Column], first: bool, last: bool
) -> RichTable:
    rich_table = RichTable(
        title=Text(one_line(table.title)) if first else None,
        title_justify="left",
        title_style="bold",
        caption=Text("\n".join(map(one_line, table.notes))) if last else None,
        caption_justify="left",
        caption_style="dim",
        box=box.SIMPLE_HEAD,
    )
    rich_table.add_column(Text("method"))
    for column in columns:
        rich_table.add_column(Text(column.header), justify="right")
    for number, name in enumerate(names):
        styled = (Text(c.texts[number], "bold" if c.best[number] else "") for c in columns)
        rich_table.add_row(Text(name), *styled)
    return rich_table


def _heading(column: Column) -> str:
    name = one_line(column.name)
    return name.replace(" to ", "\nto ", 1) if column.quantity == "difference" else name


def _width(text: str) -> int:
    return max(map(cell_len, text.split("\n")))


def run_table(result: RunResult, width: int = 100) -> RichTable:
    """The views of a finished run under its own selection rule."""
    rule = result.selection
    chosen = result.under(rule)
    where = f"{result.label} on {result.dataset} ({result.backbone}"
    if result.merged is None:
        title = f"{where}, seed {result.seed}), selection: {rule}, step {chosen.step}"
    else:
        title = f"{where}), selection: {rule}"
    return views_table(chosen.views, title, result.metric, width)


def rules_table(result: RunResult) -> RichTable:
    """What every selection rule that was recorded chose, in the order of tables."""
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
            "" if chosen.temperature is None else f"{chosen.temperature:.3g}",
        )
    return table


def views_table(views: Views, title: str, metric: Metric, width: int = 100) -> RichTable:
    """By domain in each view that was measured: the metric that counts, accuracy, the share of the
    largest class, which a model has to beat, and how honest confidence is, before and after
    calibration."""
    others: list[Metric] = [] if metric == "accuracy" else [metric]
    table = RichTable(title=Text(title), title_justify="left")
    table.add_column("domain")
    table.add_column("view", no_wrap=True)
    everything = [each for by_domain in views.values() for each in by_domain.values()]
    after = any(each.calibrated for each in everything)
    columns = [METRICS[each].replace(" ", "\n") for each in others]
    columns += ["accuracy", "largest\nclass", "images", "calibration\nerror"]
    columns += ["after\nscaling"] if after else []
    room = max(width - 66 - 11 * (len(others) + after), 8)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for view, by_domain in views.items():
        for domain, measured in by_domain.items():
            table.add_row(
                Text(wrapped(one_line(domain), room)),
                VIEWS[view].title,
                *(f"{measured.measure(each):.1%}" for each in others),
                f"{measured.accuracy:.1%}",
                f"{measured.largest_class_share:.1%}",
                str(measured.images),
                *(f"{error:.1%}" for error in _errors(measured)),
            )
    return table


def _errors(measured: DomainResult) -> Iterator[float]:
    """Of calibration, before and after scaling."""
    yield measured.calibration_error
    if measured.calibrated_error is not None:
        yield measured.calibrated_error
