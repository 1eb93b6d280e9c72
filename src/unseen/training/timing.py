"""How long a run would take, from a step and a prediction that are timed on noise."""

import time
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import torch

from unseen.data.augment import PixelScale, augment
from unseen.data.batch import DomainBatch, Task
from unseen.data.randomness import image_keys, step_key
from unseen.methods.base import DatasetPassMethod, Progress, TrainingImages
from unseen.networks.backbones import build_network
from unseen.settings.experiment import Experiment
from unseen.training.build import build_method, check_target_use, trains_from_features
from unseen.training.optimizers import build_optimizer

NOISE = 2
"""Images of each domain."""


class ImageTimes(NamedTuple):
    """Seconds for one image."""

    training: float
    evaluation: float
    storing: float = 0.0
    """To compute what is stored of it (see `time_storing`)."""


def time_storing(experiment: Experiment, n_classes: int, threads: int, gpu: bool) -> float:
    """Returns the seconds in which an augmented copy of one image is computed and passes the frozen
    stages, timed on noise with random weights."""
    device, number = _device(gpu), 16
    plain = experiment.network.model_copy(update={"pretrained": False})
    network = build_network(plain, n_classes).eval().to(device)
    shape = (number, 3, network.image_size, network.image_size)
    pixels = torch.randint(0, 255, shape, dtype=torch.uint8, device=device)
    keys = image_keys(0, 0, torch.arange(number)).to(device)
    scale = PixelScale(network.mean, network.std)

    @torch.no_grad()
    def store() -> None:
        network.start(augment(pixels, keys, experiment.augment, scale)).sum().item()

    return _quickest(store, device, threads) / number


def time_method(
    experiment: Experiment,
    n_domains: int,
    n_classes: int,
    threads: int,
    gpu: bool,
    noise: int = NOISE,
) -> ImageTimes:
    """Time a step and a prediction on noise, with random weights: neither files nor pretrained
    weights are needed. Of a method in two phases it is the second one. `noise` is how many images
    there are of each domain: few take longer each."""
    device = _device(gpu)
    adapts = experiment.setting == "adaptation"
    classes, names = (tuple(map(str, range(number))) for number in (n_classes, n_domains))
    task = Task(classes, names, "target" if adapts else None)
    plain = experiment.network.model_copy(update={"pretrained": False})
    experiment = experiment.model_copy(update={"network": plain})
    method = build_method(experiment, task).to(device).train()
    n, size = noise * n_domains, method.network.image_size
    images = torch.randn(n, 3, size, size, device=device)
    if trains_from_features(experiment):
        with torch.no_grad():
            images = method.network.start(images)
    domains = torch.arange(n_domains, device=device).repeat_interleave(noise)
    batch = DomainBatch(
        images,
        torch.arange(n, device=device) % n_classes,
        domains,
        image_keys(0, 0, torch.arange(n)).to(device),
        n_domains,
        torch.arange(n, device=device),
        step_key(0, 0).to(device),
        images if check_target_use(experiment) else None,
    )
    if isinstance(method, DatasetPassMethod):
        seen = TrainingImages(lambda: iter([batch]), lambda: iter([images]))
        method.use_dataset_pass(method.dataset_pass(seen))
    optimizer = build_optimizer(method, experiment.optimizer)

    def step() -> None:
        losses = method.loss(batch, Progress(99, 100))
        losses["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()
        losses["loss"].item()

    @torch.no_grad()
    def predict() -> None:
        method.predict(images).sum().item()

    training = _quickest(step, device, threads)
    method.eval()
    return ImageTimes(training / n, _quickest(predict, device, threads) / n)


def _quickest(work: Callable[[], object], device: torch.device, threads: int) -> float:
    """Returns the seconds of the quickest of three times after a warm-up. On processors, what else
    they do does not count."""
    on_cpu, before = device.type == "cpu", torch.get_num_threads()
    clock = time.process_time if on_cpu else time.monotonic
    torch.set_num_threads(threads)
    try:
        work()
        times = [clock()]
        for _ in range(3):
            work()
            times.append(clock())
    finally:
        torch.set_num_threads(before)
    return min(after - start for start, after in pairwise(times)) / (threads if on_cpu else 1)


def _device(gpu: bool) -> torch.device:
    return torch.device("cuda" if gpu and torch.cuda.is_available() else "cpu")
