"""What is computed from all images before the first step: features of the frozen part of a network,
kept for every run, and the survey that a method asks for, kept with its run."""

import hashlib
from collections.abc import Iterator

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor

from unseen.config import NetworkSettings
from unseen.data.augmentation.pixel_scale import PixelScale
from unseen.data.batch import DomainBatch
from unseen.data.feed import BATCH, Feed, Process
from unseen.data.prepare import PreparedImages, ProgressCallback
from unseen.data.randomness import image_keys, step_key
from unseen.data.roles import Roles
from unseen.data.stored_features import StoredFeatures, open_features, write_features
from unseen.errors import DataError
from unseen.methods.base import Method
from unseen.methods.kinds import SurveyingMethod, TrainingImages
from unseen.networks.stages import Network
from unseen.records.folder import RunFolder
from unseen.training.checkpoints import load_tensors, save_tensors
from unseen.training.display import Display

FEATURES_VERSION = 1
"""Raised whenever the same images and weights would give other features."""


def stored_features(
    fabric: Fabric,
    prepared: PreparedImages,
    network: Network,
    settings: NetworkSettings,
    report: ProgressCallback,
) -> StoredFeatures:
    """Features of every image of the dataset, from the cache or computed now."""
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
        raise DataError("the stored features changed while they were opened; try again")
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


def run_survey(
    fabric: Fabric, folder: RunFolder, method: Method, feed: Feed, roles: Roles, display: Display
) -> None:
    """Once in the life of a run, in the first process; all of them use what it found."""
    if isinstance(method, SurveyingMethod):
        if not folder.survey.is_file():
            if fabric.is_global_zero:
                alone = Feed(feed.images, feed.scale, Process(fabric.device))
                save_tensors(folder.survey, method.survey(_training_images(alone, roles)))
            fabric.barrier()
        found = load_tensors(folder.survey)
        method.use_survey({name: tensor.to(fabric.device) for name, tensor in found.items()})
    if fabric.is_global_zero:
        for remark in method.remarks:
            display.line(remark)


def _training_images(feed: Feed, roles: Roles) -> TrainingImages:
    rows = np.concatenate(list(roles.train.values()))
    domains = np.repeat(np.arange(len(roles.train)), [len(r) for r in roles.train.values()])

    def source() -> Iterator[DomainBatch]:
        parts = zip(feed.evaluation(rows), _chunks(rows), _chunks(domains), strict=True)
        for (images, labels), positions, domain_of in parts:
            yield DomainBatch(
                images,
                labels,
                domain_of.to(images.device),
                image_keys(0, 0, positions).to(images.device),
                len(roles.train),
                positions.to(images.device),
                step_key(0, 0).to(images.device),
            )

    def target() -> Iterator[Tensor]:
        return feed.unlabelled(roles.target)

    return TrainingImages(source, target)


def _chunks(values: np.ndarray) -> tuple[Tensor, ...]:
    return torch.from_numpy(values).split(BATCH)
