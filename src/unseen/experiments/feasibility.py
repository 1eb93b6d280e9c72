"""Whether a method can be trained at all with the domains that a plan leaves it."""

from collections.abc import Iterator, Sequence

from unseen.config import Experiment
from unseen.data.dataset import Index
from unseen.data.roles import choose_roles
from unseen.errors import UnseenError
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


def obstacles(base: Base, index: Index, held_out: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """What keeps a method from training, once for each number of domains that are left to it."""
    tried: set[int] = set()
    for domains in held_out:
        left = len(base.experiment.data.training_domains or index.labelled_domains) - len(domains)
        if left in tried:
            continue
        tried.add(left)
        try:
            _build(build_experiment(base.hold_out(domains, seed=0), base.name), index)
        except UnseenError as error:
            yield f"{base.name} with {'+'.join(domains)} held out: {error}"


def _build(experiment: Experiment, index: Index) -> None:
    """The method as it would start, but with random weights: nothing is downloaded for this."""
    looks_at_target(experiment)
    roles = choose_roles(index, experiment.data, experiment.setting)
    check_averaging(experiment, count_steps(experiment, build_sampler(experiment, roles)))
    network = experiment.network.model_copy(update={"pretrained": False})
    experiment = experiment.model_copy(update={"network": network})
    build_method(experiment, build_task(index, experiment))
