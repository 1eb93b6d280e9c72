"""What a training step of each method costs, beside one of aggregate."""

from functools import partial
from time import process_time
from typing import Any

from benchmarks.figures import Figure, Measurement, alternate, clock, median_ratio
from benchmarks.workload import batch_of, generated, open_run, settings, step_on, workspace
from unseen.settings import catalog
from unseen.settings.experiment import Experiment, complete_settings
from unseen.settings.recipes import build_experiment, merge

LIMIT = 1.2
"""By how much a step may be dearer."""
DEARER = {
    "mldg": 6.0,
    "metareg": 1.5,
    "crossgrad": 6.0,
    "epifcr": 6.0,
    "fusion": 1.3,
    "dsn": 2.5,
    "importance": 3.0,
    "sam": 2.3,
    "sagnet": 2.0,
}
"""By how much for methods that compute more in a step."""

NEEDS: dict[str, dict[str, Any]] = {
    "importance": {"network": {"freeze_until": "classifier"}},
    "reweighting": {"setting": "adaptation", "data": {"unseen_domain": "photo"}},
}
"""Settings that a method cannot do without; aggregate has them as well."""


def over_aggregate(method: str, repeats: int) -> Measurement:
    """At the last step of a run: of a method in two phases, it is the second one."""
    with workspace(pictures_per_class=2) as folder:
        one, aggregate = (
            open_run(_experiment(generated(folder), name, NEEDS.get(method, {})), folder / name)
            for name in (method, "aggregate")
        )
        for session in (one, aggregate):
            session.step = session.steps - 1
        batch = batch_of(one)
        return median_ratio(
            alternate(
                clock(lambda: step_on(one, batch), process_time),
                clock(lambda: step_on(aggregate, batch), process_time),
                repeats,
                warm_up=1,
            )
        )


def _experiment(data: dict[str, Any], method: str, needs: dict[str, Any]) -> Experiment:
    plain = settings(data, method, "efficientnet_lite0", 64)
    return build_experiment(merge(complete_settings(plain), needs))


FIGURES = [
    Figure(
        f"{method} / aggregate, a step",
        f"<= {DEARER.get(method, LIMIT)}",
        "processor time of training steps on one batch of 16 images a domain, EfficientNet-Lite0, "
        "64 px",
        repeats=7,
        measure=partial(over_aggregate, method),
    )
    for method in catalog.METHODS
    if method != "aggregate"
]
