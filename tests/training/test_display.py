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


def test_time_left_is_counted_from_the_first_step_on(clock: list[float]) -> None:
    written = StringIO()
    display = Display(Console(file=written), total=110, label="run", done=10)
    for seconds, done, news in [
        (600, 10, "computing features of images 50/100"),
        (1200, 10, "computing features of images 100/100"),
        (1220, 20, "loss 1.5"),
        (1240, 30, "loss 1.2"),
    ]:
        clock.append(seconds)
        display.advance(done, news)
    assert written.getvalue().splitlines() == [
        "run: step 10/110, computing features of images 50/100",
        "run: step 10/110, computing features of images 100/100",
        "run: step 20/110, loss 1.5, 0:03:00 left",
        "run: step 30/110, loss 1.2, 0:02:40 left",
    ]


def test_a_run_that_reports_its_first_step_late_does_not_count_what_came_before(
    clock: list[float],
) -> None:
    """A single run says nothing before its first step, which comes after images and features."""
    written = StringIO()
    display = Display(Console(file=written), total=110, label="run")
    for seconds, step in [(300, 10), (320, 20)]:
        clock.append(seconds)
        display.step(step, 1.5)
    assert written.getvalue().splitlines() == [
        "run: step 10/110, loss 1.500",
        "run: step 20/110, loss 1.500, 0:03:00 left",
    ]


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
