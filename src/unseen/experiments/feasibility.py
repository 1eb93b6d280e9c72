"""Whether a method can be trained at all with the domains that a plan leaves it."""

from collections.abc import Iterator, Sequence

from unseen.config import Experiment
from unseen.data.dataset import Index
from unseen.data.opening import OpenDatasets
from unseen.data.roles import choose_roles
from unseen.errors import DataError, UnseenError
from unseen.experiments.bases import Base
from unseen.recipe_files import build_experiment
from unseen.training.averaging.build import check_averaging
from unseen.training.build import (
    build_method,
    build_sampler,
    build_task,
    count_steps,
    looks_at_target,
)


def no_pairs(base: Base, held_out: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Why no other domain can be held out beside each of these."""
    if base.experiment.setting == "adaptation":
        yield (
            f"pairs: {base.name} adapts to one target domain, so it cannot hold out two; "
            "leave the method out, or set pairs=none"
        )
    together = next((domains for domains in held_out if len(domains) > 1), None)
    if together:
        yield (
            f"pairs: {'+'.join(together)} are held out together already; name single domains, or "
            "set pairs=none"
        )


Built = dict[tuple[str, int, int], str]
"""What building a method said, by its settings without those of the data, and the numbers of
domains and classes: datasets that are alike in these build the same."""


def open_indexes(
    bases: Sequence[Base], datasets: OpenDatasets
) -> tuple[list[Index | None], dict[str, str]]:
    """The index of each base's dataset, none where it is not at hand; and why not, by dataset."""
    found: list[Index | None] = []
    absent: dict[str, str] = {}
    for base in bases:
        try:
            found.append(datasets.open(base.experiment.data).index())
        except DataError as error:
            if len({each.dataset for each in bases}) == 1:
                raise
            absent[base.dataset] = str(error)
            found.append(None)
    return found, absent


def obstacles(
    base: Base, index: Index, held_out: Sequence[tuple[str, ...]], built: Built
) -> Iterator[str]:
    """What keeps a method from training, once for each number of domains that are left to it."""
    tried: set[int] = set()
    for domains in held_out:
        left = len(base.experiment.data.training_domains or index.labelled_domains) - len(domains)
        if left in tried:
            continue
        tried.add(left)
        try:
            error = _obstacle(
                build_experiment(base.hold_out(domains, seed=0), base.name), index, built
            )
        except UnseenError as caught:
            error = str(caught)
        if error:
            yield f"{base.name} with {'+'.join(domains)} held out: {error}"


def _obstacle(experiment: Experiment, index: Index, built: Built) -> str:
    """Builds the method as it would start, but with random weights: nothing is downloaded."""
    looks_at_target(experiment)
    roles = choose_roles(index, experiment.data, experiment.setting)
    check_averaging(experiment, count_steps(experiment, build_sampler(experiment, roles)))
    network = experiment.network.model_copy(update={"pretrained": False})
    experiment = experiment.model_copy(update={"network": network})
    about = experiment.model_dump_json(exclude={"data"})
    key = (about, len(roles.training_domains), len(index.classes))
    if key not in built:
        built[key] = ""
        try:
            build_method(experiment, build_task(index, experiment))
        except UnseenError as error:
            built[key] = str(error)
    return built[key]
