"""The mean of tensors that change, as they were at several moments."""

from collections.abc import Mapping

import torch
from torch import Tensor

Tensors = Mapping[str, Tensor]


class RunningMean:
    """Grows by the tensors as they are now, in one pass over them; nothing before the first."""

    def __init__(self, live: Tensors) -> None:
        """`live` are the tensors that change."""
        self._live = live
        self.values: dict[str, Tensor] = {}
        self.count = 0

    @torch.no_grad()
    def add(self, decay: float = 1.0) -> None:
        """Below 1, what was added n moments ago counts `decay`ⁿ; weights add up to 1 from the
        beginning."""
        self.count += 1
        if self.count == 1:
            self.values = {name: tensor.detach().clone() for name, tensor in self._live.items()}
            return
        share = 1 / self.count if decay == 1 else (1 - decay) / (1 - decay**self.count)
        _move(self.values, self._live, share)

    @torch.no_grad()
    def merge(self, other: "RunningMean") -> None:
        """As if all that the other was made of had been added here; it is not used again."""
        self.count += other.count
        if self.count == other.count:
            self.values = other.values
        elif other.count:
            _move(self.values, other.values, other.count / self.count)

    @torch.no_grad()
    def restore(self, values: Tensors, count: int) -> None:
        """From a file; tensors of the memory format that the live ones have."""
        self.count = count
        self.values = {
            name: torch.empty_like(live).copy_(values[name])
            for name, live in self._live.items()  # in their order, which a file does not keep
            if count
        }


def _move(values: Tensors, towards: Tensors, share: float) -> None:
    """In place, a share of the way."""
    lists = (list(values.values()), list(towards.values()))
    torch._foreach_lerp_(*lists, share)  # pyright: ignore[reportPrivateImportUsage]
