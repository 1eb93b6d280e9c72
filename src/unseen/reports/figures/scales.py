"""From values to places on paper: round ticks, linear scales, numbers as short texts."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from unseen.reports.figures.panels import Axis


class Scale(NamedTuple):
    """Maps `low .. high` to `start .. end`; what lies outside stays outside."""

    low: float
    high: float
    start: float
    end: float
    bend: float = 0.0

    def __call__(self, value: float) -> float:
        low, high, value = (self._bent(each) for each in (self.low, self.high, value))
        share = (value - low) / ((high - low) or 1.0)
        return self.start + share * (self.end - self.start)

    def _bent(self, value: float) -> float:
        return math.asinh(value / self.bend) if self.bend else value


def ticks(axis: Axis, about: int = 5) -> list[float]:
    """Round numbers within the axis, roughly as many as asked for; or those that it names."""
    if axis.marks:
        return list(axis.marks)
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


def apart(values: Sequence[float], label: str) -> Axis:
    """An axis on which few values of different magnitude, zero among them, lie well apart."""
    bend = min((abs(value) for value in values if value), default=1.0) / 2
    low, high = min(values), max(values)
    room = 1.15  # of the last step
    return Axis(low - bend / 3, max(high * room, low + bend), label, tuple(values), bend)


def short(value: float) -> str:
    """A tick's number without needless digits: 0.25, 40, 1.5k."""
    if abs(value) < 1e-12:
        return "0"
    if abs(value) >= 10_000:
        return f"{value / 1000:g}k"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
