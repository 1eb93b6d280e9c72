"""How long a run would take: a few steps and one evaluation, timed in a folder that is removed."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from lightning_fabric import Fabric

from unseen.data.batch import DomainBatch, Task
from unseen.data.randomness import image_keys, step_key
from unseen.data.roles import Roles
from unseen.methods.base import DomainAware, Progress
from unseen.results.folder import RunFolder
from unseen.settings.experiment import Experiment
from unseen.training.build import build_method, trains_from_features
from unseen.training.devices import launch, tune_malloc
from unseen.training.display import SilentDisplay
from unseen.training.loop import train_step
from unseen.training.optimizers import build_optimizer
from unseen.training.session import Session, open_session
from unseen.training.validation import validate

_NOISE = 2
"""Images of each domain."""
_WARM_UP = 1
_STEPS = 3


class RunTimes(NamedTuple):
    """Seconds that the parts of a run take."""

    setup: float
    step: float
    validation: float
    """One evaluation on the source validation images."""
    final_evaluation: float
    """All views of the two checkpoints that count."""


def time_run(experiment: Experiment, threads: int, gpu: bool) -> RunTimes:
    """Time the parts of a run on this machine; images are prepared if they are not yet."""
    device = experiment.devices.model_copy(
        update={"number": 1, "accelerator": experiment.devices.accelerator if gpu else "cpu"}
    )
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with tempfile.TemporaryDirectory(prefix="unseen-timing-") as folder:
            single = experiment.model_copy(update={"devices": device})
            return launch(single, _measure, single, Path(folder))
    finally:
        torch.set_num_threads(before)


class ImageTimes(NamedTuple):
    """Seconds for one image."""

    training: float
    evaluation: float


def time_method(
    experiment: Experiment, n_domains: int, n_classes: int, threads: int, gpu: bool
) -> ImageTimes:
    """Time a step and a prediction on noise, with random weights: neither files nor pretrained
    weights are needed. Of a method in two phases it is the second one."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return _time_on_noise(experiment, n_domains, n_classes, torch.device(_kind(gpu)))
    finally:
        torch.set_num_threads(before)


def _time_on_noise(
    experiment: Experiment, n_domains: int, n_classes: int, device: torch.device
) -> ImageTimes:
    task = Task(tuple(map(str, range(n_classes))), tuple(map(str, range(n_domains))))
    plain = experiment.network.model_copy(update={"pretrained": False})
    experiment = experiment.model_copy(update={"network": plain})
    method = build_method(experiment, task).to(device).train()
    n, size = _NOISE * n_domains, method.network.image_size
    images = torch.randn(n, 3, size, size, device=device)
    if trains_from_features(experiment):
        with torch.no_grad():
            images = method.network.start(images)
    domains = torch.arange(n_domains, device=device).repeat_interleave(_NOISE)
    batch = DomainBatch(
        images,
        torch.arange(n, device=device) % n_classes,
        domains,
        image_keys(0, 0, torch.arange(n)).to(device),
        n_domains,
        torch.arange(n, device=device),
        step_key(0, 0).to(device),
    )
    optimizer = build_optimizer(method, experiment.optimizer)

    def step() -> None:
        losses = method.loss(batch, Progress(99, 100))
        losses["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()
        losses["loss"].item()

    training = _second_time(step, device)
    method.eval()
    with torch.no_grad():
        evaluation = _second_time(lambda: method.predict(images).sum().item(), device)
    return ImageTimes(training / n, evaluation / n)


def _second_time(work: Callable[[], object], device: torch.device) -> float:
    """The first one warms up. On processors, what else they do does not count."""
    on_cpu = device.type == "cpu"
    clock = time.process_time if on_cpu else time.monotonic
    work()
    started = clock()
    work()
    return (clock() - started) / (torch.get_num_threads() if on_cpu else 1)


def _kind(gpu: bool) -> str:
    return "cuda" if gpu and torch.cuda.is_available() else "cpu"


def _measure(fabric: Fabric, experiment: Experiment, path: Path) -> RunTimes:
    tune_malloc()
    started = time.monotonic()
    session = open_session(fabric, [(experiment, RunFolder(path))], SilentDisplay())
    try:
        setup = time.monotonic() - started
        step = _time_steps(session)
        started = time.monotonic()
        validate(session)
        validation = time.monotonic() - started
    finally:
        session.close()
    roles = session.runs[0].images.roles
    views = _images_in_views(roles, isinstance(session.learner.method, DomainAware))
    validated = sum(map(len, roles.validation.values()))
    return RunTimes(setup, step, validation, 2 * validation * views / validated)


def _time_steps(session: Session) -> float:
    """The mean over some steps, after one that warms up; a short run has its own number of them."""
    steps = min(_WARM_UP + _STEPS, session.steps)
    started = time.monotonic()
    for batch in session.batches(range(steps)):
        losses = train_step(session, batch)
        losses["loss"].item()  # on a GPU: wait for it
        session.step += 1
        if session.step == _WARM_UP and steps > _WARM_UP:
            started = time.monotonic()
    return (time.monotonic() - started) / max(1, steps - _WARM_UP)


def _images_in_views(roles: Roles, uses_domain: bool) -> int:
    held_out = sum(map(len, roles.in_domain.values()))
    known = held_out if uses_domain else 0
    return sum(map(len, roles.out_of_domain.values())) + held_out + known
