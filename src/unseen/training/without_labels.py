"""A model in training, judged by unlabelled target images: those that training looks at, never the
ones that are measured."""

import numpy as np
import torch
from torch import Tensor

from unseen import across_devices
from unseen.data.feed import Process
from unseen.forecast.profile import project
from unseen.methods.base import Method
from unseen.networks.stages import Change
from unseen.results.statistics import Observed, evenly, judge
from unseen.training.pictures import penultimate, pooled
from unseen.training.state import RunState, over_devices

MOST_IMAGES = 1_000
"""Of the target domains, and of source validation: what an evaluation looks at."""


@torch.no_grad()
def judge_without_labels(state: RunState) -> dict[str, float]:
    """By selection rule, the same on every device. One pass over images serves all rules."""
    roles = state.images.roles
    target = evenly(roles.target_rows, MOST_IMAGES)
    each = max(2, MOST_IMAGES // len(roles.validation))
    source = np.concatenate([evenly(rows, each) for rows in roles.validation.values()])
    was_training = state.module.training
    state.module.eval()
    try:
        seen, known = _observe(state, target), _observe(state, source)
    finally:
        state.module.train(was_training)
    found = judge(seen, known, state.images.prepared.index.labels[source])
    values = torch.tensor(list(found.values()), dtype=torch.float64, device=state.process.device)
    across_devices.as_first(values)
    return dict(zip(found, values.tolist(), strict=True))


def _observe(state: RunState, rows: np.ndarray) -> Observed:
    """Each device answers its share of the images, unless there are too few to share."""
    process = state.process
    share = _share(process, len(rows))
    parts: list[tuple[Tensor, Tensor]] = []
    for images in state.feed.images(rows[share]):
        with state.fabric.autocast():
            parts.append(scores_and_features(state.method, images))
    found = (torch.cat(each).float() for each in zip(*parts, strict=True))
    scores, features = (_together(state, own, share, len(rows)) for own in found)
    return Observed(scores, project(features))


def _share(process: Process, number: int) -> slice:
    shared = number >= process.world_size
    return slice(process.rank, None, process.world_size) if shared else slice(None)


def _together(state: RunState, own: Tensor, share: slice, number: int) -> np.ndarray:
    """Rows of all devices, in order."""
    if share == slice(None):
        return own.cpu().numpy()
    whole = own.new_zeros(number, *own.shape[1:])
    whole[share] = own
    return over_devices(state.fabric, whole, "sum").cpu().numpy()


def scores_and_features(method: Method, images: Tensor) -> tuple[Tensor, Tensor]:
    """What a method answers, and what its classifier saw when it did: in one pass, unless the
    method runs the classifier more than once, or not at all."""
    seen: list[Tensor] = []

    def keep(x: Tensor, rows: Tensor | None) -> Tensor:
        seen.append(x)
        return x

    changes: dict[str, Change] = {method.network.head: keep}
    with method.network.changed_inputs(changes):
        scores = method.predict(images)
    once = len(seen) == 1 and len(seen[0]) == len(images)
    features = pooled(seen[0]) if once else penultimate(method.network, images)
    return scores, features
