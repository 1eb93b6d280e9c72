"""The one way to import packages that not everybody needs."""

import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from unseen.errors import UnseenError


def require(module: str, extra: str) -> ModuleType:
    """Import an optional package, or say which extra brings it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UnseenError(
            f"this needs the package '{module}', which is not installed: "
            f"pip install 'unseen[{extra}]'"
        ) from error


_TRAINING = {"torch", "torchvision", "timm", "lightning_fabric", "safetensors", "huggingface_hub"}
"""What the extra `train` installs: exported files are used without it."""


@contextmanager
def training_packages() -> Iterator[None]:
    """Say which extra brings PyTorch and its companions, where something needs them."""
    warnings.filterwarnings("ignore", "IProgress not found")  # tqdm misses widgets
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _TRAINING:
            raise
        raise UnseenError(
            f"this needs PyTorch, and '{error.name}' is not installed: pip install "
            "'unseen[train]'. Without it, .onnx files from 'unseen export' can be used: with "
            "predict, forecast and serve"
        ) from error
