"""Sweep files: what they may say, and that every mistake is named at once."""

from pathlib import Path
from typing import Any

import pytest

from unseen.errors import SettingsError
from unseen.settings.ranges import Choice, LogUniform, Uniform
from unseen.settings.recipes import parse_overrides
from unseen.sweeps.sweep_file import find_sweep, load_sweep, make_comparison, sweep_names

VALID = "datasets: digits\nmethods: aggregate, dmg\n"


@pytest.fixture
def problems(tmp_path: Path):
    """What is wrong with a file that has these lines beside the valid ones."""

    def find(lines: str) -> list[str]:
        file = tmp_path / "mine.yaml"
        file.write_text(VALID + lines)
        with pytest.raises(SettingsError) as caught:
            load_sweep(file)
        first, *rest = str(caught.value).split("\n")
        assert first == f"{file} is not a valid sweep:"
        return [line.strip() for line in rest]

    return find


def test_all_mistakes_are_reported_at_once(problems) -> None:
    lines = """
drows: 3
seed: 3
steps: 5
seeds: 0-x
halving: {frst: 0.5, keep_one_in: 1}
ranges: {optimizer.lr: {log_unifrm: [1, 2]}, optimizer: {momentum: {uniform: [2, 1]}}}
by_method: {dmg: {rangs: {}}}
"""
    assert problems(lines) == [
        "seeds: seeds are numbers such as 0,1,2 or 0-4, got '0-x'",
        "ranges.optimizer.lr: a range is one of log_uniform, uniform, choice, got log_unifrm",
        "ranges.optimizer.momentum: a range needs two numbers, low and high, got 2 to 1",
        "by_method.dmg.rangs: unknown key; did you mean 'ranges'?",
        "halving.keep_one_in: should be greater than or equal to 2, got 1",
        "halving.frst: unknown key; did you mean 'first'?",
        "drows: unknown key; did you mean 'draws'?",
        "seed: unknown key; did you mean 'seeds'?",
        "steps: unknown key; a setting of all runs is written settings.steps",
    ]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("draws: 2\ngrid: {seed: [1]}", "give either draws or grid"),
        ("draws: 2\nby_method: {dmg: {grid: {method.mask_lr: [1]}}}", "give either draws or grid"),
        ("halving: {}\npairs: all", "halving stops draws that leave-one-domain-out would need"),
        ("selection: leave-one-domain-out", "needs pairs=all"),
        ("by_method: {dgm: {}}", "by_method: unknown method 'dgm'; did you mean 'dmg'?"),
        ("seeds: []", "seeds: Tuple should have at least 1 item"),
        ("ranges: {a: {uniform: [0, 1], choice: [1]}}", "one of log_uniform, uniform, choice"),
    ],
)
def test_choices_that_exclude_each_other(problems, lines: str, message: str) -> None:
    (line,) = problems(lines)
    assert message in line


def test_words_on_the_command_line_are_laid_over_the_file() -> None:
    words = [
        "draws=5",
        "seeds=0-2",
        "methods=aggregate",
        "ranges.optimizer.lr.log_uniform=[1e-5,1e-4]",
        "settings.steps=3",
    ]
    sweep = load_sweep("digits", parse_overrides(words))
    assert (sweep.draws, sweep.seeds, sweep.methods) == (5, (0, 1, 2), ("aggregate",))
    assert sweep.ranges["optimizer.lr"] == LogUniform(1e-5, 1e-4)
    of_the_file = load_sweep("digits", {}).settings
    assert sweep.settings == {**of_the_file, "steps": 3} != of_the_file


def test_a_range_takes_the_place_of_one_of_another_kind(tmp_path: Path) -> None:
    sweep = load_sweep("digits", parse_overrides(["ranges.optimizer.lr.choice=[1e-5]"]))
    assert sweep.ranges["optimizer.lr"] == Choice(("1e-5",))
    file = tmp_path / "mine.yaml"
    file.write_text(VALID + "by_method: {dmg: {ranges: {method.mask_lr: {choice: [1]}}}}")
    word = "by_method.dmg.ranges.method.mask_lr.uniform=[1, 2]"
    part = load_sweep(file, parse_overrides([word])).by_method["dmg"]
    assert part.ranges["method.mask_lr"] == Uniform(1, 2)


def test_a_grid_from_the_command_line_takes_the_place_of_draws() -> None:
    sweep = load_sweep("digits", parse_overrides(["draws=", "grid.optimizer.lr=1e-3,1e-2"]))
    assert (sweep.draws, sweep.grid) == (None, {"optimizer.lr": ("1e-3", "1e-2")})


def test_names_of_methods_are_no_dotted_keys(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "datasets: digits\nmethods: my.module:Mine\nby_method:\n"
        "  my.module:Mine: {ranges: {method.strength: {choice: [1, 2]}}}\n"
    )
    part = load_sweep(file).by_method["my.module:Mine"]
    assert part.ranges["method.strength"] == Choice((1, 2))


def test_rules_follow_from_what_is_trained() -> None:
    rules = ("source", "last", "oracle")
    for changes, rule in (({}, "source"), ({"selection": "last"}, "last")):
        sweep = load_sweep("digits", changes)
        assert (sweep.rule, sweep.rules) == (rule, rules)
    sweep = load_sweep("digits", {"pairs": "all"})
    by_pairs = "leave-one-domain-out"
    assert (sweep.rule, sweep.rules) == (by_pairs, ("source", "last", by_pairs, "oracle"))


@pytest.mark.parametrize("name", sweep_names())
def test_shipped_sweeps_are_valid_and_say_what_they_are(name: str) -> None:
    load_sweep(name)
    text = find_sweep(name).read_text()
    assert len(text.partition("\n")[0].removeprefix("# ")) > 10
    assert f"unseen sweep {name}" in text


@pytest.mark.parametrize(
    ("seeds", "expected"),
    [("0", (0,)), ("0-3", (0, 1, 2, 3)), ("5,1-2, 1", (5, 1, 2)), ([3, 1], (3, 1))]
    + [(text, None) for text in ("a", "1-b", "-1", "1.5")],
)
def test_seeds(seeds: Any, expected: tuple[int, ...] | None) -> None:
    if expected is not None:
        assert make_comparison("digits", "dmg", seeds).seeds == expected
        return
    with pytest.raises(SettingsError, match="seeds are numbers such as 0,1,2 or 0-4"):
        make_comparison("digits", "dmg", seeds)
