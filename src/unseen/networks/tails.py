"""Copies of the last stages of a network."""

from collections.abc import Iterable
from typing import Self

from torch import nn

from unseen.networks.batch_norm import hold_batch_norm


class Tail(nn.Sequential):
    """The last stages of a network on their own; frozen batch norm stays frozen."""

    def __init__(self, stages: dict[str, nn.Module], batch_norm_frozen: bool) -> None:
        super().__init__()
        for key, stage in stages.items():
            self.add_module(key, stage)
        self.batch_norm_frozen = batch_norm_frozen

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.batch_norm_frozen:
            hold_batch_norm(self)
        return self


class Tails(nn.ModuleList):
    """Copies of the same last stages, for example one for each domain."""

    def __init__(self, tails: Iterable[Tail], new: list[str]) -> None:
        super().__init__(tails)
        self._new = new

    def new_layers(self) -> list[nn.Module]:
        """The copies of the network's `new_stages`."""
        return [tail.get_submodule(key) for tail in self for key in self._new]
