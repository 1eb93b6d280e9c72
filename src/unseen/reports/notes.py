"""What a table's caption must say, so that nobody takes a number for more than it is."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from unseen.results.result import RunResult
from unseen.results.rules import rule_note
from unseen.results.statistics import CONFIDENCE, worst_domain
from unseen.settings.experiment import METRICS, Metric

ALWAYS_LARGEST = (
    "Largest class: what always answering with a domain's most frequent class would get, whatever "
    "the image."
)
BOLD = (
    f"Bold: ahead of every other row beyond noise (the paired {100 * CONFIDENCE:.0f} % interval is "
    "above zero)."
)
DIFFERENCE = "Difference to {}: of the overall, in percentage points, paired by seed."
NO_AVERAGE = "Without all their seeds, numbers have a * and no average is made of them."
PARTIAL = (
    "* over fewer seeds than the table has (one, where there is no ±), so never in bold; the "
    "overall is over those that have all columns."
)
MOST_NAMED = 12
"""Rows that notes have room to name."""


def selection_notes(results: Iterable[RunResult], rule: str, metric: Metric) -> Iterator[str]:
    """Says what the checkpoints were chosen by, and whether the table shows another metric."""
    by_metric: dict[Metric, dict[str, None]] = {}
    for result in results:
        by_metric.setdefault(result.metric, {})[result.method] = None
    chosen_by, *others = by_metric
    yield rule_note(rule, None if others else chosen_by)
    if others:
        chosen = "; ".join(f"{METRICS[each]}: {', '.join(by_metric[each])}" for each in by_metric)
        yield f"Checkpoints were chosen by different metrics ({chosen})."
    elif chosen_by != metric:
        yield f"Checkpoints were chosen by {METRICS[chosen_by]}, not by {METRICS[metric]}."


def seeds_note(seeds: Sequence[int]) -> str:
    """Says what the number after ± is, or why there is none."""
    if len(seeds) == 1:
        return f"Percent; one seed ({seeds[0]}), so values and differences have no interval."
    return f"Percent; mean ± {100 * CONFIDENCE:.0f} % t-interval over {_seeds(seeds)}."


def spread_note(numbers: Sequence[int]) -> str:
    """Says the same for the summary over datasets, given the numbers of seeds."""
    if numbers == [1]:
        return "Percent, the mean over the domains of a dataset; one seed, so no error is known."
    return (
        "Percent, the mean over the domains of a dataset; ± is the standard error over "
        f"{' or '.join(map(str, numbers))} seeds (as in DomainBed: the deviation of all of them, "
        "divided by the root of their number; not the interval of the other tables); the average "
        "has none."
    )


def missing_note(
    name: str, by_column: Mapping[str, Mapping[int, float]], seeds: Sequence[int]
) -> Iterator[str]:
    """Says how many results a row lacks, and which ones."""
    missing = {
        column: gone
        for column, values in by_column.items()
        if (gone := [seed for seed in seeds if seed not in values])
    }
    number, planned = sum(map(len, missing.values())), len(by_column) * len(seeds)
    which = "; ".join(f"{column}: {_seeds(gone)}" for column, gone in missing.items())
    if number:
        about = "" if number == planned else f" ({which})"
        verb = "is" if number == 1 else "are"
        yield f"{name}: {number} of {planned} results {verb} missing{about}."


def worst_note(means: Mapping[str, Mapping[str, float]]) -> str:
    """Names the column in which each row is lowest, since an average hides it."""
    worst = {name: worst_domain(by_column) for name, by_column in means.items()}
    parts = (f"{name} {value:.1f} ({column})" for name, (column, value) in worst.items())
    return f"Worst unseen domain: {', '.join(parts)}."


def notes_on_runs(results: Sequence[RunResult], rule: str) -> Iterator[str]:
    """Yields what all tables of these runs say of them."""
    yield from upper_bound_note(results, rule)
    yield from adaptation_note(results)
    first: dict[tuple[str, ...], RunResult] = {}
    differing: dict[str, None] = {}
    for result in (each for each in results if not each.trained_on_unseen):
        other = first.setdefault((result.backbone, *sorted(result.unseen_domains)), result)
        for field in ("steps", "training_domains", "classes", "data"):
            if getattr(result, field) != getattr(other, field):
                differing[field.replace("_", " ")] = None
    if differing:
        yield f"Not comparable: runs in one column differ in {', '.join(differing)}."
    yield from _merged_notes(results)


def upper_bound_note(results: Sequence[RunResult], rule: str) -> Iterator[str]:
    """Names the rows that were trained on labels of the domain on which they are measured, and says
    on how many of its images that is."""
    bounds: dict[str, int] = {}
    everyone: dict[str, int] = {}
    for each in results:
        if rule in each.rules:
            images = bounds if each.trained_on_unseen else everyone
            for domain, measured in each.view(rule, "out_of_domain").items():
                images[domain] = max(images.get(domain, 0), measured.images)
    if bounds:
        parts = (
            f"{domain} {number:,}" + (f" of {everyone[domain]:,}" if domain in everyone else "")
            for domain, number in bounds.items()
        )
        names = dict.fromkeys(each.method for each in results if each.trained_on_unseen)
        yield (
            f"{'; '.join(names)}: labelled training images of the domain in the column trained, "
            "too, and it is measured on the test images of that domain only "
            f"({', '.join(parts)}): never in bold, never chosen."
        )


def adaptation_note(results: Iterable[RunResult]) -> Iterator[str]:
    """Names the rows that had a look at the domain on which they are measured."""
    names = dict.fromkeys(each.method for each in results if each.setting == "adaptation")
    if names:
        yield (
            f"Adaptation ({', '.join(names)}): trained with unlabelled images of the domain in the "
            "column, and measured on its test images only; never in bold beside "
            "methods that did not see it."
        )


def _merged_notes(results: Sequence[RunResult]) -> Iterator[str]:
    """Says what the rows of merged models are, and what they cost."""
    for name, merged in {each.method: each.merged for each in results if each.merged}.items():
        chosen = "those of its runs that validation images chose"
        which = "all its runs" if merged.choose == "all" else chosen
        single = (
            ". It is one model for all seeds, so it has no interval, and its difference is to the "
            "mean over seeds."
        )
        yield (
            f"{name}: the average of the weights of {which}, measured as one model; it cost the "
            f"training of {len(merged.runs)} runs in each column"
            f"{single if len(merged.seeds) > 1 else ' and for each seed.'}"
        )


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
