"""unseen's training step beside those that other projects run, and beside what the machine can do.

How the allocator treats freed memory cannot be changed back within a process, so each side lives
in a process of its own; they take turns, step by step, and the waiting one sleeps. What counts is
the processor time of one thread. Sides start from the same weights and see the same batch, so their
losses have to agree.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import torch
import torchvision
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.figures import Figure, Measurement, alternate, clock, median_ratio
from benchmarks.processes import Step, Worker
from benchmarks.workload import (
    CLASSES,
    DOMAINS,
    LEARNING_RATE,
    batch_of,
    generated,
    open_run,
    settings,
    step_on,
    workspace,
)
from unseen.training.devices import tune_malloc
from unseen.training.session import Session

COMPARED_STEPS = 5
TOLERANCE = {"32": 1e-4, "bf16": 5e-2}
"""Largest relative difference of the losses. In 32 bits another order of additions makes 1e-5, and
as the small rate moves a loss by little, a looser bound would let a wrong update pass."""
NETWORKS = {"ResNet-18": ("resnet18", 224), "EfficientNet-Lite0": ("efficientnet_lite0", 128)}


def over_unseen(side: str, network: str, precision: str, repeats: int) -> Measurement:
    with workspace() as folder:
        write_start(network, folder)
        with (
            Worker(side, SIDES[side], network, folder, precision) as theirs,
            Worker("unseen", unseen_step, network, folder, precision) as ours,
        ):
            pairs = alternate(theirs.step, ours.step, repeats, warm_up=2)
    return with_losses(median_ratio(pairs), theirs.losses, ours.losses, TOLERANCE[precision])


def write_start(network: str, folder: Path) -> None:
    """unseen's first weights under their library's names, and the batch, for the other side."""
    session = _open(network, folder / "start", folder)
    weights = session.learner.method.network.state_dict()
    names = session.learner.method.network.original_names.items()
    save_file({there: weights[here].contiguous() for there, here in names}, folder / "weights")
    batch = batch_of(session)
    save_file({"images": batch.images.contiguous(), "labels": batch.labels}, folder / "batch")


def plain_step(network: str, folder: Path, precision: str) -> Step:
    """The library's network in contiguous format, default Adam, default allocator."""
    model, (images, labels) = _model_and_batch(network, folder)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    return _step(model, optimizer, lambda: (images, labels), precision)


def tuned_step(network: str, folder: Path, precision: str) -> Step:
    """The same with what PyTorch has for more speed: channels-last format, fused Adam, and memory
    that is kept."""
    tune_malloc()
    model, (images, labels) = _model_and_batch(network, folder)
    model = model.to(memory_format=torch.channels_last)
    images = images.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, fused=True)
    return _step(model, optimizer, lambda: (images, labels), precision)


def domainbed_step(network: str, folder: Path, precision: str) -> Step:
    """As ERM in DomainBed: features and classifier are two networks, and each step puts together
    the minibatches of the domains."""
    model, batch = _model_and_batch(network, folder)
    named = list(model.named_children())
    last = named[-1][0]
    classifier = getattr(model, last)
    setattr(model, last, nn.Identity())
    whole = nn.Sequential(model, classifier)
    optimizer = torch.optim.Adam(whole.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    minibatches = list(zip(*(part.chunk(len(DOMAINS)) for part in batch), strict=True))

    def together() -> tuple[Tensor, ...]:
        return tuple(torch.cat(parts) for parts in zip(*minibatches, strict=True))

    return _step(whole, optimizer, together, precision)


def unseen_step(network: str, folder: Path, precision: str) -> Step:
    """`aggregate` as `unseen train` runs it."""
    session = _open(network, folder / "run", folder, precision)
    session.learner.method.network.without_dropout()
    return partial(step_on, session, batch_of(session))


SIDES = {
    "plain PyTorch": plain_step,
    "tuned PyTorch": tuned_step,
    "DomainBed's": domainbed_step,
}


def _open(network: str, run: Path, folder: Path, precision: str = "32") -> Session:
    size = next(size for name, size in NETWORKS.values() if name == network)
    plain = settings(generated(folder), "aggregate", network, size)
    return open_run(plain.model_copy(update={"precision": precision}), run)


def _model_and_batch(network: str, folder: Path) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    import timm

    if network == "resnet18":
        model: nn.Module = torchvision.models.resnet18(num_classes=len(CLASSES))
    else:
        model = timm.create_model(f"tf_{network}", num_classes=len(CLASSES), drop_rate=0.0)
    model.load_state_dict(load_file(folder / "weights"))
    batch = load_file(folder / "batch")
    return model.train(), (batch["images"], batch["labels"])


def _step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Callable[[], tuple[Tensor, ...]],
    precision: str,
) -> Step:
    def step() -> float:
        images, labels = batch()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def with_losses(
    measured: Measurement, theirs: Sequence[float], ours: Sequence[float], tolerance: float
) -> Measurement:
    """The measurement counts only if both sides had the same losses in their first steps."""
    compared = list(zip(theirs, ours, strict=True))[:COMPARED_STEPS]
    difference = max(abs(a - b) / abs(a) for a, b in compared)
    remark = f"losses of the first {len(compared)} steps differ by {difference:.1e} at most"
    return measured._replace(remark=remark, sound=difference <= tolerance)


def share_of_peak(network: str, kind: str, precision: str, repeats: int) -> Measurement:
    """The processor time of the operations of a step at the machine's peak / that of the step."""
    with one_thread(), workspace() as folder:
        session = _open(network, folder / "run", folder, precision)
        batch = batch_of(session)
        with torch.no_grad(), FlopCounterMode(display=False) as counted:
            session.learner.method.network(batch.images)
        all_operations = 3 * counted.get_total_flops()  # backward takes twice as many
        peak, operations = PEAKS[kind](torch.bfloat16 if precision == "bf16" else torch.float32)
        needed = clock(peak, process_time)
        times = all_operations / operations
        step = clock(lambda: step_on(session, batch), process_time)
        pairs = alternate(lambda: times * needed(), step, repeats, warm_up=2)
        speed = operations / min(needed() for _ in range(3)) / 1e9
        return median_ratio(pairs, f"{all_operations / 1e9:.0f} billion; peak {speed:.0f} a second")


def matrix_peak(dtype: torch.dtype) -> tuple[Callable[[], Any], int]:
    """A product of two square matrices, and its operations."""
    n = 2048
    a, b = torch.randn(2, n, n, dtype=dtype)
    return lambda: a @ b, 2 * n**3


def convolution_peak(dtype: torch.dtype) -> tuple[Callable[[], Any], int]:
    """A 3 x 3 convolution as in the third quarter of a ResNet-18, and its operations."""
    n, channels, side = 48, 256, 14
    x = torch.randn(n, channels, side, side, dtype=dtype)
    weight = torch.randn(channels, channels, 3, 3, dtype=dtype)
    x, weight = (t.contiguous(memory_format=torch.channels_last) for t in (x, weight))

    def work() -> None:
        for _ in range(4):
            functional.conv2d(x, weight, padding=1)

    return work, 4 * 2 * 9 * n * channels**2 * side**2


PEAKS = {"matrix": matrix_peak, "convolution": convolution_peak}


def compiled_over_not(repeats: int) -> Measurement:
    """What `compile=true` would do on a processor, where it is refused."""
    with one_thread(), workspace() as folder:
        compiled, plain = (_open("resnet18", folder / name, folder) for name in ("one", "other"))
        compiled.learner.method.network.compile_stages()
        batch = batch_of(plain)
        one, other = (clock(partial(step_on, s, batch), process_time) for s in (compiled, plain))
        return median_ratio(alternate(one, other, repeats, warm_up=2))


@contextmanager
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


COMPARED = [
    ("plain PyTorch", ">= 1.3", "contiguous, default Adam and allocator", "32"),
    ("DomainBed's", ">= 1.2", "minibatches put together, default Adam and allocator", "32"),
    ("tuned PyTorch", ">= 0.95", "channels-last, fused Adam, memory kept", "32"),
    ("tuned PyTorch", ">= 0.95", "channels-last, fused Adam, memory kept", "bf16"),
]
BITS = {"32": "32 bits", "bf16": "bfloat16"}
FIGURES = [
    Figure(
        f"{side} step / unseen step, {title}, {BITS[precision]}",
        goal,
        f"{how} / aggregate; processor time of one thread, 3 x 16 images of {size} px",
        repeats=10,
        measure=partial(over_unseen, side, network, precision),
    )
    for title, (network, size) in NETWORKS.items()
    for side, goal, how, precision in COMPARED
    if precision == "32" or title == "ResNet-18"
]
FIGURES += [
    Figure(
        f"share of the machine's {kind} peak, ResNet-18, {BITS[precision]}",
        goal,
        "operations of a training step at that peak / the step; processor time of one thread",
        repeats=10,
        measure=partial(share_of_peak, "resnet18", kind, precision),
    )
    for precision, goal in (("32", ">= 0.5"), ("bf16", ">= 0.3"))
    for kind in PEAKS
]
FIGURES.append(
    Figure(
        "step with compiled stages / without",
        ">= 0.95",
        "ResNet-18, 224 px, processor time of one thread; below 1, compile=true would pay",
        repeats=10,
        measure=compiled_over_not,
    )
)
