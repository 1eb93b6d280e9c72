"""The pure parts of the benchmarks: statistics, goals, the results file. Nothing is timed here."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks import run
from benchmarks.figures import (
    Figure,
    Measurement,
    Outcome,
    alternate,
    as_records,
    median_ratio,
    meets,
    write_results,
)
from benchmarks.imports import imported
from benchmarks.plain_pytorch import with_losses


def figure(name: str, goal: str, ratio: float, sound: bool = True) -> Figure:
    return Figure(name, goal, "a / b", 3, lambda repeats: Measurement(ratio, sound=sound))


def outcome(name: str, goal: str, ratio: float, sound: bool = True) -> Outcome:
    chosen = figure(name, goal, ratio, sound)
    return Outcome(chosen, chosen.measure(chosen.repeats))


def test_a_goal_is_a_comparison() -> None:
    met = [(1.02, "<= 1.02"), (1.3, ">= 1.3"), (0.0999, "< 0.10"), (0, "== 0")]
    missed = [(1.021, "<= 1.02"), (1.29, ">= 1.3"), (0.1, "< 0.10"), (2.0, "> 2"), (1, "== 0")]
    assert all(meets(*each) for each in met)
    assert not any(meets(*each) for each in missed)
    with pytest.raises(ValueError, match=r"'about 2' is not a goal; .* '<= 1\.02'"):
        meets(1.0, "about 2")
    names = [figure.name for figure in run.FIGURES]
    assert len(set(names)) == len(names)
    for known in run.FIGURES:
        assert meets(1.0, known.goal) in (True, False)
        assert known.repeats > 0


def test_sides_take_turns_and_swap_who_begins() -> None:
    calls: list[str] = []

    def side(name: str, seconds: Iterator[float]):
        def work() -> float:
            calls.append(name)
            return next(seconds)

        return work

    first = side("A", iter([9.0, 1.0, 2.0, 3.0]))
    second = side("B", iter([9.0, 10.0, 20.0, 30.0]))
    assert alternate(first, second, repeats=3) == [(1.0, 10.0), (2.0, 20.0), (3.0, 30.0)]
    assert "".join(calls) == "AB" + "AB" + "BA" + "AB"


def test_the_median_of_pair_ratios_ignores_a_disturbed_pair() -> None:
    measured = median_ratio([(2, 1), (9, 3), (4, 1), (500, 1), (1, 1)], "seen")
    assert measured == Measurement(3.0, (2.0, 4.0), "seen")
    assert median_ratio([(3, 2)]) == Measurement(1.5)


def test_different_losses_meet_no_goal() -> None:
    equal = with_losses(Measurement(1.5), [2.0, 1.0], [2.0, 1.00005], 1e-4)
    assert equal.sound
    assert equal.remark == "losses of the first 2 steps differ by 5.0e-05 at most"
    assert not with_losses(Measurement(1.5), [2.0, 1.0], [2.0, 1.0002], 1e-4).sound
    assert not outcome("a", ">= 1.3", 1.5, sound=False).holds


def test_a_partial_run_keeps_the_other_results(tmp_path: Path) -> None:
    records = as_records([outcome("a", "<= 1.02", 1.01234), outcome("b", ">= 4", 3.5)], "fast one")
    on = {"processor": "fast one"}
    assert records == [
        {"name": "a", "ratio": 1.0123, "goal": "<= 1.02", "holds": True, **on},
        {"name": "b", "ratio": 3.5, "goal": ">= 4", "holds": False, **on},
    ]
    file = tmp_path / "results.json"
    first = [outcome("b", ">= 4", 5), outcome("gone", ">= 4", 5)]
    write_results(file, first, ["a", "b", "gone"], "old")
    write_results(file, [outcome("a", "== 0", 0)], ["a", "b"], "new")
    kept = [(record["name"], record["processor"]) for record in json.loads(file.read_text())]
    assert kept == [("a", "new"), ("b", "old")]


def test_the_command_measures_what_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[int] = []

    def measure(repeats: int) -> Measurement:
        asked.append(repeats)
        return Measurement(1.5, (1.4, 1.6), "as seen")

    fakes = [Figure(name, ">= 1.3", "x / y", 3, measure) for name in ("Fast one [b]", "other")]
    monkeypatch.setattr(run, "FIGURES", fakes)
    file = tmp_path / "results.json"
    run.main(["--only", "fast", "--repeats", "7", "--output", str(file)])
    assert asked == [7]
    (record,) = json.loads(file.read_text())
    assert record.pop("processor") == run.processor()
    assert record == {"name": "Fast one [b]", "ratio": 1.5, "goal": ">= 1.3", "holds": True}
    shown = capsys.readouterr().out
    assert all(
        text in shown for text in ("Fast one [b]", "1.500", "1.400 to 1.600", "as seen", "yes")
    )
    run.main(["--output", str(file)])
    assert asked == [7, 3, 3]
    with pytest.raises(SystemExit, match="no figure has 'slow' in its name"):
        run.main(["--only", "slow", "--output", str(file)])


def test_torch_is_recognised_among_imports() -> None:
    report = (
        "import time: self [us] | cumulative | imported package\n"
        "import time:       120 |        120 |   torchlike\n"
        "import time:       120 |        120 |     torch._C\n"
        "import time:       120 |        240 | torch\n"
    )
    assert imported(report, "torch") == ["torch._C", "torch"]
