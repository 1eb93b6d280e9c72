"""Weights from a file or a dictionary into a network, by name and only where they fit."""

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from unseen.errors import UnseenError
from unseen.networks.stages import Network

State = Mapping[str, Tensor]
_WRAPPERS = ("state_dict", "model_state_dict", "model")
_PREFIXES = ("module.", "_orig_mod.")
_COUNTER = "num_batches_tracked"


def load_file(network: Network, path: Path) -> None:
    """Fill a network from a .safetensors or .pth file, in its own or its library's names."""
    load_state(network, read_state(path), str(path))


def read_state(path: Path) -> dict[str, Tensor]:
    """The tensors of a weight file. Never executes what is in it."""
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
    """The state dict in a loaded file, out of the wrappers that training scripts put around it."""
    for wrapper in _WRAPPERS:
        content = _entries(_entries(content).get(wrapper)) or content
    tensors = {name: t for name, t in _entries(content).items() if isinstance(t, Tensor)}
    if not tensors:
        raise UnseenError(f"{path} holds no state dict (tensor names with their values)")
    return _without_prefixes(tensors)


def _entries(content: Any) -> dict[str, Any]:
    return cast(dict[str, Any], content) if isinstance(content, dict) else {}


def _without_prefixes(state: State) -> dict[str, Tensor]:
    """Names as they were before a wrapper for several devices or for compilation."""
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
    """How names in the classifier begin, here and in the original library."""
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
    """Every tensor there, of the right shape, and none left over: else it is another network."""
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
