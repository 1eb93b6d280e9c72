"""What a sweep costs that is too large to list run by run, or whose data are not all at hand."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from unseen.data.dataset import OpenDatasets, Published
from unseen.errors import SettingsError
from unseen.settings import catalog
from unseen.settings.experiment import Experiment
from unseen.sweeps.bases import SET_BY_THE_SWEEP, Base, choices, find_bases, range_mistakes
from unseen.sweeps.cost import Row
from unseen.sweeps.draws import Sweep
from unseen.sweeps.plan import Built, no_pairs, obstacles, open_indexes
from unseen.training.timing import ImageTimes

LARGE = 5000
"""Runs from which on they are counted and timed by method, not looked at one by one."""

Measure = Callable[[Experiment, int, int], ImageTimes]
"""From settings and numbers of domains and classes."""


class Part(NamedTuple):
    """All runs of one method on one dataset and backbone."""

    base: Base
    size: Published
    singles: int
    """Domains, or groups of them, that are held out in turn."""
    pairs: int
    seeds: int
    draws: int
    batch: float
    """Images of a domain in a batch, on average over the draws, by those of the recipe."""
    nested: bool

    @property
    def runs(self) -> int:
        singles = self.singles if self.nested else self.singles * self.draws
        return (singles + self.pairs * self.draws) * self.seeds


class Outline(NamedTuple):
    """A sweep before it is planned run by run."""

    parts: tuple[Part, ...]
    absent: Mapping[str, str]
    """Datasets that are not at hand, and why."""

    @property
    def runs(self) -> int:
        return sum(part.runs for part in self.parts)


def outline(sweep: Sweep, name: str) -> Outline:
    """How many runs there are of what; a mistake in the file is an error, a dataset that is not at
    hand is counted by its published size."""
    bases, problems = find_bases(sweep, SET_BY_THE_SWEEP)
    problems += range_mistakes(sweep, bases) if bases else []
    parts: list[Part] = []
    absent: dict[str, str] = {}
    if not problems:
        indexes, absent = open_indexes(bases, OpenDatasets())
        built: Built = {}
        for base, index in zip(bases, indexes, strict=True):
            if index is None:
                size = catalog.load("dataset", base.experiment.data.name).published_size
                parts += _published_part(sweep, base, size) if size else []
            else:
                domains = index.domains if sweep.unseen else index.labelled_domains
                held_out, pairs = _held_out(sweep, base, domains, sweep.unseen)
                problems += no_pairs(base, held_out) if pairs else []
                problems += obstacles(base, index, [*held_out, *pairs], built)
                size = Published(len(index.labelled_domains), len(index.classes), len(index))
                parts.append(_part(sweep, base, size, len(held_out), len(pairs)))
    if problems:
        lines = "\n  ".join(dict.fromkeys(problems))
        raise SettingsError(f"{name} is not a valid sweep:\n  {lines}")
    return Outline(tuple(parts), absent)


def _held_out(
    sweep: Sweep, base: Base, domains: Sequence[str], wanted: Sequence[str]
) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Single domains, and pairs of them."""
    held_out = base.targets(domains, wanted)
    if not sweep.has_pairs(base.dataset):
        return held_out, []
    return held_out, base.pairs(domains, [target for (target, *_) in held_out])


def _published_part(sweep: Sweep, base: Base, size: Published) -> list[Part]:
    """Every domain in turn, whatever they are called."""
    domains = [f"domain {number}" for number in range(size.domains)]
    held_out, pairs = _held_out(sweep, base, domains, ())
    return [_part(sweep, base, size, len(held_out), len(pairs))]


def _part(sweep: Sweep, base: Base, size: Published, singles: int, pairs: int) -> Part:
    own = base.experiment.images_per_domain
    drawn = choices(sweep, base, sweep.seeds[0])
    batch = fmean(choice.get("images_per_domain", own) for choice in drawn) / own
    nested = sweep.pairs == "nested"
    return Part(base, size, singles, pairs, len(sweep.seeds), len(drawn), batch, nested)


def estimate_parts(parts: Iterable[Part], measure: Measure) -> list[Row]:
    """One row for each dataset and backbone; every method is timed once on each backbone."""
    times: dict[tuple[str, str, int | None], ImageTimes] = {}
    rows: dict[tuple[str, str], list[tuple[Part, float]]] = {}
    for part in parts:
        network, method = part.base.experiment.network, part.base.experiment.method
        key = (method.model_dump_json(), network.name, network.image_size)
        if key not in times:
            times[key] = measure(part.base.experiment, max(2, part.size.domains - 1), 7)
        seconds = run_seconds(part, times[key])
        rows.setdefault((part.base.dataset, network.name), []).append((part, seconds))
    return list(_rows(rows))


def _rows(found: Mapping[tuple[str, str], Sequence[tuple[Part, float]]]) -> Iterator[Row]:
    for (dataset, backbone), own in found.items():
        runs = sum(part.runs for part, _ in own)
        work = sum(part.runs * seconds for part, seconds in own)
        methods = own[0][0].base.method if len(own) == 1 else f"{len(own)} methods"
        basis = "a step on noise"
        yield Row((dataset, methods, backbone), runs, {}, work / runs, work, basis)


def run_seconds(part: Part, times: ImageTimes) -> float:
    """Steps, evaluations on the validation images, and the measurement at the end."""
    experiment, size = part.base.experiment, part.size
    training = max(1, size.domains - 1)
    seen = size.images * training / size.domains
    validated = seen * experiment.data.validation_share
    batch = experiment.images_per_domain * training
    trained = seen * (1 - experiment.data.validation_share - experiment.data.test_share)
    steps = experiment.steps or (experiment.epochs or 0) * trained / batch
    evaluations = math.ceil(steps / experiment.evaluate_every)
    final = 2 * (size.images / size.domains + validated)
    return (
        steps * batch * part.batch * times.training
        + (evaluations * validated + final) * times.evaluation
    )
