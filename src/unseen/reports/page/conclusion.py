"""What the page opens with: which method held up best, by how much, and whether that is noise."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, NamedTuple

from unseen.reports.formats import estimate_text
from unseen.reports.page.studies import Study
from unseen.reports.tables import OVERALL, BySeed, MethodKey
from unseen.results.statistics import CONFIDENCE, Estimate, estimate, paired_difference

Verdict = Literal["clear", "unclear", "untold"]

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
    verdict: Verdict | None
    verdict_text: str


def ranking(study: Study, rule: str) -> list[Ranked]:
    """Ranks the methods with a result on every unseen domain, over the seeds all of them have.

    Over different seeds a method could come first by its luck with seeds alone. A model that was
    merged over seeds has no spread over seeds: it is ranked only where there is nothing else.
    An upper bound is never ranked.
    """
    numbers = study.numbers(rule, "out_of_domain")
    whole = {
        row: by_column[OVERALL]
        for row, by_column in numbers.items()
        if by_column[OVERALL] and row not in study.upper_bounds
    }
    single = {row: own for row, own in whole.items() if row not in study.layout.over_seeds}
    whole = single or whole
    seeds = _shared_seeds(whole.values())
    ranked = []
    for row, by_seed in whole.items():
        own = {seed: by_seed[seed] for seed in seeds if seed in by_seed}
        overall = estimate(list(own.values()))
        if overall is not None and len(own) == len(seeds):
            means = {
                name: fmean(numbers[row][name][seed] for seed in own) for name in study.columns
            }
            ranked.append(Ranked(row, study.row_name(row), overall, own, means))
    return sorted(ranked, key=lambda each: -each.overall.mean)


def _shared_seeds(methods: Iterable[BySeed]) -> tuple[int, ...]:
    """Returns the seeds that all have; if there is none, those of the method with the most."""
    sets = [set(by_seed) for by_seed in methods]
    common = set.intersection(*sets) if sets else set[int]()
    return tuple(sorted(common or max(sets, key=len, default=common)))


def conclude(study: Study, rule: str) -> Conclusion:
    ranked = ranking(study, rule)
    unfinished = sum(run.result is None for run in study.runs)
    state = f"{unfinished} of {len(study.runs)} runs {'is' if unfinished == 1 else 'are'}"
    end = [f"{state} not finished."] if unfinished else []
    if not ranked:
        return Conclusion(rule, _nothing_yet(study), "", tuple(end), None, "")
    best = ranked[0]
    compared = [_compared(best, *rival) for rival in _rivals(study, ranked)]
    verdict = compared[0][0] if compared else None
    sentences = [sentence for _, sentence in compared]
    sentences += [*_against_largest(study, rule, best), *_caveats(study, ranked)]
    sentences += [*_not_ranked(study, rule, ranked), *end]
    average = f"mean over {len(study.columns)} unseen domains"
    where = f"on {study.columns[0]}" if len(study.columns) == 1 else average
    measure = "" if study.metric == "accuracy" else f" {study.measure}"
    headline, verdict_text = _VERDICTS[verdict]
    number = f"{estimate_text(best.overall)} %{measure} ({where})"
    headline = f"{best.name} {headline}"
    return Conclusion(rule, headline, number, tuple(sentences), verdict, verdict_text)


def _nothing_yet(study: Study) -> str:
    if not study.results:
        return "No run has finished yet"
    if not study.number_unseen:
        return "No domain was held out, so nothing is known about unseen domains"
    return "No method has a result on every unseen domain yet"


def _against_largest(study: Study, rule: str, best: Ranked) -> Iterator[str]:
    """Warns of a model that looks good only because one class is frequent."""
    largest = study.always_largest(rule).get(OVERALL)
    if largest is not None and best.overall.mean <= largest:
        yield (
            "That is not better than always answering with the largest class of each domain, "
            f"whatever the image ({largest:.1f} %)."
        )


def _caveats(study: Study, ranked: list[Ranked]) -> Iterator[str]:
    best = ranked[0]
    if len(ranked) > 1 and best.row[0] == study.rows[0][0]:
        yield f"No method did better than the baseline, {best.row[0]}."
    if len(best.by_seed) < len(study.seeds):
        word = "seeds" if len(best.by_seed) > 1 else "seed"
        seeds = ", ".join(map(str, best.by_seed))
        yield f"Compared over {word} {seeds}, which all ranked methods have."
    there = {*(each.row for each in ranked), *study.layout.over_seeds, *study.upper_bounds}
    unranked = [study.row_name(row) for row in study.rows if row not in there]
    if unranked:
        yield f"Not ranked, for lack of results: {', '.join(unranked)}."
    if len(ranked) > 2:
        yield (
            f"The best of {len(ranked)} was picked after the fact; intervals do not correct for it."
        )


def _not_ranked(study: Study, rule: str, ranked: list[Ranked]) -> Iterator[str]:
    """Names models merged over seeds, which are one number each, and upper bounds."""
    numbers = study.numbers(rule, "out_of_domain")
    for row in study.rows:
        overall = estimate(list(numbers[row][OVERALL].values()))
        if overall is None or row in {each.row for each in ranked}:
            continue
        text = f"{study.row_name(row)}: {estimate_text(overall)} %"
        if row in study.upper_bounds:
            yield f"{text}, not ranked."
        elif row in study.layout.over_seeds:
            yield f"{text}, one model for all seeds."


def _rivals(study: Study, ranked: list[Ranked]) -> list[tuple[Ranked, str]]:
    """Returns the next best, and the baseline where that is another one."""
    best, *others = ranked
    baseline = next((each for each in others if each.row == (study.rows[0][0], best.row[1])), None)
    if not others:
        return []
    if baseline is None:
        return [(others[0], "the next best")]
    if baseline is others[0]:
        return [(baseline, "the baseline and next best")]
    return [(others[0], "the next best"), (baseline, "the baseline")]


def _compared(best: Ranked, other: Ranked, role: str) -> tuple[Verdict, str]:
    """Says how far the best is above another one."""
    difference = paired_difference(other.by_seed, best.by_seed)
    assert difference is not None, "ranked methods share their seeds"
    text = f"{difference.mean:.1f} percentage points above {other.name}, {role}"
    if difference.half_width is not None:
        verdict = "clear" if abs(difference.mean) > difference.half_width else "unclear"
        text += (
            f" ({CONFIDENCE:.0%} interval {interval(difference)}, paired by seed and unseen "
            f"domain, {difference.n} seeds): {_VERDICTS[verdict][1]}."
        ).replace("%", " %")
        return verdict, text
    text += ". With one seed, it is unknown what another seed would give."
    spread = over_domains(other, best)
    if spread is not None:
        text += (
            f" Over the {spread.n} unseen domains, {best.name} is {interval(spread)} points "
            f"above {other.name} ({CONFIDENCE:.0%} t-interval over domains, not over seeds)."
        ).replace("%", " %")
    return "untold", text


def over_domains(first: Ranked, second: Ranked) -> Estimate | None:
    """Estimates how far the second is above the first over domains; None with one domain."""
    difference = paired_difference(first.by_column, second.by_column)
    return difference if difference is not None and difference.n > 1 else None


def interval(value: Estimate) -> str:
    """Returns an interval as text: `−0.4 to 2.8`."""
    half = value.half_width or 0.0
    low, high = value.mean - half, value.mean + half
    return f"{low:.1f} to {high:.1f}".replace("-", "−")
