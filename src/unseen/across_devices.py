"""Losses that look at the whole batch, where the batch is shared out among several processes.

Data parallelism averages the processes' gradients. That is right for a mean over images; a loss
that is not one (an inner gradient step, a covariance) first has to see what the others have.
`mean` and `gather` pass gradients on; all functions do nothing where there is one process.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch import distributed as processes
from torch.autograd.function import Function

from unseen.errors import SettingsError

_LONG = timedelta(days=30)
_sees_part = False
_processes_here = 1


@contextmanager
def on_part_of_batch() -> Generator[None]:
    """Inside, the loss is that of a part of this process's share of the batch: only the mean of a
    loss over images can be put together from parts, and `mean` and `gather` refuse the others."""
    global _sees_part
    _sees_part = True
    try:
        yield
    finally:
        _sees_part = False


@contextmanager
def first_alone(first: bool) -> Generator[None]:
    """Let the first process of a machine go before the others, however long it takes."""
    if not _several():
        yield
        return
    group: Any = processes.new_group(backend="gloo", timeout=_LONG)
    if not first:
        processes.barrier(group)
    try:
        yield
    finally:
        if first:
            processes.barrier(group)


def share_cores(processes_here: int) -> None:
    """Remember how many processes of a run share this machine."""
    global _processes_here
    _processes_here = processes_here


def cores() -> int:
    """Return how many cores of the machine are for this process."""
    return max(1, (os.cpu_count() or 1) // _processes_here)


def mean(values: Tensor) -> Tensor:
    """Return the mean over all processes of a tensor that each of them has."""
    _check_whole_batch()
    return _Mean.apply(values) if _several() else values  # pyright: ignore[reportReturnType]


def gather(rows: Tensor) -> Tensor:
    """Return the rows of all processes, in order of rank; each must have equally many."""
    _check_whole_batch()
    return _Gather.apply(rows) if _several() else rows  # pyright: ignore[reportReturnType]


def as_first(values: Tensor) -> None:
    """Overwrite a tensor with that of the first process."""
    if _several():
        shared = values.contiguous()
        processes.broadcast(shared, src=0)
        values.copy_(shared)


def _check_whole_batch() -> None:
    if _sees_part:
        raise SettingsError(
            "devices.accumulate computes a batch in parts, but the loss of this run looks at the "
            "whole batch (it compares domains or images, or takes a step on the way): set "
            "devices.accumulate=1, and fewer images_per_domain or more devices if memory is short"
        )


def _several() -> bool:
    return processes.is_available() and processes.is_initialized() and _world() > 1


def _world() -> int:
    return processes.get_world_size()


class _Mean(Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return _sum(values) / _world()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return _sum(gradients[0]) / _world()


class _Gather(Function):
    """Every process computes the loss of all rows, and their gradients are averaged afterwards: so
    the gradient of a row is the sum of what it is on all processes."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        return torch.cat(_of_all(rows))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        parts = _sum(gradients[0]).chunk(_world())
        return parts[_rank()]


def _rank() -> int:
    return processes.get_rank()


def _of_all(rows: Tensor) -> list[Tensor]:
    parts = [torch.empty_like(rows, memory_format=torch.contiguous_format)] * _world()
    parts = [part.clone() for part in parts]
    processes.all_gather(parts, rows.contiguous())
    return parts


def _sum(values: Tensor) -> Tensor:
    total = values.clone(memory_format=torch.contiguous_format)
    processes.all_reduce(total)
    return total
