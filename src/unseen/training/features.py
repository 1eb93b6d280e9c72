"""Features from the frozen part of a network, computed once and kept for every run: of all images
as they are, and of augmented views of those that train."""

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unseen.data.augment import PixelScale
from unseen.data.features import COMPACT, FULL, FeatureFile, StoredFeatures, as_stored, room_for
from unseen.data.feed import Feed, Process
from unseen.data.index import Split
from unseen.data.prepare import PreparedImages
from unseen.data.randomness import image_keys
from unseen.data.roles import Roles
from unseen.data.styles import partner_rows
from unseen.errors import DataError, SettingsError
from unseen.networks.backbones import build_network
from unseen.networks.stages import Network
from unseen.settings.experiment import Experiment, NetworkSettings, deciding
from unseen.training.build import Images
from unseen.training.display import Display

_SEEDS = 1 << 40
"""Added to `network.view_seed`: no run's own random numbers are those of a view."""


FEATURES_VERSION = 2
"""Raised whenever the same images and weights would give other features, or another file."""
_SECONDS_BETWEEN_LOOKS = 0.5


def stored_features(
    device: torch.device, images: Images, network: Network, experiment: Experiment, display: Display
) -> StoredFeatures:
    """Returns the features of the images as they are and, with `network.views`, of their views:
    from the cache, or computed now."""
    prepared = images.prepared
    feed = Feed(prepared, PixelScale(network.mean, network.std), Process(device))
    versions = [plain_version(prepared, network, experiment.network, feed.images)]
    if experiment.network.views:
        versions += _views(versions[0], feed, images.roles, experiment)
    plain, *views = complete(versions, display)
    return StoredFeatures(prepared.index, plain, versions[-1].rows, views)


def features_of_images(
    prepared: PreparedImages, settings: NetworkSettings, display: Display
) -> np.ndarray:
    """Returns what enters the last stages of a pretrained network, for all images: from the cache,
    or computed now."""
    if settings.pretrained is False:
        raise SettingsError(
            "labels are checked with features of a pretrained network; set network.pretrained=true "
            "and a network.name that has ImageNet weights, such as efficientnet_lite0"
        )
    whole = settings.model_copy(update={"image_size": prepared.size, "freeze_until": None})
    network = build_network(whole, len(prepared.index.classes)).eval()
    network.freeze(network.mask_sites[0])
    feed = Feed(prepared, PixelScale(network.mean, network.std), Process(torch.device("cpu")))
    [features] = complete([plain_version(prepared, network, settings, feed.images)], display)
    return features


Inputs = Callable[[np.ndarray], Iterator[Tensor]]
"""From rows to what a network takes, in batches."""


class Version(NamedTuple):
    """All images as they are (number 0), or a view of those that train, and where its features
    are kept."""

    number: int
    called: str
    file: FeatureFile
    rows: np.ndarray
    images: Inputs
    network: Network


def _views(plain: Version, feed: Feed, roles: Roles, experiment: Experiment) -> Iterator[Version]:
    """Yields the views that the augmentation makes of training images. Their files are other ones
    if the augmentation changes, the seed of the views, or the images that they are of."""
    settings, seed = experiment.augment, experiment.network.view_seed
    sources = list(roles.train.values()) if settings.amplitude_mix > 0 else []
    if sources:  # images of other training domains to mix with
        rows = np.sort(np.concatenate([*sources, roles.target_rows]))
    else:  # of every domain: one that is unseen here trains in another run
        rows = np.flatnonzero(feed.source.index.splits == Split.TRAIN)
    total = hashlib.sha256(repr((deciding(settings), seed)).encode())
    for part in (rows, *sources):
        total.update(len(part).to_bytes(8, "big") + part.tobytes())

    def images(view: int, rows: np.ndarray) -> Iterator[Tensor]:
        keys = image_keys(_SEEDS + seed, view, torch.as_tensor(rows))
        partners = None
        if sources:
            domains = np.full(len(rows), -1)  # of images that are in no training domain
            for number, own in enumerate(sources):
                domains[np.isin(rows, own)] = number
            partners = partner_rows(keys, domains, sources)
        return feed.augmented(rows, keys, settings, partners)

    number, shape = experiment.network.views, (len(rows), *plain.file.shape[1:])
    for view in range(1, number + 1):
        name = f"{plain.file.name}-{total.hexdigest()[:16]}-{view}"
        called, file = f"view {view} of {number}", FeatureFile(name, shape, COMPACT)
        yield Version(view, called, file, rows, partial(images, view), plain.network)


def plain_version(
    prepared: PreparedImages, network: Network, settings: NetworkSettings, images: Inputs
) -> Version:
    """All images as they are, up to the end of the network's frozen part."""
    assert network.frozen_until is not None
    shape = network.input_shapes[network.frozen_until]
    if len(shape) == 3:
        shape = (*shape[1:], shape[0])
    rows = np.arange(len(prepared.index))
    file = FeatureFile(features_key(prepared, network, settings), (len(rows), *shape), FULL)
    return Version(0, "features", file, rows, images, network)


def complete(versions: Sequence[Version], display: Display) -> list[np.ndarray]:
    """Returns the features of all versions; what is missing is computed. Processes that want the
    same share the work, a file each."""
    missing = [version for version in versions if version.file.open() is None]
    views = [version for version in missing if version.number]
    if views:
        size = sum(version.file.size for version in missing)
        with room_for(size):
            display.line(
                f"features of {len(views)} views of {len(views[0].rows):,} images are stored, once "
                f"for all runs: {size / 1e6:,.0f} MB"
            )
    while missing:
        for version in missing:
            with version.file.claimed() as mine:  # not where another process is just making it
                if mine and version.file.open() is None:
                    version.file.write(partial(_reported, version, display))
                    _opened(version.file)
        missing = [version for version in missing if version.file.open() is None]
        if missing:
            done = len(versions) - len(missing)
            display.preparing("another process computes files of", done, len(versions))
            time.sleep(_SECONDS_BETWEEN_LOOKS)
    return [_opened(version.file) for version in versions]


def _opened(file: FeatureFile) -> np.ndarray:
    values = file.open()
    if values is None:
        raise DataError("the stored features changed while they were opened; try again")
    return values


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
def _reported(version: Version, display: Display) -> Iterator[np.ndarray]:
    """Yields the features of a version, and shows how many there are."""
    done, doing = 0, f"computing {version.called} of"
    for images in version.images(version.rows):
        display.preparing(doing, done, len(version.rows))
        yield as_stored(version.network.start(images))
        done += len(images)
    display.preparing(doing, done, len(version.rows))
