"""Features at the boundary of a network's frozen part: computed once, then opened by every run."""

import hashlib
from collections.abc import Iterator

import numpy as np
import torch
from lightning_fabric import Fabric

from unseen.config import NetworkSettings
from unseen.data.augment import PixelScale
from unseen.data.feed import Feed, Process
from unseen.data.prepare import PreparedImages, ProgressCallback
from unseen.data.stored_features import StoredFeatures, open_features, write_features
from unseen.errors import DataError
from unseen.networks.stages import Network

FEATURES_VERSION = 1
"""Raised whenever the same images and weights would give other features."""


def stored_features(
    fabric: Fabric,
    prepared: PreparedImages,
    network: Network,
    settings: NetworkSettings,
    report: ProgressCallback,
) -> StoredFeatures:
    """What the frozen stages make of every image of the dataset, from the cache or made now."""
    assert network.frozen_until is not None
    shape = network.input_shapes[network.frozen_until]
    key = features_key(prepared, network, settings)
    stored = open_features(key, prepared.index, shape)
    if stored is None:
        if fabric.is_global_zero:
            feed = Feed(prepared, PixelScale(network.mean, network.std), Process(fabric.device))
            parts = _compute(feed, network, report)
            write_features(key, len(prepared.index), shape, parts)
        fabric.barrier()
        stored = open_features(key, prepared.index, shape)
    if stored is None:
        raise DataError("the stored features vanished while they were opened; try again")
    return stored


def features_key(prepared: PreparedImages, network: Network, settings: NetworkSettings) -> str:
    """Changes with the images, their size and form, the frozen weights, and the boundary."""
    total = hashlib.sha256()
    about = (
        FEATURES_VERSION, prepared.content, prepared.left_out, prepared.size, prepared.form,
        settings.name, network.mean, network.std, network.frozen_until,
    )  # fmt: skip
    total.update(repr(about).encode())
    for name in network.frozen_stages():
        for tensor_name, tensor in network.stage(name).state_dict().items():
            total.update(f"{name} {tensor_name} {tuple(tensor.shape)}".encode())
            total.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return total.hexdigest()[:32]


@torch.no_grad()
def _compute(feed: Feed, network: Network, report: ProgressCallback) -> Iterator[np.ndarray]:
    total = len(feed.images.index)
    done = 0
    for images in feed.unlabelled(np.arange(total)):
        report("computing features of", done, total)
        yield network.start(images).float().contiguous().cpu().numpy()
        done += len(images)
    report("computing features of", total, total)
