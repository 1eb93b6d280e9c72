"""A session: one run or many that train together, opened in one way.

Training drives it (loop.py); merging, evaluating and timing open one and stop before the loop.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from unseen import across_devices
from unseen.data.augment import PixelScale
from unseen.data.batch import DomainBatch, Task
from unseen.data.dataset import OpenDatasets
from unseen.data.features import StoredFeatures
from unseen.data.feed import Feed, Process
from unseen.data.prepare import prepare
from unseen.data.roles import Roles, choose_roles
from unseen.errors import UnseenError
from unseen.methods.base import Method
from unseen.networks.backbones import build_network
from unseen.networks.stages import Network
from unseen.results.folder import MetricsLog, RunFolder
from unseen.results.measure import Evaluator, Predict
from unseen.results.rules import Evaluation
from unseen.settings.experiment import Experiment
from unseen.training import build
from unseen.training.build import Images, Run
from unseen.training.devices import over_devices
from unseen.training.display import Display, SilentDisplay
from unseen.training.features import features_key, plain_version, stored_features
from unseen.training.first_pass import first_heads, run_dataset_pass
from unseen.training.many_runs import ManyRuns, in_streams, stacked_batches
from unseen.training.one_run import OneRun

Learner = OneRun | ManyRuns
"""The part of a session that learns: all that knows an optimizer. Both have the same members. Runs
are numbered as in the session; losses, rates and scores have one entry for each."""


@dataclass
class Session:
    """Everything in place for one or many runs."""

    fabric: Fabric
    display: Display
    runs: list[Run]
    feed: Feed
    learner: Learner
    steps: int = 0
    step: int = 0
    """Steps that are done."""
    seconds_before: tuple[float, float] = (0.0, 0.0)
    """By the clock and of processors, until the checkpoint that it was opened at."""
    started: tuple[float, float] = field(default_factory=lambda: _clocks())

    @property
    def shared(self) -> Experiment:
        """The settings in which the runs do not differ."""
        return self.runs[0].experiment

    @property
    def log_due(self) -> bool:
        """Whether losses are recorded after this step."""
        return self.step == self.steps or self.step % self.shared.log_every == 0

    @property
    def active(self) -> list[tuple[int, Run]]:
        """The runs that have not diverged, with their numbers."""
        return [(number, run) for number, run in enumerate(self.runs) if run.error is None]

    def batches(self, steps: range) -> Iterator[DomainBatch]:
        """Yields this process's share of the augmented batches of some steps."""
        if len(self.runs) > 1:
            assert isinstance(self.feed.source, StoredFeatures)
            return stacked_batches(self.feed.source, self.runs, steps, self.feed.process.device)
        augment, seed = self.shared.augment, self.shared.seed
        return self.feed.training(self.runs[0].sampler, augment, seed, steps)

    def times(self) -> dict[str, float]:
        """Returns the share of a run in the time by the clock, and in that of processors, which
        counts for this process alone, however busy the machine is."""
        clocks = zip(self.seconds_before, self.started, _clocks(), strict=True)
        shares = [before + (now - start) / len(self.runs) for before, start, now in clocks]
        return dict(zip(("seconds", "processor_seconds"), shares, strict=True))

    def cohorts(self) -> Iterator[tuple[list[int], Roles, Evaluator, Predict]]:
        """Yields the active runs that are measured on the same images, by their numbers, and what
        measures them; counts are those of all devices."""
        members: dict[tuple[Any, ...], list[int]] = {}
        for number, run in self.active:
            roles = run.images.roles
            members.setdefault((roles.training_domains, roles.unseen_domains), []).append(number)
        n_classes, process = len(self.runs[0].task.classes), self.feed.process
        add_up = partial(over_devices, self.fabric, how="sum")
        for numbers in members.values():
            evaluator = Evaluator(self.feed.evaluation, n_classes, process, add_up, len(numbers))
            predict = partial(self._predict, numbers)
            yield numbers, self.runs[numbers[0]].images.roles, evaluator, predict

    def _predict(self, numbers: list[int], images: Tensor, domain: int | None) -> Tensor:
        with self.fabric.autocast():
            return self.learner.predict(numbers, images, domain)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Keeps the method in evaluation mode for a while."""
        training = self.learner.method.training
        self.learner.method.eval()
        try:
            yield
        finally:
            self.learner.method.train(training)


def _clocks() -> tuple[float, float]:
    return time.monotonic(), time.process_time()


def open_session(
    fabric: Fabric,
    members: Sequence[tuple[Experiment, RunFolder]],
    display: Display,
    datasets: OpenDatasets | None = None,
) -> Session:
    """Opens runs before their first step, or a single run at its newest checkpoint. Several runs
    have to fit together (`execute.stackable_groups`)."""
    first = members[0][0]
    dataset = (datasets or OpenDatasets()).open(first.data)
    index = dataset.index()
    tasks = [build.build_task(index, experiment) for experiment, _ in members]
    classes = tasks[0].classes
    alone = len(members) == 1 and not first.head_first
    networks: dict[int, Network] = {}
    random_states: dict[int, Tensor] = {}
    for seed in dict.fromkeys(experiment.seed for experiment, _ in members):
        torch.manual_seed(seed)
        networks[seed] = build_network(first.network, len(classes))
        random_states[seed] = torch.get_rng_state()

    def begin(
        experiment: Experiment, task: Task, head: Mapping[str, Tensor] | None = None
    ) -> Method:
        """What a method draws begins where its network ended."""
        own = networks[experiment.seed].cpu()
        torch.set_rng_state(random_states[experiment.seed])
        return build.build_method_on(own if alone else build.copy_of(own), experiment, task, head)

    method = begin(first, tasks[0])  # one that refuses its settings does so at once
    network = networks[first.seed]
    with across_devices.first_alone(fabric.local_rank == 0):
        prepared = prepare(dataset, network.image_size, display.preparing)
    keys = (features_key(prepared, each, first.network) for each in networks.values())
    if len(networks) > 1 and len(set(keys)) > 1:
        raise UnseenError(
            f"the frozen part of '{first.network.name}' depends on the seed, so these runs cannot "
            "share features; train them one by one"
        )
    prepared.index = prepared.index.with_classes(classes)
    runs = []
    for (experiment, folder), task in zip(members, tasks, strict=True):
        roles = choose_roles(prepared.index, experiment.data, experiment.setting)
        runs.append(Run(experiment, folder, Images(prepared, roles, dataset), task))
    runs = in_streams(runs)
    steps = build.count_steps(first, runs[0].sampler)
    for run in runs:
        build.remember_images(fabric, run.folder, run.images)
    feed = open_feed(fabric, first, runs[0].images, network.to(fabric.device), display)
    if not alone:
        heads = first_heads(fabric, runs, networks, feed, display)
        methods = [begin(r.experiment, r.task, h) for r, h in zip(runs, heads, strict=True)]
        if len(runs) > 1:
            learner = ManyRuns(runs, methods, fabric.device, steps)
            return Session(fabric, display, runs, feed, learner, steps)
        [method] = methods
    return _open_one(fabric, display, runs[0], feed, method.to(fabric.device), steps)


def _open_one(
    fabric: Fabric, display: Display, run: Run, feed: Feed, method: Method, steps: int
) -> Session:
    """Opens a single run at the step of its newest checkpoint."""
    run_dataset_pass(fabric, run.folder, method, feed, run.images.roles, display)
    learner = OneRun(fabric, run, method)
    session = Session(fabric, display, [run], feed, learner, steps)
    checkpoint = learner.start(steps)
    if checkpoint is not None:
        session.step = checkpoint.step
        session.seconds_before = (checkpoint.seconds, checkpoint.processor_seconds)
        run.evaluations = [Evaluation(**record) for record in checkpoint.evaluations]
    if fabric.is_global_zero:
        run.log = MetricsLog(run.folder.metrics, checkpoint.metrics_size if checkpoint else 0)
    return session


def open_trained(
    fabric: Fabric,
    experiment: Experiment,
    method: Method,
    images: Images,
    folder: RunFolder | None = None,
    display: Display | None = None,
) -> Session:
    """Opens a model that is trained: it is measured, and nothing else. Features that are stored
    already spare the frozen part of its network; with a display, they are made where they are not.
    Files go to the folder, if there is one."""
    run = Run(experiment, folder or RunFolder(Path()), images, method.task)
    method = method.to(fabric.device).eval()
    feed = open_feed(fabric, experiment, images, method.network, display)
    return Session(fabric, display or SilentDisplay(), [run], feed, OneRun(fabric, run, method))


def open_feed(
    fabric: Fabric,
    experiment: Experiment,
    images: Images,
    network: Network,
    display: Display | None,
) -> Feed:
    """Returns pixels; or stored features, where the method needs no more than those. Without a
    display they are not computed."""
    scale = PixelScale(network.mean, network.std)
    process = Process(fabric.device, fabric.global_rank, fabric.world_size)
    devices = experiment.devices
    pixels = Feed(images.prepared, scale, process, devices.evaluation_batch, devices.readers)
    if not build.trains_from_features(experiment):
        return pixels
    if display is not None:
        features = stored_features(fabric.device, images, network, experiment, display)
        return replace(pixels, source=features)
    version = plain_version(images.prepared, network, experiment.network, pixels.images)
    stored = version.file.open()
    if stored is None:
        return pixels
    return replace(pixels, source=StoredFeatures(images.prepared.index, stored))
