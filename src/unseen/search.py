"""Search ranges: what a setting may be in a random search. No torch.

They stand on the settings themselves: `lr: Annotated[float, LogUniform(1e-5, 3e-4)]`.
"""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from unseen.errors import SettingsError

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
