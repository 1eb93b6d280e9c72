"""A run, and from its settings to its parts: task, method, images and what each of them is for."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch
from lightning_fabric import Fabric
from torch import Tensor

from unseen.atomic import read_json, write_json
from unseen.data.batch import Task
from unseen.data.dataset import Dataset
from unseen.data.decoding import ProgressCallback
from unseen.data.index import Index
from unseen.data.prepare import PreparedImages, prepare
from unseen.data.roles import Roles, choose_roles
from unseen.data.sampling import Sampler
from unseen.errors import DataError, SettingsError, UnseenError
from unseen.methods.base import Method
from unseen.networks.backbones import build_network
from unseen.networks.stages import Network, linear_classifier, set_classifier
from unseen.results.folder import MetricsLog, RunFolder
from unseen.results.rules import WITHOUT_LABELS, Evaluation
from unseen.settings import catalog
from unseen.settings.experiment import Experiment

CHANGES_OF_PIXELS = ("randaugment", "random_convolution", "amplitude_mix", "erasing")
"""Strengths in `AugmentSettings` that are off unless somebody asks for them."""


class Images(NamedTuple):
    """The prepared images of a run, their roles, and what they were made from."""

    prepared: PreparedImages
    roles: Roles
    dataset: Dataset


@dataclass
class Run:
    """One of the runs of a session."""

    experiment: Experiment
    folder: RunFolder
    images: Images
    task: Task
    log: MetricsLog | None = None
    """Of a run that trains alone, and on rank 0 only, which alone writes files."""
    records: list[dict[str, Any]] = field(default_factory=list)
    """What a run that trains together with others writes when all of them are done."""
    evaluations: list[Evaluation] = field(default_factory=list)
    error: UnseenError | None = None
    """Why it stopped, while the others go on."""

    @cached_property
    def sampler(self) -> Sampler:
        """Which images are in which batch."""
        return build_sampler(self.experiment, self.images.roles)

    def record(self, record: dict[str, Any]) -> None:
        """Adds a line to metrics.jsonl."""
        if self.log is not None:
            self.log.write(record)
        else:
            self.records.append(record)


def build_task(index: Index, experiment: Experiment) -> Task:
    """Classes and training domains, known without opening an image. Classes that only other domains
    have are none of the task's."""
    roles = choose_roles(index, experiment.data, experiment.setting)
    classes, target = index.classes_in(roles.training_domains), "+".join(roles.target) or None
    return Task(classes, roles.training_domains, target, experiment.label_smoothing)


def build_method(
    experiment: Experiment, task: Task, head: Mapping[str, Tensor] | None = None
) -> Method:
    """Network and method with their first weights, which depend on the seed alone, but for a
    classifier that was fitted first: `head`."""
    torch.manual_seed(experiment.seed)
    network = build_network(experiment.network, len(task.classes))
    return build_method_on(network, experiment, task, head)


def build_method_on(
    network: Network, experiment: Experiment, task: Task, head: Mapping[str, Tensor] | None = None
) -> Method:
    """The method on a network that was just built; its own first weights are drawn afterwards."""
    if head is not None:
        set_classifier(network, head["weight"], head["bias"])
    first = linear_classifier(network).weight.detach().clone() if experiment.head_first else None
    method = catalog.load("method", experiment.method.name)(network, task, experiment.method)
    check_mixstyle(experiment, network)
    if first is not None:  # some parameter is the network's classifier, or copies of it
        alike = (p for p in method.parameters() if p.shape[-2:] == first.shape)
        if not any(torch.equal(p, first.expand_as(p)) for p in alike):
            raise SettingsError(
                f"head_first=true fits the network's classifier, but the method "
                f"'{method.config.name}' has one of its own; leave out head_first"
            )
    return method.to(memory_format=torch.channels_last)


def build_images(
    dataset: Dataset, experiment: Experiment, size: int, report: ProgressCallback | None = None
) -> Images:
    """The prepared images at the network's input size, made now if need be."""
    prepared = prepare(dataset, size, report)
    task = build_task(dataset.index(), experiment)
    prepared.index = prepared.index.with_classes(task.classes)
    roles = choose_roles(prepared.index, experiment.data, experiment.setting)
    return Images(prepared, roles, dataset)


def build_sampler(experiment: Experiment, roles: Roles) -> Sampler:
    """Every device, and every part that it computes, gets equally many images: only then is the
    mean of their gradients that of the whole batch."""
    check_augmentation(experiment, roles)
    per_domain, devices = experiment.images_per_domain, experiment.devices
    sizes, target = {"images_per_domain": per_domain}, None
    if check_target_use(experiment):
        number = experiment.target_images or per_domain * len(roles.train)
        sizes["target_images"] = number
        target = (roles.target_rows, number)
    shares = devices.number * devices.accumulate
    for name, images in sizes.items():
        if images % shares:
            raise SettingsError(
                f"{name}={images} cannot be divided equally among {devices.number} devices with "
                f"devices.accumulate={devices.accumulate}; choose a multiple of {shares}"
            )
    how = (per_domain, experiment.sampling, experiment.seed)
    return Sampler(list(roles.train.values()), *how, target, list(roles.labels.values()))


def trains_from_features(experiment: Experiment) -> bool:
    """Returns whether this run reads stored features in place of pixels."""
    kind: type[Method] = catalog.load("method", experiment.method.name)
    frozen = experiment.network.freeze_until is not None
    return frozen and experiment.network.store_features and not kind.traits.needs_pixels


def check_augmentation(experiment: Experiment, roles: Roles) -> None:
    """Refuses what would change nothing, or has nothing to work with."""
    chosen = [name for name in CHANGES_OF_PIXELS if getattr(experiment.augment, name) > 0]
    if chosen and trains_from_features(experiment) and not experiment.network.views:
        raise SettingsError(
            f"augment.{chosen[0]} changes pixels, but this run trains from stored features "
            f"(network.freeze_until={experiment.network.freeze_until}); set network.views to store "
            "those of augmented images, too, set network.store_features=false, or leave it out"
        )
    if experiment.augment.amplitude_mix > 0 and len(roles.train) < 2:
        raise SettingsError(
            "augment.amplitude_mix mixes images of different training domains, found one "
            f"({', '.join(roles.train)}); train on more domains, or leave it out"
        )


def check_mixstyle(experiment: Experiment, network: Network) -> None:
    """Refuses stages at which styles cannot be mixed, and batches that devices share unequally."""
    stored = network.frozen_stages() if trains_from_features(experiment) else ()
    maps = [name for name in network.names if len(network.input_shapes[name]) == 3]
    fitting = [name for name in maps if name not in stored]
    for stage in experiment.augment.mixstyle_stages:
        if stage not in fitting:
            raise SettingsError(
                f"augment.mixstyle_stages: '{stage}' is no stage with maps of channels at its "
                "input, or its output is stored (network.store_features=false changes that); "
                f"choose from {', '.join(fitting) or 'none'}"
            )
    unequal = experiment.sampling == "pooled" and experiment.devices.number > 1
    if experiment.augment.mixstyle > 0 and unequal:
        raise SettingsError(
            "augment.mixstyle on several devices needs batches in which all of them have images of "
            "every domain; set sampling=balanced or devices.number=1"
        )


def check_target_use(experiment: Experiment) -> bool:
    """Returns whether batches hold unlabelled target images; raises where the settings and the
    method do not agree on that."""
    wish = catalog.load("method", experiment.method.name).traits.target_images
    if wish in {"required", "dataset_pass"} and experiment.setting == "generalization":
        raise SettingsError(
            f"the method '{experiment.method.name}' needs unlabelled images of the target domain; "
            "set setting=adaptation and data.unseen_domain=DOMAIN"
        )
    in_batches = wish in {"optional", "required"}
    if not in_batches and experiment.target_images is not None:
        raise SettingsError(
            f"the method '{experiment.method.name}' uses no target images in its batches; "
            "leave out target_images"
        )
    return in_batches and experiment.setting == "adaptation"


def count_steps(experiment: Experiment, sampler: Sampler) -> int:
    """Returns the length of the run in steps, however it was given."""
    if experiment.steps is not None:
        return experiment.steps
    assert experiment.epochs is not None
    return max(1, round(experiment.epochs * sampler.steps_per_epoch))


def own_tensors(method: Method) -> Iterator[tuple[str, Tensor]]:
    """Yields parameters and buffers but for those of the network's frozen part."""
    frozen = _frozen(method.network)
    for name, tensor in method.state_dict(keep_vars=True).items():
        if id(tensor) not in frozen:
            yield name, tensor


def copy_of(network: Network) -> Network:
    """Returns an independent network but for its frozen part, which it shares: that never
    changes."""
    return copy.deepcopy(network, _frozen(network))


def _frozen(network: Network) -> dict[int, Tensor]:
    """Returns the tensors of the frozen part by their id."""
    stages = (network.stage(name).state_dict(keep_vars=True) for name in network.frozen_stages())
    return {id(tensor): tensor for stage in stages for tensor in stage.values()}


def rules_of(experiment: Experiment) -> tuple[str, ...]:
    """Returns the selection rules whose weights a run keeps."""
    oracle = ("oracle",) if experiment.selection == "oracle" else ()
    without_labels = tuple(WITHOUT_LABELS) if experiment.setting == "adaptation" else ()
    return (*oracle, *without_labels, "source", "last")


def remember_images(fabric: Fabric, folder: RunFolder, images: Images) -> None:
    """Records which images a run was started with; it can only go on with the same ones."""
    if not folder.data.is_file():
        if fabric.is_global_zero:
            write_json(folder.data, describe_images(images))
        return
    if read_json(folder.data)["content"] != images.prepared.content:
        raise DataError(
            f"the images have changed since the run in {folder.path} was started; "
            "put them back, or train in another folder (--runs DIR)"
        )


def describe_images(images: Images) -> dict[str, Any]:
    """Returns what a run was given: content, classes, and how many images of each domain for
    what."""
    prepared, roles = images.prepared, images.roles
    counts = {
        role: {domain: len(rows) for domain, rows in getattr(roles, role).items()}
        for role in ("train", "validation", "in_domain", "out_of_domain")
    }
    return {
        "content": prepared.content,
        "image_size": prepared.size,
        "classes": list(prepared.index.classes),
        "training_domains": list(roles.training_domains),
        "unseen_domains": list(roles.unseen_domains),
        "left_out": list(prepared.left_out),
        **counts,
        "target": len(roles.target_rows),
        "target_by_domain": {domain: len(rows) for domain, rows in roles.target.items()},
    }
