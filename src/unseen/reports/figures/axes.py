"""Axes: where a value stands, where ticks do, and what numbers look like beside them."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Axis(NamedTuple):
    low: float
    high: float
    label: str = ""
    marks: tuple[float, ...] = ()
    """Where ticks stand; empty: at round numbers."""
    bend: float = 0.0
    """Above 0: even steps up to here, then even factors, so that 0, 0.1, 1 and 10 lie apart."""

    def ticks(self, about: int = 5) -> list[float]:
        """Returns its marks, or else round numbers within it, roughly as many as asked for."""
        if self.marks:
            return list(self.marks)
        span = self.high - self.low
        if not math.isfinite(span) or span <= 0:
            return [self.low]
        rough = span / about
        magnitude = 10.0 ** math.floor(math.log10(rough))
        step = next(f for f in (1, 2, 2.5, 5, 10, 20) if f * magnitude >= rough) * magnitude
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


class Scale(NamedTuple):
    """Maps an axis to `start .. end`; what lies outside stays outside."""

    axis: Axis
    start: float
    end: float

    def __call__(self, value: float) -> float:
        bend = self.axis.bend
        places = (self.axis.low, self.axis.high, value)
        low, high, place = (math.asinh(x / bend) if bend else x for x in places)
        return self.start + (place - low) / ((high - low) or 1.0) * (self.end - self.start)

    def within(self, value: float) -> float:
        """Returns the value's place, or the edge that it lies beyond."""
        low, high = sorted((self.start, self.end))
        return min(max(self(value), low), high)


def axis_around(values: Iterable[float], label: str = "", floor: float | None = None) -> Axis:
    """Makes an axis around the finite values with a little room; it starts at `floor` if given."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return Axis(0.0, 1.0, label)
    low, high = min(finite), max(finite)
    room = 0.05 * (high - low) or 0.05 * abs(high) or 0.5
    return Axis(low - room if floor is None else floor, high + room, label)


def uneven_axis(values: Sequence[float], label: str) -> Axis:
    """Makes an axis that separates few values of different magnitude, zero among them."""
    bend = min((abs(value) for value in values if value), default=1.0) / 2
    low, high = min(values), max(values)
    return Axis(low - bend / 3, max(1.15 * high, low + bend), label, tuple(values), bend)


def short(value: float) -> str:
    """Returns a tick's number without needless digits: 0.25, 40, 1.5k."""
    if abs(value) < 1e-12:
        return "0"
    if abs(value) >= 10_000:
        return f"{value / 1000:g}k"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
