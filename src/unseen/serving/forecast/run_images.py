"""A finished run, its model and its own images: for profiles that were not written when it ended,
and for what it says of domains that it left out."""

import hashlib
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch

from unseen.data.cache import cache_folder
from unseen.data.features.stored import StoredFeatures
from unseen.data.feed import Feed, Process
from unseen.data.opening import OpenDatasets
from unseen.errors import DataError, UnseenError
from unseen.forecast.profile import VERSION, Observed, Profile
from unseen.records.arrays import read_arrays_if_whole, write_arrays
from unseen.records.folder import RunFolder
from unseen.records.result import RunResult
from unseen.serving.model import Model
from unseen.training.build import Images, build_images
from unseen.training.first_pass.features import plain_version
from unseen.training.last_pass.profile import Answerer, make_profile
from unseen.training.pictures import evenly

_DATASETS = OpenDatasets()
LOOKED_AT = 500
"""Images of a domain that was left out, evenly spaced."""


class LeftOut(NamedTuple):
    """What a run says of a domain that it left out, and how often it is right there."""

    observed: Observed
    accuracy: float
    images: int


class RunImages:
    """Opened only as far as it is asked for; answers are kept in the cache."""

    def __init__(self, folder: RunFolder, device: str = "auto") -> None:
        self.folder, self.device = folder, device
        self.result: RunResult = folder.read_result()

    @cached_property
    def profile(self) -> Profile:
        """The run's own; made now for a run of an older version."""
        if self.folder.profile.is_file():
            return Profile.read(self.folder.profile)
        file = self._cached("profile")
        if file.is_file():
            try:
                return Profile.read(file)
            except UnseenError:  # it is made again
                pass
        profile = make_profile(self._answerer, self._images)
        profile.write(file)
        return profile

    def left_out(self, domain: str) -> LeftOut:
        """Labels are not looked at: the accuracy is the one that the run recorded."""
        measured = self.result.view(self.result.selection, "out_of_domain")[domain]
        file = self._cached(f"answers on {domain}")
        found = read_arrays_if_whole(file)
        if "scores" not in found:
            rows = evenly(self._images.roles.out_of_domain[domain], LOOKED_AT)
            observed = self._answerer.observe(rows, rows)
            found = {key: value for key, value in observed._asdict().items() if value is not None}
            write_arrays(file, found)
        observed = Observed(**found)
        return LeftOut(observed, measured.accuracy, measured.images)

    def _cached(self, what: str) -> Path:
        about = (
            f"{VERSION} {what} with features {LOOKED_AT} {self._weights_digest} {self.result.data}"
        )
        return (
            cache_folder() / "forecast" / f"{hashlib.sha256(about.encode()).hexdigest()[:32]}.npz"
        )

    @cached_property
    def _weights_digest(self) -> str:
        weights = self.folder.weights(self.result.selection)
        return hashlib.sha256(weights.read_bytes()).hexdigest()

    @cached_property
    def _model(self) -> Model:
        return Model.from_run(self.folder, self.device)

    @cached_property
    def _images(self) -> Images:
        experiment = self._model.experiment
        images = build_images(_DATASETS.open(experiment.data), experiment, self._model.image_size)
        if images.prepared.content != self.result.data:
            raise DataError(
                f"the images have changed since the run in {self.folder.path} was trained; put "
                "them back, or train it again"
            )
        return images

    @cached_property
    def _answerer(self) -> Answerer:
        model, prepared = self._model, self._images.prepared
        process = Process(model.device)
        feed = Feed(prepared, model.scale, process)
        network, settings = model.method.network, model.experiment.network
        if network.frozen_until is not None and settings.store_features:
            stored = plain_version(prepared, network, settings, feed.unlabelled).file.open()
            if stored is not None:  # they need not be computed again
                feed = Feed(StoredFeatures(prepared.index, stored), model.scale, process)
        if model.experiment.precision != "bf16":
            return Answerer(model.method, feed, nullcontext)
        return Answerer(
            model.method, feed, lambda: torch.autocast(model.device.type, torch.bfloat16)
        )
