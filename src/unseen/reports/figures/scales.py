"""From values to places on paper: round ticks, linear scales, numbers as short texts."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from unseen.reports.figures.kinds import Axis


class Scale(NamedTuple):
    """Maps `low .. high` to `start .. end`; what lies outside stays outside."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return self.start + share * (self.end - self.start)


def ticks(axis: Axis, about: int = 5) -> list[float]:
    """Round numbers within the axis, roughly as many as asked for."""
    span = axis.high - axis.low
    if not math.isfinite(span) or span <= 0:
        return [axis.low]
    rough = span / about
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(
        (factor * magnitude for factor in (1, 2, 2.5, 5) if factor * magnitude >= rough),
        10 * magnitude,
    )
    first = math.ceil(axis.low / step - 1e-9)
    last = math.floor(axis.high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def spanning(values: Iterable[float], label: str = "", floor: float | None = None) -> Axis:
    """An axis around the finite values with a little room; it starts at `floor` where given."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return Axis(0.0, 1.0, label)
    low, high = min(finite), max(finite)
    room = 0.05 * (high - low) or 0.05 * abs(high) or 0.5
    return Axis(low - room if floor is None else floor, high + room, label)


def short(value: float) -> str:
    """A tick's number without needless digits: 0.25, 40, 1.5k."""
    if abs(value) < 1e-12:
        return "0"
    if abs(value) >= 10_000:
        return f"{value / 1000:g}k"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
