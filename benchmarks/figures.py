"""What a speed figure is: a ratio, how it is measured, its goal, and how it is written down."""

import json
import operator
import re
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

Clock = Callable[[], float]
"""Does its work once and gives the seconds it took."""

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}


class Measurement(NamedTuple):
    """A ratio, between which values the middle half of its pairs lay, and what else was seen."""

    ratio: float
    middle_half: tuple[float, float] | None = None
    remark: str = ""
    sound: bool = True
    """False where the two sides did not compute the same thing: no goal is met then."""


class Figure(NamedTuple):
    name: str
    goal: str
    """A comparison and a number, as in `<= 1.02`."""
    sides: str
    """What is divided by what."""
    repeats: int
    measure: Callable[[int], Measurement]
    """From the number of pairs to the result."""


class Outcome(NamedTuple):
    figure: Figure
    measurement: Measurement

    @property
    def holds(self) -> bool:
        return self.measurement.sound and meets(self.measurement.ratio, self.figure.goal)


def meets(ratio: float, goal: str) -> bool:
    """Whether a ratio satisfies a goal such as `>= 1.3`."""
    parts = re.fullmatch(r"(<=|>=|==|<|>) (\d+(?:\.\d+)?)", goal)
    if parts is None:
        raise ValueError(f"'{goal}' is not a goal; expected one such as '<= 1.02'")
    return _COMPARISONS[parts[1]](ratio, float(parts[2]))


def clock(work: Callable[[], Any], now: Callable[[], float] = time.perf_counter) -> Clock:
    """With `time.process_time`, what else the machine does does not count."""

    def timed() -> float:
        start = now()
        work()
        return now() - start

    return timed


def alternate(
    first: Clock, second: Clock, repeats: int, warm_up: int = 1
) -> list[tuple[float, float]]:
    """Seconds of both, pair by pair (A B, B A, A B, ...), so that neither profits from a drift."""
    for _ in range(warm_up):
        first()
        second()
    pairs = []
    for number in range(repeats):
        if number % 2 == 0:
            one = first()
            pairs.append((one, second()))
        else:
            other = second()
            pairs.append((first(), other))
    return pairs


def median_ratio(pairs: Sequence[tuple[float, float]], remark: str = "") -> Measurement:
    """The median of first / second over all pairs: a disturbed pair does not move it."""
    ratios = [first / second for first, second in pairs]
    if len(ratios) < 2:
        return Measurement(ratios[0], remark=remark)
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return Measurement(middle, (low, high), remark)


def as_records(outcomes: Iterable[Outcome], processor: str) -> list[dict[str, Any]]:
    """Each with the processor it was measured on: ratios differ from one kind to another."""
    return [
        {
            "name": outcome.figure.name,
            "ratio": round(outcome.measurement.ratio, 4),
            "goal": outcome.figure.goal,
            "holds": outcome.holds,
            "processor": processor,
        }
        for outcome in outcomes
    ]


def write_results(
    file: Path, outcomes: Iterable[Outcome], order: Sequence[str], processor: str
) -> None:
    """The figures as a list in this order; ones that were not measured now stay as they were."""
    earlier = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []
    records = {record["name"]: record for record in [*earlier, *as_records(outcomes, processor)]}
    known = [records[name] for name in order if name in records]
    file.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")
