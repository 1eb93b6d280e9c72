import pytest

from unseen.errors import SettingsError, UnseenError
from unseen.results.rules import RULES, WITHOUT_LABELS, Evaluation, choose


class Forbidden(dict):
    """Accuracies that nobody may look at."""

    def _refuse(self, *_):
        raise AssertionError("the unseen domain was read")

    __getitem__ = __iter__ = __len__ = __bool__ = items = values = keys = get = _refuse


RECORDS = [
    Evaluation(100, {"photo": 0.50, "cartoon": 0.70}, {"sketch": 0.40}),
    Evaluation(200, {"photo": 0.90, "cartoon": 0.50}, {"sketch": 0.30}),
    Evaluation(300, {"photo": 0.60, "cartoon": 0.80}, {"sketch": 0.35}),
    Evaluation(400, {"photo": 0.95, "cartoon": 0.30}, {"sketch": 0.20}),
]


@pytest.mark.parametrize(("rule", "step"), [("source", 200), ("last", 400), ("oracle", 100)])
def test_each_rule_picks_its_step(rule, step):
    assert choose(rule, RECORDS) == step


def test_the_order_of_the_records_does_not_matter():
    for rule in RULES.keys() - WITHOUT_LABELS.keys():
        assert choose(rule, RECORDS[::-1]) == choose(rule, RECORDS)


@pytest.mark.parametrize("rule", ["source", "oracle", "infomax"])
def test_ties_go_to_the_lowest_validation_loss(rule):
    """With four validation images, an early step is often as accurate as a late one."""
    same = {"a": 0.75, "b": 1.0}
    records = [
        Evaluation(step, same, {"u": 0.5}, {"a": loss, "b": 0.1}, {"infomax": 1.0})
        for step, loss in [(10, 2.0), (20, 0.3), (30, 0.3), (40, float("nan"))]
    ]
    assert choose(rule, records) == choose(rule, records[::-1]) == 20
    better = records[0]._replace(validation={"a": 0.8, "b": 1.0}, unseen={"u": 0.6})
    assert choose(rule, [better._replace(without_labels={"infomax": 2.0}), *records]) == 10


def test_ties_go_to_the_earliest_whatever_the_order_of_the_domains():
    first = Evaluation(10, {"a": 0.1, "b": 0.2, "c": 0.3}, {"u": 0.5})
    second = Evaluation(20, {"c": 0.3, "b": 0.2, "a": 0.1}, {"u": 0.5})
    assert choose("source", [second, first]) == 10
    assert choose("oracle", [second, first]) == 10


@pytest.mark.parametrize("rule", ["source", "last"])
def test_source_and_last_never_read_the_unseen_domain(rule):
    guarded = [each._replace(unseen=Forbidden(sketch=1.0)) for each in RECORDS]
    assert choose(rule, guarded) == choose(rule, RECORDS)


def test_the_guard_of_the_test_above_works():
    guarded = [each._replace(unseen=Forbidden(sketch=1.0)) for each in RECORDS]
    with pytest.raises(AssertionError, match="was read"):
        choose("oracle", guarded)


def test_oracle_means_over_several_unseen_domains():
    records = [
        Evaluation(1, {"a": 1.0}, {"u": 0.9, "v": 0.1}),
        Evaluation(2, {"a": 0.0}, {"u": 0.6, "v": 0.6}),
    ]
    assert choose("oracle", records) == 2


def test_unknown_rule_names_the_nearest():
    with pytest.raises(
        SettingsError, match=r"'orcale'; did you mean 'oracle'\? \(known: bnm, dev, "
    ):
        choose("orcale", RECORDS)


def test_oracle_without_unseen_accuracies_says_what_to_set():
    with pytest.raises(SettingsError, match=r"step 5 .*selection=oracle"):
        choose("oracle", [Evaluation(5, {"a": 0.5})])


def test_source_without_validation_images_says_what_to_set():
    with pytest.raises(SettingsError, match=r"validation_share above 0 or choose selection=last"):
        choose("source", [Evaluation(5, {})])
    assert choose("last", [Evaluation(5, {})]) == 5


def test_an_accuracy_that_is_no_number_is_not_ranked():
    with pytest.raises(UnseenError, match=r"'a' at step 5 is nan"):
        choose("source", [Evaluation(5, {"a": float("nan")}), Evaluation(6, {"a": 0.5})])


def test_nothing_recorded():
    with pytest.raises(UnseenError, match="no evaluation was recorded"):
        choose("last", [])
