"""What the page opens with: which method held up best, by how much, and whether that is noise."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, NamedTuple

from unseen.reports.formats import estimate_text
from unseen.reports.gather import BySeed, MethodKey, gather_always_largest
from unseen.reports.page.studies import Study
from unseen.reports.tables import overall_by_seed
from unseen.results.statistics import CONFIDENCE, Estimate, estimate, paired_difference

Verdict = Literal["clear", "unclear", "untold"]


class Ranked(NamedTuple):
    row: MethodKey
    name: str
    overall: Estimate
    by_seed: BySeed
    by_column: dict[str, float]
    """Mean over the seeds that have all columns."""


class Contrast(NamedTuple):
    """The best method against another one."""

    name: str
    role: str
    over_seeds: Estimate
    over_domains: Estimate | None
    """Only where seeds show no spread: an interval over held-out domains."""

    @property
    def verdict(self) -> Verdict:
        if self.over_seeds.half_width is None:
            return "untold"
        return "clear" if abs(self.over_seeds.mean) > self.over_seeds.half_width else "unclear"


@dataclass(frozen=True)
class Conclusion:
    rule: str
    headline: str
    number: str
    sentences: tuple[str, ...]
    verdict: Verdict | None
    verdict_text: str


_VERDICTS: dict[Verdict, str] = {
    "clear": "larger than the noise between seeds",
    "unclear": "not larger than the noise between seeds",
    "untold": "one seed: cannot be told from noise",
}


_HEADLINES: dict[Verdict | None, str] = {
    "clear": " held up best on unseen domains",
    "unclear": " came first on unseen domains, but not by more than noise",
    "untold": " came first on unseen domains, with one seed",
    None: " on unseen domains",
}


def ranking(study: Study, rule: str) -> list[Ranked]:
    """Methods with a result on every held-out domain, best first, over the seeds all of them have.

    Over different seeds a method could come first by its luck with seeds alone. A model that was
    merged over seeds has no noise to be told from: it is ranked only where there is nothing else.
    An upper bound is never ranked.
    """
    numbers = study.numbers(rule, "out_of_domain")
    whole = {row: overall_by_seed(columns, study.seeds) for row, columns in numbers.items()}
    whole = {row: own for row, own in whole.items() if own and row not in study.upper_bounds}
    single = {row: own for row, own in whole.items() if row not in study.layout.over_seeds}
    whole = single or whole
    seeds = shared_seeds(whole.values())
    ranked = []
    for row, by_seed in whole.items():
        own = {seed: by_seed[seed] for seed in seeds if seed in by_seed}
        overall = estimate(list(own.values()))
        if overall is not None and len(own) == len(seeds):
            means = {
                column: fmean(values[seed] for seed in own)
                for column, values in numbers[row].items()
            }
            ranked.append(Ranked(row, study.row_name(row), overall, own, means))
    return sorted(ranked, key=lambda each: -each.overall.mean)


def shared_seeds(methods: Iterable[BySeed]) -> tuple[int, ...]:
    """The seeds that all have; where there is none, those of the methods with the most seeds."""
    sets = [frozenset(by_seed) for by_seed in methods]
    common = frozenset.intersection(*sets) if sets else frozenset()
    return tuple(sorted(common or max(sets, key=len, default=common)))


def conclude(study: Study, rule: str) -> Conclusion:
    ranked = ranking(study, rule)
    if not ranked:
        return Conclusion(rule, _nothing_yet(study), "", tuple(_state(study)), None, "")
    best = ranked[0]
    others = _contrasts(study, ranked)
    average = f"mean over {len(study.columns)} held-out domains"
    where = f"on {study.columns[0]}" if len(study.columns) == 1 else average
    measure = "" if study.metric == "accuracy" else f" {study.measure}"
    sentences = [_told(best.name, contrast) for contrast in others]
    sentences += [*_against_largest(study, rule, best), *_caveats(study, ranked)]
    sentences += _apart(study, rule, ranked)
    verdict = others[0].verdict if others else None
    return Conclusion(
        rule,
        best.name + _HEADLINES[verdict],
        f"{estimate_text(best.overall)} %{measure} ({where})",
        (*sentences, *_state(study)),
        verdict,
        _VERDICTS[verdict] if verdict else "",
    )


def _against_largest(study: Study, rule: str, best: Ranked) -> Iterator[str]:
    """A model may well look good only because one class is frequent."""
    largest = gather_always_largest(study.results, rule, "out_of_domain", study.metric)
    there = [largest[column] for column in study.columns if column in largest]
    if len(there) == len(study.columns) and best.overall.mean <= fmean(there):
        yield (
            "That is not better than always answering with the largest class of each domain, "
            f"whatever the image ({fmean(there):.1f} %)."
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


def _apart(study: Study, rule: str, ranked: list[Ranked]) -> Iterator[str]:
    """Models merged over seeds, which are one number each, and upper bounds."""
    numbers = study.numbers(rule, "out_of_domain")
    for row in study.rows:
        overall = estimate(list(overall_by_seed(numbers[row], study.seeds).values()))
        if row in study.upper_bounds and overall is not None:
            yield f"{study.row_name(row)}: {estimate_text(overall)} %, not ranked."
        elif row in study.layout.over_seeds and row not in {each.row for each in ranked}:
            for accuracy in overall_by_seed(numbers[row], study.seeds).values():
                yield f"{study.row_name(row)}: {accuracy:.1f} %, one model for all seeds."


def _contrasts(study: Study, ranked: list[Ranked]) -> list[Contrast]:
    """Against the next best, and against the baseline where that is another one."""
    best = ranked[0]
    reference = (study.rows[0][0], best.row[1])
    baseline = next((each for each in ranked if each.row == reference), None)
    chosen: dict[MethodKey, tuple[Ranked, str]] = {}
    if len(ranked) > 1:
        role = "the baseline and next best" if ranked[1] is baseline else "the next best"
        chosen[ranked[1].row] = (ranked[1], role)
    if baseline is not None and baseline is not best and baseline.row not in chosen:
        chosen[baseline.row] = (baseline, "the baseline")
    contrasts = []
    for other, role in chosen.values():
        over_seeds = paired_difference(other.by_seed, best.by_seed)
        if over_seeds is not None:
            spread = over_domains(other, best) if over_seeds.half_width is None else None
            contrasts.append(Contrast(other.name, role, over_seeds, spread))
    return contrasts


def over_domains(first: Ranked, second: Ranked) -> Estimate | None:
    """How far the second is above the first, over held-out domains; None with one domain."""
    difference = paired_difference(first.by_column, second.by_column)
    return difference if difference is not None and difference.n > 1 else None


def _told(best: str, contrast: Contrast) -> str:
    difference = contrast.over_seeds
    text = f"{difference.mean:.1f} percentage points above {contrast.name}, {contrast.role}"
    if difference.half_width is not None:
        return (
            f"{text} ({CONFIDENCE:.0%} interval {interval(difference)}, paired by seed and "
            f"held-out domain, {difference.n} seeds): {_VERDICTS[contrast.verdict]}."
        ).replace("%", " %")
    text += ". With one seed, it is unknown what another seed would give."
    if contrast.over_domains is not None:
        text += (
            f" Over the {contrast.over_domains.n} held-out domains, {best} is "
            f"{interval(contrast.over_domains)} points above {contrast.name} ({CONFIDENCE:.0%} "
            "t-interval over domains, not over seeds)."
        ).replace("%", " %")
    return text


def _nothing_yet(study: Study) -> str:
    if not study.results:
        return "No run has finished yet"
    if not study.number_unseen:
        return "No domain was held out, so nothing is known about unseen domains"
    return "No method has a result on every held-out domain yet"


def _state(study: Study) -> list[str]:
    unfinished = study.unfinished
    if not unfinished:
        return []
    verb = "is" if len(unfinished) == 1 else "are"
    return [f"{len(unfinished)} of {len(study.runs)} runs {verb} not finished."]


def interval(value: Estimate) -> str:
    """`−0.4 to 2.8`"""
    half = value.half_width or 0.0
    low, high = value.mean - half, value.mean + half
    return f"{low:.1f} to {high:.1f}".replace("-", "−")
