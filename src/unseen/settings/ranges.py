"""Search ranges: what a setting may be in a random search. No torch.

They stand on the settings themselves: `lr: Annotated[float, LogUniform(1e-5, 3e-4)]`.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from unseen.errors import SettingsError


@dataclass(frozen=True)
class Uniform:
    """Every value between low and high is as likely."""

    low: float
    high: float
    whole: bool = False
    """Whole numbers, both ends included."""

    def __post_init__(self) -> None:
        if not -math.inf < self.low < self.high < math.inf:
            raise SettingsError(f"a range needs two numbers, low and high, got {self}")
        if self.whole and not (float(self.low).is_integer() and float(self.high).is_integer()):
            raise SettingsError(f"a range of whole numbers needs whole ends, got {self}")

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}"

    def draw(self, u: float) -> float | int:
        """Returns the value at `u` of the way, 0 ≤ u < 1. Each whole number has an equal part of
        the way; other numbers are rounded to four digits."""
        if self.whole:
            return min(int(self.high), math.floor(self._at(u, self.high + 1)))
        rounded = float(f"{self._at(u, self.high):.4g}")
        return min(max(rounded, float(self.low)), float(self.high))

    def extremes(self) -> tuple[float | int, ...]:
        """Returns the values that have to be valid for all of them to be."""
        return (int(self.low), int(self.high)) if self.whole else (self.low, self.high)

    def _at(self, u: float, high: float) -> float:
        return self.low + u * (high - self.low)


@dataclass(frozen=True)
class LogUniform(Uniform):
    """Every order of magnitude between low and high is as likely."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low <= 0:
            raise SettingsError(f"a logarithmic range begins above 0, got {self}")

    def __str__(self) -> str:
        return f"{super().__str__()}, log"

    def _at(self, u: float, high: float) -> float:
        return self.low * (high / self.low) ** u


@dataclass(frozen=True)
class Choice:
    """One of some values, each as likely."""

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise SettingsError("a choice needs at least one value")

    def __str__(self) -> str:
        return "one of " + ", ".join(map(str, self.values))

    def draw(self, u: float) -> Any:
        """Returns the value at `u` of the way, 0 ≤ u < 1."""
        return self.values[math.floor(u * len(self.values))]

    def extremes(self) -> tuple[Any, ...]:
        """Returns all values: each has to be valid."""
        return self.values


Range = Uniform | Choice


def declared(metadata: Sequence[Any]) -> Range | None:
    """Returns the range among what annotates a setting, where there is one."""
    return next((each for each in metadata if isinstance(each, Range)), None)


def fraction(*parts: object) -> float:
    """Returns a number in [0, 1) that is a function of these words alone, on every machine."""
    text = "\0".join(map(str, parts))
    digest = hashlib.sha256(text.encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) * 2.0**-53
