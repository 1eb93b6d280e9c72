"""Search ranges: what a setting may be in a random search. No torch.

They stand on the settings themselves: `lr: Annotated[float, LogUniform(1e-5, 3e-4)]`.
"""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pydantic import BaseModel, ConfigDict

from unseen.errors import SettingsError

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


_DIGITS = 4


class Range(ABC):
    """Turns a uniform number into a value of a setting."""

    @abstractmethod
    def draw(self, u: float) -> Any:
        """The value at `u` of the way through the range, 0 ≤ u < 1."""

    @abstractmethod
    def extremes(self) -> tuple[Any, ...]:
        """Values that have to be valid for all of them to be."""


@dataclass(frozen=True)
class _Between(Range):
    low: float
    high: float
    whole: bool = False
    """Whole numbers, both ends included."""

    smallest: ClassVar[float] = -math.inf

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise SettingsError(f"a range needs two numbers, low and high, got {self}")
        if self.low <= self.smallest:
            raise SettingsError(f"a logarithmic range begins above {self.smallest:g}, got {self}")
        if self.whole and not (float(self.low).is_integer() and float(self.high).is_integer()):
            raise SettingsError(f"a range of whole numbers needs whole ends, got {self}")

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}"

    def draw(self, u: float) -> float | int:
        """Of whole numbers each has its share; others are rounded to what people read."""
        if self.whole:
            return min(int(self.high), math.floor(self.at(u, self.high + 1)))
        rounded = float(f"{self.at(u, self.high):.{_DIGITS}g}")
        return min(max(rounded, float(self.low)), float(self.high))

    def extremes(self) -> tuple[float | int, ...]:
        return (int(self.low), int(self.high)) if self.whole else (self.low, self.high)

    @abstractmethod
    def at(self, u: float, high: float) -> float:
        """The point at `u` of the way to `high`."""


@dataclass(frozen=True)
class Uniform(_Between):
    """Every value between low and high is as likely."""

    def at(self, u: float, high: float) -> float:
        return self.low + u * (high - self.low)


@dataclass(frozen=True)
class LogUniform(_Between):
    """Every order of magnitude between low and high is as likely."""

    smallest: ClassVar[float] = 0

    def at(self, u: float, high: float) -> float:
        return self.low * (high / self.low) ** u

    def __str__(self) -> str:
        return f"{super().__str__()}, log"


@dataclass(frozen=True)
class Choice(Range):
    """One of some values, each as likely."""

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise SettingsError("a choice needs at least one value")

    def __str__(self) -> str:
        return "one of " + ", ".join(map(str, self.values))

    def draw(self, u: float) -> Any:
        return self.values[math.floor(u * len(self.values))]

    def extremes(self) -> tuple[Any, ...]:
        return self.values


def declared(metadata: Sequence[Any]) -> Range | None:
    """The range among what annotates a setting, where there is one."""
    return next((each for each in metadata if isinstance(each, Range)), None)


def fraction(*parts: object) -> float:
    """A number in [0, 1) that is a function of these words alone, on every machine."""
    text = "\0".join(map(str, parts))
    digest = hashlib.sha256(text.encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) * 2.0**-53
