"""Results at a glance: the conclusion (which method held up best, by how much, and whether that is
noise), the tables, accuracy by domain, differences, worst domain and gap; and numbers that others
have published, to lay beside own results and never to mix with them."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Literal, NamedTuple, TypeVar
from urllib.parse import quote

from unseen.reports.figures.charts import Axis, ChartRow, Mark, row_chart
from unseen.reports.figures.figure import Figure
from unseen.reports.formats import FILES
from unseen.reports.page import parts
from unseen.reports.page.studies import MOST_DRAWN, Study
from unseen.reports.shown import bar_panels
from unseen.reports.tables import (
    OVERALL,
    BySeed,
    MethodKey,
    Row,
    Table,
    always_largest,
    estimate_text,
    notes_once,
)
from unseen.results.result import VIEWS
from unseen.results.statistics import (
    CONFIDENCE,
    Estimate,
    estimate,
    paired_difference,
    worst_domain,
)

Verdict = Literal["clear", "unclear", "untold"]
_Item = TypeVar("_Item")

_VERDICTS: dict[Verdict | None, tuple[str, str]] = {
    "clear": ("held up best on unseen domains", "larger than the noise between seeds"),
    "unclear": (
        "came first on unseen domains, but not by more than noise",
        "not larger than the noise between seeds",
    ),
    "untold": (
        "came first on unseen domains, with one seed",
        "one seed: cannot be told from noise",
    ),
    None: ("on unseen domains", ""),
}
"""How a headline ends, and the words on the badge."""


class Ranked(NamedTuple):
    row: MethodKey
    name: str
    overall: Estimate
    by_seed: BySeed
    by_column: dict[str, float]
    """The mean over the seeds that have all columns."""


@dataclass(frozen=True)
class Conclusion:
    rule: str
    headline: str
    number: str
    sentences: tuple[str, ...]
    verdict: Verdict | None = None
    verdict_text: str = ""


def ranking(study: Study, rule: str) -> list[Ranked]:
    """Ranks the methods with a result on every unseen domain, over the seeds all of them have.

    Over different seeds a method could come first by its luck with seeds alone. A model that was
    merged over seeds has no spread over seeds: it is ranked only where there is nothing else.
    An upper bound is never ranked.
    """
    numbers = study.numbers(rule)
    whole = {
        row: by_column[OVERALL]
        for row, by_column in numbers.items()
        if by_column[OVERALL] and row not in study.upper_bounds
    }
    single = {row: own for row, own in whole.items() if row not in study.layout.over_seeds}
    whole = single or whole
    sets = [set(by_seed) for by_seed in whole.values()]
    common = set.intersection(*sets) if sets else set[int]()
    seeds = sorted(common or max(sets, key=len, default=common))
    ranked = []
    for row, by_seed in whole.items():
        own = {seed: by_seed[seed] for seed in seeds if seed in by_seed}
        overall = estimate(list(own.values()))
        if overall is not None and len(own) == len(seeds):
            by_name = numbers[row]
            means = {name: fmean(by_name[name][seed] for seed in own) for name in study.columns}
            ranked.append(Ranked(row, study.row_name(row), overall, own, means))
    return sorted(ranked, key=lambda each: -each.overall.mean)


def conclude(study: Study, rule: str) -> Conclusion:
    """Says which method came first, how far it is above others, and what speaks against that."""
    ranked = ranking(study, rule)
    unfinished = sum(run.result is None for run in study.runs)
    state = f"{unfinished} of {len(study.runs)} runs {'is' if unfinished == 1 else 'are'}"
    end = [f"{state} not finished."] if unfinished else []
    if not ranked:
        nothing = "No method has a result on every unseen domain yet"
        if not study.results:
            nothing = "No run has finished yet"
        elif not study.number_unseen:
            nothing = "No domain was held out, so nothing is known about unseen domains"
        return Conclusion(rule, nothing, "", tuple(end))
    best = ranked[0]
    compared: list[tuple[Verdict, str]] = []
    for place, other in enumerate(ranked[1:]):
        is_baseline = other.row == (study.rows[0][0], best.row[1])
        if is_baseline or place == 0:
            roles = ["the baseline"] * is_baseline + ["next best"] * (place == 0)
            role = " and ".join(roles) if is_baseline else "the next best"
            compared.append(_compared(best, other, role))
    verdict = compared[0][0] if compared else None
    sentences = [sentence for _, sentence in compared]
    sentences += [*_caveats(study, rule, ranked), *end]
    average = f"mean over {len(study.columns)} unseen domains"
    where = f"on {study.columns[0]}" if len(study.columns) == 1 else average
    measure = "" if study.metric == "accuracy" else f" {study.measure}"
    headline, verdict_text = _VERDICTS[verdict]
    number = f"{estimate_text(best.overall)} %{measure} ({where})"
    headline = f"{best.name} {headline}"
    return Conclusion(rule, headline, number, tuple(sentences), verdict, verdict_text)


def _caveats(study: Study, rule: str, ranked: list[Ranked]) -> Iterator[str]:
    best = ranked[0]
    floors = always_largest(study.results, rule, "out_of_domain", study.layout, study.metric)
    if best.overall.mean <= floors.get(OVERALL, -1.0):
        yield (
            "That is not better than always answering with the largest class of each domain, "
            f"whatever the image ({floors[OVERALL]:.1f} %)."
        )
    if len(ranked) > 1 and best.row[0] == study.rows[0][0]:
        yield f"No method did better than the baseline, {best.row[0]}."
    if len(best.by_seed) < len(study.seeds):
        seeds = f"seed{'s' * (len(best.by_seed) > 1)} {', '.join(map(str, best.by_seed))}"
        yield f"Compared over {seeds}, which all ranked methods have."
    there = {*(each.row for each in ranked), *study.layout.over_seeds, *study.upper_bounds}
    unranked = [study.row_name(row) for row in study.rows if row not in there]
    if unranked:
        yield f"Not ranked, for lack of results: {', '.join(unranked)}."
    if len(ranked) > 2:
        yield (
            f"The best of {len(ranked)} was picked after the fact; intervals do not correct for it."
        )
    for row, by_column in study.numbers(rule).items():
        overall = estimate(list(by_column[OVERALL].values()))
        if overall is not None and row in there.difference(each.row for each in ranked):
            why = "not ranked" if row in study.upper_bounds else "one model for all seeds"
            yield f"{study.row_name(row)}: {estimate_text(overall)} %, {why}."


def _compared(best: Ranked, other: Ranked, role: str) -> tuple[Verdict, str]:
    """Says how far the best is above another one."""
    difference = paired_difference(other.by_seed, best.by_seed)
    assert difference is not None, "ranked methods share their seeds"
    level = f"{100 * CONFIDENCE:.0f} %"
    text = f"{difference.mean:.1f} percentage points above {other.name}, {role}"
    if difference.half_width is not None:
        verdict = "clear" if abs(difference.mean) > difference.half_width else "unclear"
        return verdict, (
            f"{text} ({level} interval {_interval(difference)}, paired by seed and unseen "
            f"domain, {difference.n} seeds): {_VERDICTS[verdict][1]}."
        )
    text += ". With one seed, it is unknown what another seed would give."
    spread = _over_domains(other, best)
    if spread is not None:
        text += (
            f" Over the {spread.n} unseen domains, {best.name} is {_interval(spread)} points "
            f"above {other.name} ({level} t-interval over domains, not over seeds)."
        )
    return "untold", text


def _over_domains(first: Ranked, second: Ranked) -> Estimate | None:
    """Estimates how far the second is above the first over domains; None with one domain."""
    difference = paired_difference(first.by_column, second.by_column)
    return difference if difference is not None and difference.n > 1 else None


def _interval(value: Estimate) -> str:
    """Returns an interval as text: `−0.4 to 2.8`."""
    half = value.half_width or 0.0
    return f"{value.mean - half:.1f} to {value.mean + half:.1f}".replace("-", "−")


def tables_section(study: Study) -> parts.Section:
    return parts.Section(
        "tables",
        "Results",
        "Three measurements of the same runs. In bold: ahead of all others beyond noise.",
        study.under_rules(_tables) or ("Tables appear when the first run has finished.",),
    )


def _tables(study: Study, rule: str) -> Iterator[parts.Part]:
    tables = study.built_tables(rule)
    noted = zip(tables, notes_once(tables), strict=True)
    shown = [_result_table(study, table, own.notes) for table, own in noted]
    yield from parts.first_and_folded("In domain and known domain", shown)


def _result_table(study: Study, table: Table, notes: tuple[str, ...]) -> parts.PageTable:
    """Shows a table with some of its notes; as a file it has them all. The overall and the
    difference come first: a phone has no room for all domains."""
    last = 1 + table.domains

    def overall_first(cells: tuple[_Item, ...]) -> tuple[_Item, ...]:
        return cells[:1] + cells[last:] + cells[1:last]

    def cells(row: Row) -> tuple[parts.PageCell, ...]:
        found = [parts.PageCell(row.name, row.name)]
        for column, cell in zip(table.columns, row.cells, strict=True):
            value, tip = None, ""
            if cell.estimate is not None:
                value, tip = cell.estimate.mean, f"{row.name}, {column}"
                seeds = f": n = {cell.estimate.n} of {cell.planned}"
                tip += seeds if row is not table.always_largest else ""
            found.append(parts.PageCell(cell.text.replace("-", "−"), value, cell.best, tip))
        return overall_first(tuple(found))

    return parts.PageTable(
        VIEWS[table.view].table_title(table.metric),
        overall_first(("method", *table.columns)),
        tuple(study.table_row(row.key, *cells(row)) for row in table.rows),
        notes,
        tuple(
            (label, f"{table.view}_{table.rule}{suffix}", f"data:{kind},{quote(render(table))}")
            for suffix, (label, kind, render) in FILES.items()
        ),
        (parts.page_row(*cells(table.always_largest)),) if table.always_largest else (),
    )


def comparison_section(study: Study) -> parts.Section:
    lead = "Each domain was left out of training in turn and then tested on."
    if len(study.rows) > MOST_DRAWN:
        lead += (
            f" Figures show {study.rows[0][0]} and the {MOST_DRAWN - 1} best of the other "
            f"{len(study.rows) - 1} rows; the tables above have all."
        )
    shown = study.drawn.under_rules(_comparison)
    return parts.Section("comparison", "Unseen domains, method by method", lead, shown)


def _comparison(study: Study, rule: str) -> Iterator[parts.Part]:
    table = next((each for each in study.built_tables(rule) if each.view == "out_of_domain"), None)
    if table is None:
        return
    numbers = study.numbers(rule)

    def draw(row: Row, column: str, marks: tuple[Mark, ...], text: str) -> ChartRow:
        return study.chart_row(row.key, marks, text, numbers[row.key][column].values())

    measure = parts.capital(study.measure)
    about = f"{measure} on the unseen domain, in percent."
    if len(study.seeds) > 1:
        about += " Whiskers: 95 % t-interval over seeds; dots: single seeds."
    panels = bar_panels(table, draw, Axis(0, 100, f"{study.measure}, %"))
    yield Figure("accuracy", f"{measure} by unseen domain", about, tuple(panels))
    yield from _differences(study, rule)
    yield from _gaps(study, rule)


def _differences(study: Study, rule: str) -> Iterator[Figure]:
    """Compares each method with the baseline with the same backbone, paired by seed. With one seed,
    the spread over unseen domains is the only one that there is, and is named so."""
    numbers = study.numbers(rule)
    ranked = {each.row: each for each in ranking(study, rule)}
    panels: dict[str, list[tuple[MethodKey, Estimate]]] = {}
    for row, by_column in numbers.items():
        reference = (study.rows[0][0], row[1])
        if row == reference or reference not in numbers:
            continue
        for name, own in by_column.items():
            value = study.layout.difference(row, numbers[reference][name], own)
            if name == OVERALL and len(study.seeds) == 1 and {row, reference} <= set(ranked):
                value = _over_domains(ranked[reference], ranked[row]) or value
            if value is not None and (name != OVERALL or len(study.columns) > 1):
                panels.setdefault(name or "overall", []).append((row, value))
    if not panels:
        return
    everything = [each for rows in panels.values() for _, each in rows]
    reach = max(abs(each.mean) + (each.half_width or 0) for each in everything)
    limit = 1.3 * max(max(abs(each.mean) for each in everything), 1.0)
    most = min(max(reach, 1.0) * 1.05, 4 * limit)
    axis = Axis(-most, most, "percentage points")
    about = f"Difference to {study.rows[0][0]}, in percentage points, paired by seed."
    if len(study.seeds) == 1:
        about += " One seed: a domain has no interval, and that of the overall is over domains."
    else:
        about += " An interval that does not touch the line in the middle is beyond the noise."
    drawn = []
    for name in sorted(panels, key=lambda each: each != "overall"):
        rows = []
        for row, each in panels[name]:
            marks = [Mark("difference", each.mean, each.half_width)]
            text = estimate_text(each, signed=True).replace("-", "−")
            rows.append(study.chart_row(row, marks, text))
        drawn.append(row_chart(name, rows, axis, zero=True))
    yield Figure("differences", "Difference to the baseline", about, tuple(drawn))


def _gaps(study: Study, rule: str) -> Iterator[parts.Fold]:
    """Shows the worst domain, and what is lost from in-domain to out-of-domain."""
    inside = study.numbers(rule, "in_domain")
    lines = []
    for each in ranking(study, rule):
        gap = paired_difference(each.by_seed, inside[each.row][OVERALL])
        domain, worst = worst_domain(each.by_column)
        cells = (
            parts.PageCell(estimate_text(each.overall), each.overall.mean),
            parts.PageCell(f"{worst:.1f} ({domain})", worst),
            None if gap is None else parts.number(each.overall.mean + gap.mean, ".1f"),
            None if gap is None else parts.PageCell(estimate_text(gap).replace("-", "−"), gap.mean),
        )
        lines.append(study.table_row(each.row, each.name, *cells))
    header = ("method", "out of domain", "worst unseen domain", "in domain", "gap (in − out)")
    note = "Percent; over the seeds that all methods have; the gap is paired by seed."
    table = parts.PageTable("Worst domain and gap", header, tuple(lines), (note,))
    if lines:
        yield parts.Fold("Worst domain, and from known domains to unseen ones", (table,))


class PublishedNumber(NamedTuple):
    """One number of one source, in percent; the mean over the domains, each held out in turn."""

    method: str
    """Its name here, or that of the source where there is no such method."""
    backbone: str
    dataset: str
    accuracy: float
    standard_error: float | None
    rule: str
    """The selection rule; empty where the source does not say."""
    source: str


@cache
def published_numbers() -> tuple[PublishedNumber, ...]:
    found = []
    with Path(__file__).with_name("published.csv").open(encoding="utf-8", newline="") as file:
        for record in csv.DictReader(file):
            accuracy, error = float(record.pop("accuracy")), record.pop("standard_error")
            numbers = {"accuracy": accuracy, "standard_error": float(error) if error else None}
            found.append(PublishedNumber(**record, **numbers))
    return tuple(found)


def by_source(dataset: str | None = None) -> dict[tuple[str, str], list[PublishedNumber]]:
    """Returns numbers by source and selection rule, in the order of the file."""
    found: dict[tuple[str, str], list[PublishedNumber]] = {}
    for each in published_numbers():
        if dataset in (None, each.dataset):
            found.setdefault((each.source, each.rule), []).append(each)
    return found


def published_section(study: Study) -> parts.Section:
    """Shows what others have published on the same dataset. It stands only beside results of the
    same kind: one domain held out, and nothing of it seen."""
    alike = study.setting == "generalization" and study.number_unseen == 1
    tables = []
    for (source, rule), numbers in by_source(study.dataset).items() if alike else ():
        rows = []
        for each in sorted(numbers, key=lambda each: -each.accuracy):
            text = estimate_text(Estimate(each.accuracy, each.standard_error, 1))
            cell = parts.PageCell(text, each.accuracy)
            rows.append(parts.page_row(each.method, each.backbone, cell))
        chosen = f"chosen by rule {rule}" if rule else "selection rule not said"
        header = ("method", "backbone", "out of domain, published")
        tables.append(parts.PageTable(f"Published: {chosen}", header, tuple(rows), (source,)))
    caution = (
        "Published by others under their own protocols (splits, image size, augmentation, search): "
        "a reference, not a comparison. Nothing here was measured by unseen."
    )
    folded = (caution, parts.Fold("Tables, by source and selection rule", tuple(tables)))
    return parts.Section(
        "published",
        "Published numbers",
        "What papers and other toolkits report on this dataset.",
        folded if tables else (),
    )
