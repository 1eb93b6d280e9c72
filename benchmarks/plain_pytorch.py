"""unseen's training step against the plain PyTorch one that other projects run.

How the allocator treats freed memory cannot be changed back within a process, so each side lives
in a process of its own; they take turns, step by step, and the waiting one sleeps. Both start
from the same weights and see the same batch, so their losses have to agree.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
import torchvision
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

from benchmarks.figures import Figure, Measurement, alternate, median_ratio
from benchmarks.processes import Step, Worker
from benchmarks.workload import (
    CLASSES,
    LEARNING_RATE,
    batch_of,
    generated,
    open_run,
    settings,
    step_on,
    workspace,
)

COMPARED_STEPS = 5
TOLERANCE = 1e-4
"""Largest relative difference of the losses. Another order of additions makes 1e-5; as the small
rate moves AlexNet's loss by 4e-3 only, a looser bound would let a wrong update pass."""


def plain_over_unseen(network: str, repeats: int) -> Measurement:
    with workspace() as folder:
        write_start(network, folder)
        with (
            Worker("plain PyTorch", plain_step, network, folder) as plain,
            Worker("unseen", unseen_step, network, folder) as unseen,
        ):
            pairs = alternate(plain.step, unseen.step, repeats, warm_up=2)
    return with_losses(median_ratio(pairs), plain.losses, unseen.losses)


def write_start(network: str, folder: Path) -> None:
    """unseen's first weights under torchvision's names, and the batch, for the plain side."""
    session = open_run(settings(generated(folder), "aggregate", network, 224), folder / "start")
    weights = session.learner.method.network.state_dict()
    names = session.learner.method.network.original_names.items()
    plain = {there: weights[here].contiguous() for there, here in names}
    save_file(plain, folder / "weights.safetensors")
    batch = batch_of(session)
    tensors = {"images": batch.images.contiguous(), "labels": batch.labels}
    save_file(tensors, folder / "batch.safetensors")


def plain_step(network: str, folder: Path) -> Step:
    """torchvision's network in contiguous format, default Adam, default allocator."""
    model = torchvision.models.get_model(network, num_classes=len(CLASSES))
    model.load_state_dict(load_file(folder / "weights.safetensors"))
    _without_dropout(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    batch = load_file(folder / "batch.safetensors")

    def step() -> float:
        loss = functional.cross_entropy(model(batch["images"]), batch["labels"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def unseen_step(network: str, folder: Path) -> Step:
    """`aggregate` as `unseen train` runs it."""
    session = open_run(settings(generated(folder), "aggregate", network, 224), folder / "run")
    _without_dropout(session.learner.method)
    return partial(step_on, session, batch_of(session))


def _without_dropout(model: nn.Module) -> None:
    """The sides draw differently, which would hide a difference of their losses."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0


def with_losses(
    measured: Measurement, plain: Sequence[float], unseen: Sequence[float]
) -> Measurement:
    """The measurement counts only if both sides had the same losses in their first steps."""
    compared = list(zip(plain, unseen, strict=True))[:COMPARED_STEPS]
    difference = max(abs(a - b) / abs(a) for a, b in compared)
    remark = f"losses of the first {len(compared)} steps differ by {difference:.1e} at most"
    return measured._replace(remark=remark, sound=difference <= TOLERANCE)


FIGURES = [
    Figure(
        f"plain PyTorch step / unseen step, {title}",
        ">= 1.5",
        "contiguous, default Adam and allocator / channels-last, fused Adam, memory kept; "
        "batch 48, 224 px",
        repeats=repeats,
        measure=partial(plain_over_unseen, network),
    )
    for network, title, repeats in (("resnet18", "ResNet-18", 10), ("alexnet", "AlexNet", 15))
]
