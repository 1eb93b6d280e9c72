"""Weights and checkpoints as safetensors: written atomically, loaded without running any code."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from unseen.atomic import atomic_file
from unseen.errors import UnseenError
from unseen.methods.base import Method


class Checkpoint(NamedTuple):
    """Everything that a run needs to continue as if it had never stopped."""

    step: int
    metrics_size: int
    evaluations: list[dict[str, Any]]
    seconds: float


def save_weights(path: Path, method: Method) -> None:
    """What prediction needs; parts that only training uses stay behind."""
    save_tensors(path, for_prediction(method))


def load_weights(path: Path, method: Method) -> None:
    """Into a method of the same settings; a file for another one is refused with the difference."""
    tensors = load_tensors(path)
    _check_same_network(path, tensors, for_prediction(method))
    method.load_state_dict(tensors, strict=False)


def for_prediction(method: Method) -> dict[str, Tensor]:
    """All tensors but those of parts that only training uses."""
    return {
        name: tensor
        for name, tensor in method.state_dict().items()
        if name.partition(".")[0] not in method.traits.training_only
    }


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    _save(path, {name: tensor.contiguous() for name, tensor in tensors.items()}, {})


def load_tensors(path: Path) -> dict[str, Tensor]:
    return _load(path)[0]


def _check_same_network(
    path: Path, tensors: dict[str, Tensor], expected: dict[str, Tensor]
) -> None:
    differing = [
        name
        for name in expected.keys() | tensors.keys()
        if name not in tensors
        or name not in expected
        or tensors[name].shape != expected[name].shape
    ]
    if differing:
        names = sorted(differing)
        shapes = [
            f"; {name} is {list(tensors[name].shape)}, expected {list(expected[name].shape)}"
            for name in names
            if name in tensors and name in expected
        ]
        raise UnseenError(
            f"{path} holds weights of another network: {len(differing)} tensors differ, "
            f"among them {', '.join(names[:3])}{''.join(shapes[:1])}"
        )


def save_checkpoint(
    path: Path, method: Method, optimizer: torch.optim.Optimizer, about: Checkpoint
) -> None:
    """Learning rates are not saved: they are a function of the step."""
    tensors = {f"method.{name}": t.contiguous() for name, t in method.state_dict().items()}
    for number, state in optimizer.state_dict()["state"].items():
        kept = {key: value for key, value in state.items() if value is not None}
        tensors |= {f"optimizer.{number}.{k}": v.contiguous() for k, v in kept.items()}
    _save(path, tensors, {"about": json.dumps(about._asdict())})


def steps_saved(path: Path) -> int:
    """The step that a checkpoint was written at, without loading it; 0 where there is none."""
    try:
        with safe_open(path, framework="pt") as file:
            return json.loads((file.metadata() or {})["about"])["step"]
    except (FileNotFoundError, SafetensorError, KeyError):
        return 0  # loading it reports what is wrong with it


def load_checkpoint(
    path: Path, method: Method, optimizer: torch.optim.Optimizer
) -> Checkpoint | None:
    """Restore both in place; None where there is no checkpoint yet."""
    if not path.is_file():
        return None
    tensors, info = _load(path)
    if "about" not in info:
        raise UnseenError(f"{path} is not a checkpoint; remove it to start the run again")
    state: dict[int, dict[str, Tensor]] = {}
    weights: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        owner, _, rest = name.partition(".")
        if owner == "method":
            weights[rest] = tensor
        else:
            number, _, key = rest.partition(".")
            state.setdefault(int(number), {})[key] = tensor
    _check_same_network(path, weights, method.state_dict())
    method.load_state_dict(weights)
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    for parameter, values in optimizer.state.items():
        for key, value in values.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                # files know one memory format only, fused updates want that of the parameter
                values[key] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
    return Checkpoint(**json.loads(info["about"]))


def _save(path: Path, tensors: dict[str, Tensor], info: dict[str, str]) -> None:
    with atomic_file(path) as temporary:
        save_file(tensors, temporary, metadata=info)


def _load(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return tensors, file.metadata() or {}
    except FileNotFoundError as error:
        raise UnseenError(f"there is no {path}") from error
    except SafetensorError as error:
        raise UnseenError(
            f"{path} is damaged or not a safetensors file: {error}. Remove it to train again"
        ) from error
