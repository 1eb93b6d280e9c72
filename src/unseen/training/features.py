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
from unseen.data.features import (
    COMPACT,
    FULL,
    FeatureFile,
    StoredFeatures,
    as_stored,
    room_for,
)
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


class AugmentedViews:
    """The views that one augmentation makes of some images."""

    def __init__(self, feed: Feed, roles: Roles, experiment: Experiment) -> None:
        self._feed, self._settings = feed, experiment.augment
        seed = experiment.network.view_seed
        self._seed = _SEEDS + seed
        self._sources = list(roles.train.values()) if self._settings.amplitude_mix > 0 else []
        """Training images by training domain, to mix with."""
        if self._sources:
            self.rows = np.sort(np.concatenate([*self._sources, roles.target_rows]))
        else:  # of every domain: one that is unseen here trains in another run
            self.rows = np.flatnonzero(feed.source.index.splits == Split.TRAIN)
        total = hashlib.sha256(repr((deciding(self._settings), seed)).encode())
        for part in (self.rows, *self._sources):
            total.update(len(part).to_bytes(8, "big") + part.tobytes())
        self.key = total.hexdigest()[:16]
        """Changes with the augmentation, the seed of the views, and the images that they are of."""

    def images(self, view: int, rows: np.ndarray) -> Iterator[Tensor]:
        """Pixels of a view, as a network takes them."""
        keys = image_keys(self._seed, view, torch.as_tensor(rows))
        partners = None
        if self._sources:
            domains = np.full(len(rows), -1)  # of images that are in no training domain
            for number, own in enumerate(self._sources):
                domains[np.isin(rows, own)] = number
            partners = partner_rows(keys, domains, self._sources)
        return self._feed.augmented(rows, keys, self._settings, partners)


FEATURES_VERSION = 2
"""Raised whenever the same images and weights would give other features, or another file."""
_SECONDS_BETWEEN_LOOKS = 0.5
_TIMED = 32
"""Images from which the time of all is estimated."""


def stored_features(
    device: torch.device,
    images: Images,
    network: Network,
    experiment: Experiment,
    display: Display,
) -> StoredFeatures:
    """Returns the features of the images as they are and, with `network.views`, of their views:
    from the cache, or computed now."""
    prepared = images.prepared
    feed = Feed(prepared, PixelScale(network.mean, network.std), Process(device))
    versions = _versions(feed, images.roles, network, experiment)
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

    @torch.no_grad()
    def features(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        for images in self.images(rows):
            yield as_stored(self.network.start(images))


def _versions(feed: Feed, roles: Roles, network: Network, experiment: Experiment) -> list[Version]:
    """The images as they are, then the views."""
    assert isinstance(feed.source, PreparedImages)
    plain = plain_version(feed.source, network, experiment.network, feed.images)
    views = AugmentedViews(feed, roles, experiment)
    shape = (len(views.rows), *plain.file.shape[1:])
    found = [plain]
    for view in range(1, experiment.network.views + 1):
        file = FeatureFile(f"{plain.file.name}-{views.key}-{view}", shape, COMPACT)
        called = f"view {view} of {experiment.network.views}"
        found.append(Version(view, called, file, views.rows, partial(views.images, view), network))
    return found


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
    notice = _announce(missing, display) if any(each.number for each in missing) else ""
    while missing:
        for version in missing:
            _make(version, f"computing {version.called}{notice} of", display)
        missing = [version for version in missing if version.file.open() is None]
        if missing:
            done = len(versions) - len(missing)
            display.preparing("another process computes files of", done, len(versions))
            time.sleep(_SECONDS_BETWEEN_LOOKS)
    return [_opened(version.file) for version in versions]


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


def _make(version: Version, doing: str, display: Display) -> None:
    """Computes and writes a file, unless another process is doing so, or just has."""
    with version.file.claimed() as mine:
        if mine and version.file.open() is None:
            version.file.write(lambda: _reported(version, doing, display))
            _opened(version.file)


def _reported(version: Version, doing: str, display: Display) -> Iterator[np.ndarray]:
    done = 0
    for part in version.features(version.rows):
        display.preparing(doing, done, len(version.rows))
        yield part
        done += len(part)
    display.preparing(doing, done, len(version.rows))


def _announce(missing: Sequence[Version], display: Display) -> str:
    """A line about what is to be stored, before it starts; its size and time for the progress."""
    size = sum(version.file.size for version in missing)
    with room_for(size):
        numbers = sum(len(version.rows) for version in missing)
        minutes = _seconds(missing[-1]) * numbers / 60
        cost = f"{size / 1e6:,.0f} MB, about {max(1, round(minutes)):,} min"
    views = [version for version in missing if version.number]
    display.line(
        f"features of {len(views)} views of {len(views[0].rows):,} images are stored, once for all "
        f"runs: {cost} of one process"
    )
    return f" ({cost} in all)"


def _seconds(version: Version) -> float:
    """Measures the time for the features of one image; the first images only warm up."""
    rows, started = version.rows[:_TIMED], 0.0
    for _ in range(2):
        started = time.monotonic()
        list(version.features(rows))
    return (time.monotonic() - started) / len(rows)


def _opened(file: FeatureFile) -> np.ndarray:
    values = file.open()
    if values is None:
        raise DataError("the stored features changed while they were opened; try again")
    return values
