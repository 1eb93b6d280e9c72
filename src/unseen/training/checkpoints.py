"""Weights and checkpoints as safetensors: written atomically, loaded without running any code."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from unseen.atomic import atomic_file
from unseen.errors import UnseenError
from unseen.methods.base import Method

if TYPE_CHECKING:
    from unseen.training.average import Average


class Checkpoint(NamedTuple):
    """Everything that a run needs to continue as if it had never stopped."""

    step: int
    metrics_size: int
    evaluations: list[dict[str, Any]]
    seconds: float
    processor_seconds: float = 0.0
    averaging: dict[str, Any] | None = None
    """What is known of the average besides its tensors."""
    precision: dict[str, Any] = {}  # noqa: RUF012
    """The factor of a scaled loss, and when it changed."""


def save_weights(path: Path, method: Method) -> None:
    """Writes what prediction needs; parts that only training uses stay behind."""
    save_tensors(path, for_prediction(method))


def load_weights(path: Path, method: Method) -> None:
    """Reads weights into a method of the same settings; a file for another one is refused with the
    difference."""
    tensors = load_tensors(path)
    _check_same_network(path, tensors, for_prediction(method))
    method.load_state_dict(tensors, strict=False)


def for_prediction(method: Method) -> dict[str, Tensor]:
    """Returns all tensors but those of parts that only training uses."""
    return {
        name: tensor
        for name, tensor in method.state_dict().items()
        if name.partition(".")[0] not in method.traits.training_only
    }


def part_of(tensors: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    """Returns the tensors whose names begin with that of a part, without it."""
    start = f"{part}."
    return {name[len(start) :]: t for name, t in tensors.items() if name.startswith(start)}


def save_tensors(
    path: Path, tensors: Mapping[str, Tensor], info: dict[str, str] | None = None
) -> None:
    """Writes tensors and words about them."""
    with atomic_file(path) as temporary:
        whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
        save_file(whole, temporary, metadata=info or {})


def load_tensors(path: Path) -> dict[str, Tensor]:
    return _load(path)[0]


def _check_same_network(
    path: Path, tensors: dict[str, Tensor], expected: dict[str, Tensor]
) -> None:
    shapes, wanted = ({n: list(t.shape) for n, t in each.items()} for each in (tensors, expected))
    names = sorted(n for n in {*shapes, *wanted} if shapes.get(n) != wanted.get(n))
    if names:
        raise UnseenError(
            f"{path} holds weights of another network: {len(names)} tensors differ, "
            f"among them {', '.join(names[:3])}; {names[0]} is "
            f"{shapes.get(names[0], 'missing')}, expected {wanted.get(names[0], 'none')}"
        )


def save_checkpoint(
    path: Path,
    method: Method,
    optimizer: torch.optim.Optimizer,
    about: Checkpoint,
    average: "Average | None" = None,
) -> None:
    """Writes a checkpoint. Learning rates are not saved: they are a function of the step."""
    tensors = {f"method.{name}": tensor for name, tensor in method.state_dict().items()}
    for number, state in optimizer.state_dict()["state"].items():
        kept = {key: value for key, value in state.items() if value is not None}
        tensors |= {f"optimizer.{number}.{key}": value for key, value in kept.items()}
    if average is not None:
        tensors |= {f"average.{name}": tensor for name, tensor in average.tensors().items()}
        about = about._replace(averaging=average.numbers())
    save_tensors(path, tensors, {"about": json.dumps(about._asdict())})


def steps_saved(path: Path) -> int:
    """Returns the step that a checkpoint was written at, without loading it; 0 where there is
    none."""
    try:
        with safe_open(path, framework="pt") as file:
            return json.loads((file.metadata() or {})["about"])["step"]
    except (FileNotFoundError, SafetensorError, KeyError):
        return 0  # loading it reports what is wrong with it


def load_checkpoint(
    path: Path, method: Method, optimizer: torch.optim.Optimizer, average: "Average | None" = None
) -> Checkpoint | None:
    """Restores all of them in place; None where there is no checkpoint yet."""
    if not path.is_file():
        return None
    tensors, info = _load(path)
    if "about" not in info:
        raise UnseenError(f"{path} is not a checkpoint; remove it to start the run again")
    weights = part_of(tensors, "method")
    _check_same_network(path, weights, method.state_dict())
    method.load_state_dict(weights)
    _load_optimizer(optimizer, part_of(tensors, "optimizer"))
    about = Checkpoint(**json.loads(info["about"]))
    if average is not None and about.averaging is not None:
        average.restore(about.averaging, part_of(tensors, "average"))
    return about


def _load_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        number, _, key = name.partition(".")
        state.setdefault(int(number), {})[key] = tensor
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    for parameter, values in optimizer.state.items():
        for key, value in values.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                # files know one memory format only, fused updates want that of the parameter
                values[key] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)


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
