"""The mean of the tensors of several runs."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from unseen.errors import UnseenError
from unseen.training.checkpoints import load_tensors

_COUNTER = "num_batches_tracked"


class Average:
    """A mean that grows by one file of weights at a time.

    It is summed in double precision, so that tensors that are the same in all runs, such as those
    of frozen stages, stay the same to the last bit.
    """

    def __init__(self, tensors: Mapping[str, Tensor], number: int = 1) -> None:
        self._sums = {n: t.double() if t.is_floating_point() else t for n, t in tensors.items()}
        self._kinds = {name: tensor.dtype for name, tensor in tensors.items()}
        self._number = number

    @classmethod
    def of(cls, *files: Path) -> "Average":
        first, *others = files
        average = cls(load_tensors(first))
        for file in others:
            average = average.with_file(file)
        return average

    def with_file(self, file: Path) -> "Average":
        """A larger average; this one stays as it is."""
        tensors = load_tensors(file)
        self._check_alike(tensors, file)
        larger = Average(self._sums, self._number + 1)
        larger._kinds = self._kinds
        for name, tensor in tensors.items():
            larger._sums[name] = _together(name, self._sums[name], tensor, file)
        return larger

    def tensors(self) -> dict[str, Tensor]:
        return {
            name: (total / self._number).to(self._kinds[name])
            if total.is_floating_point()
            else total
            for name, total in self._sums.items()
        }

    def _check_alike(self, tensors: Mapping[str, Tensor], file: Path) -> None:
        for name in sorted(self._sums.keys() | tensors.keys()):
            here, there = (each.get(name) for each in (self._sums, tensors))
            if here is None or there is None:
                raise UnseenError(
                    f"{file} {'has' if here is None else 'lacks'} the tensor {name}, unlike the "
                    "runs before; merge runs of one method with the same parts"
                )
            if here.shape != there.shape:
                raise UnseenError(
                    f"{name} is {list(there.shape)} in {file}, and {list(here.shape)} in the runs "
                    "before; merge runs of one network with the same parts"
                )


def _together(name: str, total: Tensor, tensor: Tensor, file: Path) -> Tensor:
    """Numbers are summed; of counts of batches the largest stays; what is a choice (a selected
    unit, a phase) has no mean and has to be the same."""
    if tensor.is_floating_point():
        return total + tensor
    if name.endswith(_COUNTER):
        return torch.maximum(total, tensor)
    if not torch.equal(total, tensor):
        raise UnseenError(
            f"{name} in {file} is not what it is in the runs before, and such a choice has no "
            "mean: these runs cannot be merged"
        )
    return total
