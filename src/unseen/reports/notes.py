"""What a table's caption must say, so that nobody takes a number for more than it is."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from unseen.results.result import RunResult
from unseen.results.rules import rule_note
from unseen.results.statistics import CONFIDENCE, worst_domain
from unseen.settings.experiment import METRICS, Metric


def selection_notes(results: Iterable[RunResult], rule: str, metric: Metric) -> tuple[str, ...]:
    """What the checkpoints were chosen by, and a word where the table shows another metric."""
    by_metric: dict[Metric, dict[str, None]] = {}
    for result in results:
        by_metric.setdefault(result.metric, {})[result.method] = None
    if len(by_metric) == 1:
        (chosen_by,) = by_metric
        first = rule_note(rule, chosen_by)
        if chosen_by == metric:
            return (first,)
        return first, f"Checkpoints were chosen by {METRICS[chosen_by]}, not by {METRICS[metric]}."
    told = "; ".join(f"{METRICS[each]}: {', '.join(names)}" for each, names in by_metric.items())
    return rule_note(rule, None), f"Checkpoints were chosen by different metrics ({told})."


def always_largest_note() -> str:
    return (
        "Largest class: what always answering with a domain's most frequent class would get, "
        "whatever the image."
    )


def seeds_note(seeds: Sequence[int]) -> str:
    """What the number after ± is, or why there is none."""
    if len(seeds) == 1:
        return f"Percent; one seed ({seeds[0]}), so values and differences have no interval."
    return f"Percent; mean ± {CONFIDENCE:.0%} t-interval over {_seeds(seeds)}.".replace("%", " %")


def difference_note(reference: str) -> str:
    return f"Difference to {reference}: of the overall, in percentage points, paired by seed."


def missing_note(
    name: str, by_column: Mapping[str, Mapping[int, float]], seeds: Sequence[int]
) -> str | None:
    """How many results a row lacks, which ones, and which seeds its overall is over."""
    missing = {
        column: [seed for seed in seeds if seed not in values]
        for column, values in by_column.items()
    }
    number, planned = sum(map(len, missing.values())), len(by_column) * len(seeds)
    if not number:
        return None
    if number == planned:
        return f"{name}: all {planned} results are missing."
    which = "; ".join(f"{column}: {_seeds(gone)}" for column, gone in missing.items() if gone)
    whole = [seed for seed in seeds if all(seed in values for values in by_column.values())]
    overall = (
        f"overall is over {_seeds(whole)}"
        if whole
        else "no seed has them all, so there is no overall"
    )
    verb = "is" if number == 1 else "are"
    return f"{name}: {number} of {planned} results {verb} missing ({which}); {overall}."


def partial_note() -> str:
    return "* over fewer seeds than the table has (one, where there is no ±), so never in bold."


def unlike_note(results: Iterable[RunResult]) -> str | None:
    """Say so where runs of one column and backbone were not trained or tested alike."""
    first: dict[tuple[str, ...], RunResult] = {}
    differing: dict[str, None] = {}
    for result in results:
        if result.trained_on_unseen:  # it has a note of its own
            continue
        other = first.setdefault((result.backbone, *sorted(result.unseen_domains)), result)
        for field in ("steps", "training_domains", "classes", "data"):
            if getattr(result, field) != getattr(other, field):
                differing[field.replace("_", " ")] = None
    if not differing:
        return None
    return f"Not comparable: runs in one column differ in {', '.join(differing)}."


def adaptation_note(results: Iterable[RunResult]) -> str | None:
    """Name the rows that had a look at the domain on which they are measured."""
    names = dict.fromkeys(each.method for each in results if each.setting == "adaptation")
    if not names:
        return None
    return (
        f"Adaptation ({', '.join(names)}): trained with unlabelled images of the domain in the "
        "column, and measured on its held-out images only; never in bold beside "
        "methods that did not see it."
    )


def upper_bound_note(results: Sequence[RunResult], rule: str) -> str | None:
    """Name the rows that were trained on labels of the domain on which they are measured, and say
    on how many of its images that is."""
    bounds = [each for each in results if each.trained_on_unseen and rule in each.rules]
    if not bounds:
        return None
    everyone: dict[str, int] = {}
    for each in results:
        if not each.trained_on_unseen and rule in each.rules:
            for domain, measured in each.view(rule, "out_of_domain").items():
                everyone[domain] = max(everyone.get(domain, 0), measured.images)
    images = {
        domain: f"{domain} {measured.images:,}"
        + (f" of {everyone[domain]:,}" if domain in everyone else "")
        for each in bounds
        for domain, measured in each.view(rule, "out_of_domain").items()
    }
    names = dict.fromkeys(each.method for each in bounds)
    return (
        f"{'; '.join(names)}: labelled training images of the domain in the column trained, too, "
        "and it is measured on the held-out images of that domain only "
        f"({', '.join(images.values())}): never in bold, never chosen."
    )


def merged_notes(results: Iterable[RunResult]) -> Iterator[str]:
    """What the rows of merged models are, and what they cost."""
    first = {each.method: each.merged for each in reversed(list(results)) if each.merged}
    for name, merged in reversed(first.items()):
        which = (
            "those of its runs that source validation chose" if merged.choose == "greedy" else ""
        )
        text = (
            f"{name}: the average of the weights of {which or 'all its runs'}, measured as one "
            f"model; it cost the training of {len(merged.runs)} runs in each column"
        )
        if len(merged.seeds) > 1:
            yield (
                f"{text}. It is one model for all seeds, so it has no interval, and its difference "
                "is to the mean over seeds."
            )
        else:
            yield f"{text} and for each seed."


def worst_note(means: Mapping[str, Mapping[str, float]]) -> str:
    """The column in which each row is lowest, since an average hides it."""
    parts = []
    for name, by_column in means.items():
        column, value = worst_domain(by_column)
        parts.append(f"{name} {value:.1f} ({column})")
    return f"Worst unseen domain: {', '.join(parts)}."


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
