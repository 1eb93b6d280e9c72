"""Losses that look at the whole batch, where the batch is shared out among several processes.

Data parallelism averages the processes' gradients. That is right for a mean over images; a loss
that is not one (an inner gradient step, a covariance) first has to see what the others have.
`mean` and `gather` pass gradients on; all functions do nothing where there is one process.
"""

from typing import Any

import torch
from torch import Tensor
from torch import distributed as processes
from torch.autograd.function import Function


def mean(values: Tensor) -> Tensor:
    """Return the mean over all processes of a tensor that each of them has."""
    return _Mean.apply(values) if _several() else values  # pyright: ignore[reportReturnType]


def gather(rows: Tensor) -> Tensor:
    """Return the rows of all processes, in order of rank; each must have equally many."""
    return _Gather.apply(rows) if _several() else rows  # pyright: ignore[reportReturnType]


def as_first(values: Tensor) -> None:
    """Overwrite a tensor with that of the first process."""
    if _several():
        shared = values.contiguous()
        processes.broadcast(shared, src=0)
        values.copy_(shared)


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
