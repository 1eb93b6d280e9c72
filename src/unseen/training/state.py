"""The parts of a run in progress, put together from settings and the newest checkpoint."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from unseen.atomic import read_json, write_json
from unseen.data.augment import PixelScale
from unseen.data.batch import DomainBatch, Task
from unseen.data.dataset import OpenDatasets
from unseen.data.feed import Feed, Process
from unseen.data.sampling import Sampler
from unseen.errors import DataError
from unseen.methods.base import Method
from unseen.networks.backbones import build_network
from unseen.results.folder import MetricsLog, RunFolder
from unseen.results.measure import Evaluator
from unseen.results.rules import Evaluation
from unseen.settings.experiment import Experiment
from unseen.training.average import Average
from unseen.training.build import (
    Images,
    build_images,
    build_method,
    build_sampler,
    build_task,
    count_steps,
    describe_images,
    trains_from_features,
)
from unseen.training.build_average import build_average
from unseen.training.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from unseen.training.display import Display
from unseen.training.features import stored_features
from unseen.training.head import Start, first_head, run_dataset_pass
from unseen.training.optimizers import build_optimizer, schedule_factor, set_rates


@dataclass
class RunState:
    fabric: Fabric
    experiment: Experiment
    folder: RunFolder
    display: Display
    images: Images
    feed: Feed
    sampler: Sampler
    steps: int
    method: Method
    module: nn.Module
    """The method as Fabric wraps it: what training calls, so that gradients are shared."""
    optimizer: torch.optim.Optimizer
    average: Average | None
    """Of the weights over steps, where the settings ask for one."""
    evaluator: Evaluator
    log: MetricsLog | None
    """Only on rank 0, which alone writes files."""
    step: int = 0
    evaluations: list[Evaluation] = field(default_factory=list)
    seconds_before: float = 0.0
    started: float = field(default_factory=time.monotonic)
    processor_seconds_before: float = 0.0
    processor_started: float = field(default_factory=time.process_time)

    @property
    def process(self) -> Process:
        return self.feed.process

    def batches(self, steps: range) -> Iterator[DomainBatch]:
        """This process's share of the augmented batches of some steps."""
        return self.feed.training(
            self.sampler, self.experiment.augment, self.experiment.seed, steps
        )

    def set_rates(self) -> None:
        """The learning rates of this step, which follow from its number alone."""
        schedule, epoch = self.experiment.schedule, self.sampler.steps_per_epoch
        set_rates(self.optimizer, schedule_factor(schedule, self.step, self.steps, epoch))

    @property
    def seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.started

    @property
    def processor_seconds(self) -> float:
        """Time that processors worked for this process, however busy the machine is."""
        return self.processor_seconds_before + time.process_time() - self.processor_started


def assemble(
    fabric: Fabric,
    experiment: Experiment,
    path: Path,
    display: Display,
    datasets: OpenDatasets | None = None,
) -> RunState:
    """Everything in place, at the step of the newest checkpoint (or at the very beginning)."""
    dataset = (datasets or OpenDatasets()).open(experiment.data)
    method = build_method(experiment, build_task(dataset.index(), experiment)).to(fabric.device)
    images = build_images(dataset, experiment, method.network.image_size, display.preparing)
    sampler = build_sampler(experiment, images.roles)
    steps = count_steps(experiment, sampler)
    folder = RunFolder(path)
    remember_images(fabric, folder, images)
    feed = open_feed(fabric, experiment, images, method, display)
    if experiment.head_first:
        method = _with_fitted_head(fabric, folder, experiment, method.task, images, feed, display)
    optimizer = build_optimizer(method, experiment.optimizer)
    run_dataset_pass(fabric, folder, method, feed, images.roles, display)
    average = build_average(experiment, method, steps)
    checkpoint = load_checkpoint(folder.checkpoint, method, optimizer, average)
    module, optimizer = fabric.setup(method, optimizer)
    log = None
    if fabric.is_global_zero:
        log = MetricsLog(folder.metrics, checkpoint.metrics_size if checkpoint else 0)
    evaluator = _evaluator(fabric, feed, len(method.task.classes))
    state = RunState(
        fabric, experiment, folder, display, images, feed, sampler, steps,
        method, module, optimizer, average, evaluator, log,
    )  # fmt: skip
    if checkpoint:
        state.step = checkpoint.step
        state.evaluations = [Evaluation(**record) for record in checkpoint.evaluations]
        state.seconds_before = checkpoint.seconds
        state.processor_seconds_before = checkpoint.processor_seconds
    return state


def _evaluator(fabric: Fabric, feed: Feed, n_classes: int) -> Evaluator:
    """Counts over all devices."""

    def add_up(counts: Tensor) -> Tensor:
        return over_devices(fabric, counts, "sum")

    return Evaluator(feed.evaluation, n_classes, feed.process, add_up)


def _with_fitted_head(
    fabric: Fabric,
    folder: RunFolder,
    experiment: Experiment,
    task: Task,
    images: Images,
    feed: Feed,
    display: Display,
) -> Method:
    """The method around a classifier that was fitted first."""
    torch.manual_seed(experiment.seed)
    network = build_network(experiment.network, len(task.classes)).to(fabric.device)
    head = first_head(fabric, folder, Start(experiment, network, images, feed), display)
    return build_method(experiment, task, head).to(fabric.device)


def open_feed(
    fabric: Fabric, experiment: Experiment, images: Images, method: Method, display: Display
) -> Feed:
    """Pixels; or stored features, where the method needs no more than those."""
    network = method.network
    scale = PixelScale(network.mean, network.std)
    process = Process(fabric.device, fabric.global_rank, fabric.world_size)
    if not trains_from_features(experiment):
        return Feed(images.prepared, scale, process)
    features = stored_features(fabric.device, images, network, experiment, display)
    return Feed(features, scale, process)


def save(state: RunState) -> None:
    """A checkpoint of this very step."""
    if state.log is None:
        return
    about = Checkpoint(
        step=state.step,
        metrics_size=state.log.sync(),
        evaluations=[evaluation._asdict() for evaluation in state.evaluations],
        seconds=state.seconds,
        processor_seconds=state.processor_seconds,
    )
    save_checkpoint(state.folder.checkpoint, state.method, state.optimizer, about, state.average)


def over_devices(fabric: Fabric, values: Tensor, how: Literal["sum", "max"]) -> Tensor:
    """The same on every device: the sum or the highest of what each of them has."""
    if fabric.world_size == 1:
        return values
    shared = fabric.all_reduce(values, reduce_op=how)
    assert isinstance(shared, Tensor)
    return shared


def remember_images(fabric: Fabric, folder: RunFolder, images: Images) -> None:
    """Record which images a run was started with; it can only go on with the same ones."""
    if not folder.data.is_file():
        if fabric.is_global_zero:
            write_json(folder.data, describe_images(images))
        return
    if read_json(folder.data)["content"] != images.prepared.content:
        raise DataError(
            f"the images have changed since the run in {folder.path} was started; "
            "put them back, or train in another folder (--runs DIR)"
        )
