"""The survey that a method asks for before the first step, kept with its run."""

from collections.abc import Iterator

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor

from unseen.data.batch import DomainBatch
from unseen.data.feed import BATCH, Feed, Process
from unseen.data.randomness import image_keys, step_key
from unseen.data.roles import Roles
from unseen.methods.base import Method
from unseen.methods.kinds import SurveyingMethod, TrainingImages
from unseen.records.folder import RunFolder
from unseen.training.checkpoints import load_tensors, save_tensors
from unseen.training.display import Display


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
        return feed.unlabelled(roles.target_rows)

    return TrainingImages(source, target)


def _chunks(values: np.ndarray) -> tuple[Tensor, ...]:
    return torch.from_numpy(values).split(BATCH)
