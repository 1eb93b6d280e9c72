"""Which step counts under each rule; only the oracle looks at an unseen domain."""

from typing import Any

import pytest

from unseen.errors import SettingsError, UnseenError
from unseen.results.rules import RULES, WITHOUT_LABELS, Evaluation, choose


class Forbidden(dict[str, float]):
    """Accuracies that nobody may look at."""

    def _refuse(self, *_: Any) -> Any:
        raise AssertionError("the unseen domain was read")

    __getitem__ = __iter__ = __len__ = __bool__ = items = values = keys = get = _refuse


RECORDS = [
    Evaluation(100, {"photo": 0.50, "cartoon": 0.70}, {"sketch": 0.40}),
    Evaluation(200, {"photo": 0.90, "cartoon": 0.50}, {"sketch": 0.30}),
    Evaluation(300, {"photo": 0.60, "cartoon": 0.80}, {"sketch": 0.35}),
    Evaluation(400, {"photo": 0.95, "cartoon": 0.30}, {"sketch": 0.20}),
]


@pytest.mark.parametrize(("rule", "step"), [("source", 200), ("last", 400), ("oracle", 100)])
def test_each_rule_picks_its_step(rule: str, step: int) -> None:
    assert choose(rule, RECORDS) == choose(rule, RECORDS[::-1]) == step
    guarded = [each._replace(unseen=Forbidden(sketch=1.0)) for each in RECORDS]
    if rule == "oracle":
        with pytest.raises(AssertionError, match="was read"):
            choose(rule, guarded)
    else:
        assert choose(rule, guarded) == step


def test_every_rule_is_tested_here_or_with_those_without_labels() -> None:
    assert RULES.keys() - WITHOUT_LABELS.keys() == {"source", "last", "oracle"}


@pytest.mark.parametrize("rule", ["source", "oracle", "infomax"])
def test_ties_go_to_the_lowest_validation_loss(rule: str) -> None:
    """With four validation images, an early step is often as accurate as a late one."""
    same = {"a": 0.75, "b": 1.0}
    records = [
        Evaluation(step, same, {"u": 0.5}, {"a": loss, "b": 0.1}, {"infomax": 1.0})
        for step, loss in [(10, 2.0), (20, 0.3), (30, 0.3), (40, float("nan"))]
    ]
    assert choose(rule, records) == choose(rule, records[::-1]) == 20
    better = records[0]._replace(validation={"a": 0.8, "b": 1.0}, unseen={"u": 0.6})
    assert choose(rule, [better._replace(without_labels={"infomax": 2.0}), *records]) == 10


def test_the_order_of_the_domains_does_not_make_a_tie_less_equal() -> None:
    first = Evaluation(10, {"a": 0.1, "b": 0.2, "c": 0.3}, {"u": 0.5})
    second = Evaluation(20, {"c": 0.3, "b": 0.2, "a": 0.1}, {"u": 0.5})
    assert choose("source", [second, first]) == choose("oracle", [second, first]) == 10


def test_oracle_means_over_several_unseen_domains() -> None:
    one = Evaluation(1, {"a": 1.0}, {"u": 0.9, "v": 0.1})
    assert choose("oracle", [one, Evaluation(2, {"a": 0.0}, {"u": 0.6, "v": 0.6})]) == 2


@pytest.mark.parametrize(
    ("rule", "records", "kind", "message"),
    [
        ("orcale", RECORDS, SettingsError, r"did you mean 'oracle'\? \(known: bnm, dev, "),
        ("oracle", [Evaluation(5, {"a": 0.5})], SettingsError, r"step 5 .*selection=oracle"),
        ("infomax", [Evaluation(5, {"a": 0.5})], SettingsError, r"step 5 .*setting=adaptation"),
        (
            "source",
            [Evaluation(5, {})],
            SettingsError,
            r"validation_share above 0 or choose selection=last",
        ),
        (
            "source",
            [Evaluation(5, {"a": float("nan")}), Evaluation(6, {"a": 0.5})],
            UnseenError,
            r"'a' at step 5 is nan",
        ),
        ("last", [], UnseenError, "no evaluation was recorded"),
    ],
)
def test_what_cannot_be_ranked_says_what_to_set(
    rule: str, records: list[Evaluation], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        choose(rule, records)
    assert choose("last", [Evaluation(5, {})]) == 5
