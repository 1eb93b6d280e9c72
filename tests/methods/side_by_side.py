"""Two devices as two threads of one process: `across_devices` exchanges through a barrier.

Each has a method of its own and half of the images, and their gradients are averaged, as data
parallelism does it. A device that leaves out an exchange breaks the barrier and the test.
"""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from unseen import across_devices
from unseen.data.batch import DomainBatch
from unseen.methods.base import Method, Progress


def gradients_of_one(method: Method, batch: DomainBatch, progress: Progress) -> dict[str, Tensor]:
    method = copy.deepcopy(method)
    method(batch, progress)["loss"].backward()
    return _gradients(method)


def gradients_of_two(
    method: Method, halves: list[DomainBatch], progress: Progress, patch: pytest.MonkeyPatch
) -> dict[str, Tensor]:
    barrier = threading.Barrier(2, timeout=250)
    sent: dict[int, Tensor] = {}
    rank = threading.local()

    def of_all(values: Tensor) -> list[Tensor]:
        sent[rank.number] = values.detach().clone()
        barrier.wait()
        both = [sent[0], sent[1]]
        barrier.wait()
        return both

    def work(number: int) -> dict[str, Tensor]:
        rank.number = number
        return gradients_of_one(method, halves[number], progress)

    patch.setattr(across_devices, "_several", lambda: True)
    patch.setattr(across_devices, "_world", lambda: 2)
    patch.setattr(across_devices, "_rank", lambda: rank.number)
    patch.setattr(across_devices, "_of_all", of_all)
    patch.setattr(across_devices, "_sum", lambda values: sum(of_all(values)))
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(work, range(2))
    patch.undo()
    return {name: (first[name] + second[name]) / 2 for name in first}


def rows(batch: DomainBatch, chosen: list[int]) -> DomainBatch:
    """A part of a batch, with what belongs to the step as a whole."""
    keep = torch.tensor(chosen)
    return batch._replace(
        images=batch.images[keep],
        labels=batch.labels[keep],
        domains=batch.domains[keep],
        keys=batch.keys[keep],
        positions=batch.positions[keep],
        target=None if batch.target is None else batch.target[keep],
    )


def _gradients(method: Method) -> dict[str, Tensor]:
    return {name: p.grad for name, p in method.named_parameters() if p.grad is not None}
