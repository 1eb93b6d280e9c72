"""What has to be said about the images of a plan, once for all of its runs."""

from collections.abc import Iterator, Sequence

from unseen.config import Experiment
from unseen.data.few_images import remarks_on_images
from unseen.data.opening import OpenDatasets
from unseen.data.roles import choose_roles
from unseen.errors import UnseenError


def remarks_on_plan(experiments: Sequence[Experiment], datasets: OpenDatasets) -> tuple[str, ...]:
    """Of each dataset, over all domains that train in any run; validation is that of the run which
    has the fewest images for it."""
    by_dataset: dict[str, list[Experiment]] = {}
    for each in experiments:
        by_dataset.setdefault(each.data.name, []).append(each)
    found = [each for own in by_dataset.values() for each in _of_dataset(own, datasets)]
    return tuple(dict.fromkeys(found))


def _of_dataset(experiments: Sequence[Experiment], datasets: OpenDatasets) -> Iterator[str]:
    first = experiments[0]
    index = datasets.open(first.data).index()
    trained = {frozenset(_training_domains(each, index.domains)) for each in experiments}
    together = [name for name in index.domains if any(name in names for names in trained)]
    shown = {"training_domains": tuple(together), "unseen_domain": ()}
    everything = first.data.model_copy(update=shown)
    try:
        roles = choose_roles(index, everything)
    except UnseenError:  # a run reports what is wrong with it
        return
    number = {name: len(rows) for name, rows in roles.validation.items()}
    fewest = min(sum(number[name] for name in names) for names in trained)
    yield from remarks_on_images(index, roles, first, fewest)


def _training_domains(experiment: Experiment, domains: Sequence[str]) -> list[str]:
    data = experiment.data
    return [d for d in data.training_domains or domains if d not in data.unseen_domain]
