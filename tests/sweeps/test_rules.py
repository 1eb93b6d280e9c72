"""Rules over draws: worked out by hand, and blind to the labels of the unseen domain."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import ANY

import pytest
from tests.made_results import made_result, measured

from unseen.results.folder import RunFolder
from unseen.results.result import RuleResult, RunResult
from unseen.results.rules import DRAW_RULES, WITHOUT_LABELS
from unseen.sweeps.rules import Chosen, best_draws

VALIDATION = {0: (0.95, 0.70, 0.60), 1: (0.50, 0.65, 0.80), 2: (0.10, 0.90, 0.50)}
"""By draw: mean validation accuracy at steps 100, which is no candidate, 200 and 300."""
UNSEEN = {0: 0.30, 1: 0.20, 2: 0.10}
"""Accuracy on sketch; of the last checkpoint a tenth more."""
PAIRED = {0: (0.40, 0.60), 1: (0.30, 0.60), 2: (0.55, 0.46)}
"""Accuracy on photo and cartoon, each held out beside sketch: means .50, .45 and .505."""


class Forbidden:
    """A result that nobody may look at."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError("the unseen domain was read")


def checkpoint(**accuracies: Any) -> RuleResult:
    found = {d: measured(a) if isinstance(a, float) else a for d, a in accuracies.items()}
    return RuleResult.model_construct(step=1, views={"out_of_domain": found})


class MadeFolder(RunFolder):
    """A run folder whose result is at hand, so that a reader of it can be watched."""

    def __init__(self, path: Path, result: RunResult) -> None:
        super().__init__(path)
        self.made = result

    @property
    def finished(self) -> bool:
        return True

    def read_result(self) -> RunResult:
        return self.made


def make_draw(home: Path, number: int, sketch: Any = None) -> Any:
    """A draw with sketch unseen; `sketch` takes the place of the accuracy on it."""
    folder = MadeFolder(home / str(number), made_result("dmg", {"sketch": 0.0}, rules=()))
    folder.path.mkdir(exist_ok=True)
    records: list[dict[str, Any]] = [{"step": 10, "loss": 2.0}]
    for step, mean in zip((100, 200, 300), VALIDATION[number], strict=True):
        record = {"step": step, "validation": {"photo": mean + 0.05, "cartoon": mean - 0.05}}
        records.append(record | ({"candidate": False} if step == 100 else {}))
        records[-1]["unseen"] = {"sketch": 1 - mean}  # a run with selection=oracle has it
        records[-1]["without_labels"] = {  # and one that adapts has this
            rule: number + step / 1000 + place for place, rule in enumerate(WITHOUT_LABELS)
        }
    folder.metrics.write_text("".join(json.dumps(record) + "\n" for record in records))
    for rule, more in (("source", 0.0), ("last", 0.1)):
        target = UNSEEN[number] + more if sketch is None else sketch
        folder.made.rules[rule] = checkpoint(sketch=target)
    pairs = {}
    for other, accuracy in zip(("photo", "cartoon"), PAIRED[number], strict=True):
        target = UNSEEN[number] if sketch is None else sketch
        result = made_result("dmg", {}, rules=())
        result.rules["source"] = checkpoint(**{other: accuracy, "sketch": target})
        pairs[other] = SimpleNamespace(folder=MadeFolder(folder.path / other, result))
    return SimpleNamespace(draw=number, folder=folder, pairs=pairs)


def choose(rule: str, draws: Sequence[Any]) -> Chosen:
    return best_draws([rule], draws, {draw.draw: draw.pairs for draw in draws})[rule]


@pytest.fixture
def draws(tmp_path: Path) -> list[Any]:
    return [make_draw(tmp_path, number) for number in range(3)]


@pytest.mark.parametrize(
    ("rule", "draw", "score", "recorded"),
    [
        ("source", 2, 0.90, "source"),  # at step 200; 0.95 of draw 0 was no candidate
        ("last", 1, 0.80, "last"),
        ("leave-one-domain-out", 2, 0.505, "source"),
        ("infomax", 2, 2.3, "infomax"),
        ("dev", 2, 5.3, "dev"),
        ("oracle", 0, 0.40, "last"),
    ],
)
def test_each_rule_picks_its_draw(
    draws: list[Any], rule: str, draw: int, score: float, recorded: str
) -> None:
    for order in (draws, draws[::-1]):
        chosen = choose(rule, order)
        assert chosen == (rule, draws[draw], pytest.approx(score), recorded, math.inf, ANY)
        assert sorted(chosen.compared) == [0, 1, 2]


@pytest.mark.parametrize("rule", DRAW_RULES)
def test_no_rule_but_the_oracle_reads_the_unseen_domain(tmp_path: Path, rule: str) -> None:
    guarded = [make_draw(tmp_path, number, Forbidden()) for number in range(3)]
    if rule == "oracle":
        with pytest.raises(AssertionError, match="the unseen domain was read"):
            choose("oracle", guarded)
    else:
        assert choose(rule, guarded).run.draw == {"last": 1}.get(rule, 2)


@pytest.mark.parametrize("rule", ["source", "last", "oracle"])
def test_ties_go_to_the_lowest_validation_loss(tmp_path: Path, rule: str) -> None:
    draws = [make_draw(tmp_path, number, sketch=0.5) for number in range(3)]
    for draw, loss in zip(draws, [0.9, 0.2, 0.4], strict=True):
        record = {"step": 1, "validation": {"photo": 0.5}, "validation_loss": {"photo": loss}}
        draw.folder.metrics.write_text(json.dumps(record) + "\n")
    assert choose(rule, draws).run.draw == 1


def test_ties_go_to_the_first_draw(tmp_path: Path) -> None:
    equal = [make_draw(tmp_path, number, sketch=0.5) for number in (2, 1)]
    assert choose("oracle", equal).run.draw == 1


def test_nothing_to_choose_from(draws: list[Any], tmp_path: Path) -> None:
    unfinished: Any = SimpleNamespace(draw=0, folder=RunFolder(tmp_path / "nowhere"))
    assert best_draws(list(DRAW_RULES), [unfinished]) == {}
    assert best_draws(["leave-one-domain-out"], draws) == {}, "no pairs"
    pairs = {0: {"photo": draws[0].pairs["photo"], "cartoon": unfinished}}
    assert best_draws(["leave-one-domain-out"], draws, pairs) == {}, "one is missing"


def test_draws_are_chosen_by_the_metric_of_their_runs(tmp_path: Path) -> None:
    """The first is better by accuracy, the second by balanced accuracy."""
    draws = []
    for number, (accuracy, balanced) in enumerate(((0.9, 0.4), (0.8, 0.6))):
        folder = MadeFolder(tmp_path / str(number), made_result("dmg", {}, rules=()))
        folder.path.mkdir()
        record = {"step": 1, "validation": {"a": accuracy}, "validation_balanced": {"a": balanced}}
        folder.metrics.write_text(json.dumps(record) + "\n")
        draws.append(SimpleNamespace(draw=number, folder=folder, pairs={}))
    for rule in ("source", "last"):
        assert choose(rule, draws)[1:3] == (draws[1], 0.6)
