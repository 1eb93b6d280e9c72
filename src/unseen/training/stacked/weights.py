"""Weight files of many runs that share most of their tensors: the bytes of these are made once."""

import json
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save
from torch import Tensor

from unseen.atomic import atomic_file
from unseen.methods.base import Method
from unseen.training.checkpoints import for_prediction

_LENGTH = 8  # bytes of a safetensors file that give the length of its header


class WeightsMould:
    """A safetensors file in memory; each run puts its own tensors in their places and writes it.

    The files are byte by byte those of `save_weights`.
    """

    def __init__(self, method: Method) -> None:
        tensors = {name: tensor.contiguous() for name, tensor in for_prediction(method).items()}
        self._content = bytearray(save(tensors, metadata={}))
        start = _LENGTH + int.from_bytes(self._content[:_LENGTH], "little")
        header = json.loads(self._content[_LENGTH:start])
        self._places = {
            name: slice(*(start + offset for offset in header[name]["data_offsets"]))
            for name in tensors
        }

    def cast(self, path: Path, own: Mapping[str, Tensor]) -> None:
        """Write the file of one run; tensors that prediction does not need are left out."""
        for name in own.keys() & self._places.keys():
            data = own[name].cpu().contiguous().numpy().tobytes()
            self._content[self._places[name]] = data
        with atomic_file(path) as temporary:
            temporary.write_bytes(self._content)
