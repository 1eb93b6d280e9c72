"""Lines for a screen that is none: how far a run is, and for how long it goes on."""

import re
from io import StringIO

import pytest
from rich.console import Console

from unseen.training import display as module
from unseen.training.display import Display


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time in seconds, as its last entry."""
    times = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: times[-1])
    return times


@pytest.mark.parametrize(
    ("done", "told", "lines"),
    [
        (  # time is counted from the first step on
            10,
            [(600, 10), (1200, 10), (1220, 20), (1240, 30)],
            [*["10/110, news"] * 2, "20/110, news, 0:03:00 left", "30/110, news, 0:02:40 left"],
        ),
        # a single run says nothing before its first step, which comes after images and features
        (0, [(300, 10), (320, 20)], ["10/110, news", "20/110, news, 0:03:00 left"]),
    ],
)
def test_time_left(
    done: int, told: list[tuple[int, int]], lines: list[str], clock: list[float]
) -> None:
    written = StringIO()
    display = Display(Console(file=written), total=110, label="run", done=done)
    for seconds, step in told:
        clock.append(seconds)
        display.advance(step, "news")
    assert written.getvalue().splitlines() == [f"run: step {line}" for line in lines]


def test_a_narrow_terminal_shows_bar_numbers_and_time_left(clock: list[float]) -> None:
    """The name of the run used to leave no room for them."""
    written = StringIO()
    console = Console(file=written, width=80, force_terminal=True, color_system=None)
    label = "digits-small_cnn-aggregate-plain-seed0-21a59d04f583"
    with Display(console, total=400, label=label) as display:
        for seconds in (1, 2, 3):
            clock.append(seconds)
            display.step(100 * seconds, 1.5)
    shown = written.getvalue().split("\x1b[2K")[-1].rstrip()
    assert re.match(r"\r?…gregate-plain-seed0 ━+\S* +300/400 0:00:01 loss 1.500", shown)
