"""Layers of a network in exchange for others that give the same answers in less time."""

from collections.abc import Callable
from typing import Any, TypeGuard

from torch import nn


def replace_convolutions(
    network: nn.Module,
    fits: Callable[[nn.Module], TypeGuard[nn.Conv2d]],
    by: Callable[[nn.Conv2d], nn.Module],
) -> None:
    """In place, wherever they stand; a replacement takes over the parameters."""
    for parent in list(network.modules()):
        for name, module in list(parent.named_children()):
            if fits(module):
                setattr(parent, name, by(module))


def pair(values: Any) -> tuple[int, int]:
    """Height and width of a kernel, a stride or a border."""
    return int(values[0]), int(values[1])
