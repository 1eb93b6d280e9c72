"""Runs in double precision, for tests that compare two ways to compute the same.

In single precision the two differ by rounding, and training makes much of it: Adam takes a whole
step where a gradient is zero but for rounding, an image on the border between two classes changes
sides. In double precision the difference stays far below any bound that a test would set, on every
processor.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import module as hooks


@contextmanager
def double_precision() -> Iterator[None]:
    """Modules have doubles as parameters and buffers and take what they are given as doubles;
    `float()`, which the package uses where half precision would not do, leaves doubles alone."""
    cross_entropy = functional.cross_entropy

    def weighted(
        scores: Tensor, labels: Tensor, weight: Tensor | None = None, **options: Any
    ) -> Any:
        return cross_entropy(
            scores, labels, None if weight is None else weight.to(scores), **options
        )

    with pytest.MonkeyPatch.context() as patch, ExitStack() as registered:
        patch.setattr(functional, "cross_entropy", weighted)
        patch.setattr(Tensor, "float", lambda self: self.to(_at_least_single(self.dtype)))
        for hook in (
            hooks.register_module_parameter_registration_hook(_parameter),
            hooks.register_module_buffer_registration_hook(_buffer),
            hooks.register_module_forward_pre_hook(_arguments),
        ):
            registered.callback(hook.remove)
        yield


def _at_least_single(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype == torch.float64 else torch.float32


def _parameter(module: nn.Module, name: str, value: nn.Parameter | None) -> nn.Parameter | None:
    if value is None or value.dtype != torch.float32:
        return None
    return nn.Parameter(value.detach().double(), value.requires_grad)


def _buffer(module: nn.Module, name: str, value: Tensor | None) -> Tensor | None:
    return None if value is None else _double(value)


def _arguments(module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(_double(each) if isinstance(each, Tensor) else each for each in arguments)


def _double(value: Tensor) -> Tensor:
    return value.double() if value.dtype == torch.float32 else value
