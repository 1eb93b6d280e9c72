"""What all settings are, and marks on them that say whether they decide the result of a run.
No torch."""

from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict

NO_EFFECT_ON_RESULT = "no effect on the result"
"""Marks a setting that decides nothing about what a run computes, as `Annotated[int, MARK]`. All
others are part of a run's identity."""

NEUTRAL_AT_DEFAULT = "neutral at its default"
"""Marks a setting that was added later and does nothing at its default: it is part of the identity
only where it has another value, so that runs made before it existed keep theirs."""


class Settings(BaseModel):
    """Frozen, and closed: an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Formerly(NamedTuple):
    """Marks a setting that had another name and default: at its default, the identity has those, so
    that older runs keep theirs. As `Annotated[float | None, Formerly("init", "uniform")]`."""

    name: str
    default: Any


def deciding(settings: BaseModel) -> dict[str, Any]:
    """Settings that decide the result; a path is the place that it leads to, however it is
    spelled."""
    plain = settings.model_dump(mode="json")
    found: dict[str, Any] = {}
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if NO_EFFECT_ON_RESULT in field.metadata:
            continue
        if NEUTRAL_AT_DEFAULT in field.metadata and value == field.get_default():
            continue
        former = next((mark for mark in field.metadata if isinstance(mark, Formerly)), None)
        if former is not None and value == field.get_default():
            found[former.name] = former.default
        elif isinstance(value, BaseModel):
            found[name] = deciding(value)
        elif isinstance(value, Path):
            found[name] = str(value.expanduser().resolve())
        else:
            found[name] = plain[name]
    return found
