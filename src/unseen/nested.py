"""Settings and statistics within each other, as one flat mapping."""

from collections.abc import Mapping
from typing import Any


def flattened(values: Mapping[str, Any], separator: str = ".", prefix: str = "") -> dict[str, Any]:
    """`{"optimizer": {"lr": 1}}` as `{"optimizer.lr": 1}`."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= flattened(value, separator, f"{prefix}{name}{separator}")
        else:
            flat[f"{prefix}{name}"] = value
    return flat
