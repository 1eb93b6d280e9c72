"""Tables from results whose numbers are known: what is in a cell, in bold, and in the notes."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.made_results import counted, made_result

from unseen.errors import SettingsError, UnseenError
from unseen.reports.tables import Expected, Table, build_tables
from unseen.results.result import RuleResult, RunResult

DIFFERENCE = "difference to aggregate"


def texts(table: Table) -> dict[str, dict[str, str]]:
    """{row: {column: what is printed}}."""
    (_, *names), *lines = table.texts
    return {
        row.name: dict(zip(names, texts, strict=True))
        for row, (_, *texts) in zip(table.rows, lines, strict=False)
    }


def bold(table: Table) -> set[tuple[str, str]]:
    return {
        (row.name, column)
        for row in table.rows
        for column, cell in zip(table.columns, row.cells, strict=True)
        if cell.best
    }


def by_seed(method: str, unseen: str, values: Sequence[float], **about: Any) -> list[RunResult]:
    """A run for each value, with one domain unseen."""
    runs = enumerate(values)
    return [made_result(method, {unseen: value}, seed=seed, **about) for seed, value in runs]


@pytest.fixture
def results() -> list[RunResult]:
    sketch: dict[str, Any] = {"training": {"art": 0.8, "photo": 0.6}}
    photo: dict[str, Any] = {"training": {"art": 0.5, "sketch": 0.4}}
    return [
        *by_seed("aggregate", "sketch", (0.60, 0.64), **sketch),
        *by_seed("aggregate", "photo", (0.90, 0.92), **photo),
        *by_seed("dmg", "sketch", (0.66, 0.68), **sketch),
        *by_seed("dmg", "photo", (0.88, 0.94), **photo),
    ]


def test_out_of_domain_by_hand(results: list[RunResult]) -> None:
    """With two seeds the half width is 12.7062 times half of their distance. Overall: aggregate 75,
    78; dmg 77, 81; so the paired differences are +2 and +3."""
    table, *inside = build_tables(results, "source")
    assert table.columns == ("sketch", "photo", "overall", DIFFERENCE)
    assert [list(row.values()) for row in texts(table).values()] == [
        ["62.0 ± 25.4", "91.0 ± 12.7", "76.5 ± 19.1", ""],
        ["67.0 ± 12.7", "91.0 ± 38.1", "79.0 ± 25.4", "+2.5 ± 6.4"],
    ]
    assert "Worst unseen domain: aggregate 62.0 (sketch), dmg 67.0 (sketch)." in table.notes
    table = build_tables(results, "source", Expected(methods=("dmg",)))[0]
    assert [row.name for row in table.rows] == ["dmg", "aggregate"]
    assert texts(table)["aggregate"]["difference to dmg"] == "-2.5 ± 6.4"
    assert [table.view for table in inside] == ["in_domain", "known_domain"]
    for table in inside:  # means over training domains
        assert list(texts(table)["dmg"].values())[:3] == ["70.0 ± 0.0", "45.0 ± 0.0", "57.5 ± 0.0"]
        assert any("left out of training" in note for note in table.notes)


@pytest.mark.parametrize(
    ("dmg", "expected"),
    [
        ((0.61, 0.64, 0.63), {"dmg"}),  # always a point ahead
        ((0.70, 0.64, 0.60), set()),  # two points ahead on average, and as often behind
        ((0.60, 0.63, 0.62), set()),  # equal
        ((0.59, 0.62, 0.61), {"aggregate"}),
    ],
)
def test_bold_is_what_is_ahead_beyond_noise(dmg: Sequence[float], expected: set[str]) -> None:
    runs = [*by_seed("aggregate", "sketch", (0.60, 0.63, 0.62)), *by_seed("dmg", "sketch", dmg)]
    wanted = {(method, column) for method in expected for column in ("sketch", "overall")}
    wanted |= {("dmg", DIFFERENCE)} if expected == {"dmg"} else set()
    assert bold(build_tables(runs, "source")[0]) == wanted
    third = by_seed("mldg", "sketch", [value + 0.001 for value in dmg])
    assert ("dmg", "sketch") not in bold(build_tables([*runs, *third], "source")[0])


def test_one_seed_cannot_be_beyond_noise_and_says_so() -> None:
    runs = [*by_seed("aggregate", "sketch", [0.5]), *by_seed("dmg", "sketch", [0.513])]
    table = build_tables(runs, "source")[0]
    assert texts(table)["dmg"][DIFFERENCE] == "+1.3"
    assert "Percent; one seed (0), so values and differences have no interval." in table.notes
    assert not bold(table)


@pytest.mark.parametrize(
    ("gone", "row", "note"),
    [
        (
            {"dmg-photo-0", "dmg-photo-1"},
            ["67.0 ± 12.7", "–", "–", "–"],
            "dmg: 2 of 4 results are missing (photo: seeds 0, 1).",
        ),
        (
            {"dmg-photo-1"},
            ["67.0 ± 12.7", "88.0*", "77.0*", "+2.0*"],
            "dmg: 1 of 4 results is missing (photo: seed 1).",
        ),
    ],
)
def test_only_whole_seeds_enter_the_overall(
    results: list[RunResult], gone: set[str], row: list[str], note: str
) -> None:
    table = build_tables([each for each in results if each.run not in gone], "source")[0]
    assert list(texts(table)["dmg"].values()) == row
    assert note in table.notes
    assert table.notes[-1].startswith("* over fewer seeds") == any("*" in text for text in row)


def test_of_very_many_rows_notes_tell_how_many_lack_results() -> None:
    """A sweep of 2,000 runs had 5 MB of notes."""
    runs = [made_result(f"m{n}", {"photo" if n % 2 else "sketch": 0.5}) for n in range(30)]
    table = build_tables(runs, "source")[0]
    assert "30 of 30 rows lack results." in table.notes
    assert len(table.notes) < 10


def test_what_was_planned_and_is_not_there_is_shown(results: list[RunResult]) -> None:
    expected = Expected(("aggregate", "multihead", "dmg"), (("photo",), ("sketch",)), (0, 1))
    table = build_tables(results, "source", expected)[0]
    assert [row.name for row in table.rows] == ["aggregate", "multihead", "dmg"]
    assert table.columns[:2] == ("photo", "sketch")
    assert set(texts(table)["multihead"].values()) == {"–"}
    assert "multihead: 4 of 4 results are missing." in table.notes


def test_columns_of_several_and_of_no_unseen_domains() -> None:
    several = made_result("dmg", {"sketch": 0.2, "photo": 0.6}, {"art": 1.0})
    table = build_tables([several], "source")[0]
    assert texts(table) == {"dmg": {"photo+sketch": "40.0", "overall": "40.0"}}
    tables = build_tables([made_result("dmg", {})], "source")
    assert [table.view for table in tables] == ["in_domain", "known_domain"]
    assert texts(tables[0])["dmg"]["none unseen"] == "80.0"
    del several.rules["source"].views["in_domain"]["art"]  # what is missing is not averaged over
    views = [table.view for table in build_tables([several], "source")]
    assert views == ["out_of_domain", "known_domain"]


def test_each_backbone_is_compared_within_itself() -> None:
    values = {("resnet18", "aggregate"): 0.5, ("resnet18", "dmg"): 0.6}
    values |= {("resnet50", "aggregate"): 0.7, ("resnet50", "dmg"): 0.75}
    runs = [made_result(m, {"sketch": value}, backbone=b) for (b, m), value in values.items()]
    found = {name: row[DIFFERENCE] for name, row in texts(build_tables(runs, "source")[0]).items()}
    assert found == {
        "aggregate (resnet18)": "",
        "dmg (resnet18)": "+10.0",
        "aggregate (resnet50)": "",
        "dmg (resnet50)": "+5.0",
    }


def test_the_rule_is_always_named_the_oracle_is_marked_and_unlike_runs_are_called_so() -> None:
    about: dict[str, Any] = {"rules": ("source", "last", "oracle")}
    runs = [made_result(name, {"sketch": 0.5}, **about) for name in ("a", "b")]
    runs[1] = runs[1].model_copy(update={"steps": 600})
    for rule in about["rules"]:
        for table in build_tables(runs, rule):
            assert table.rule == rule
            assert table.notes[0].startswith(f"Selection rule {rule}: ")
            marked = "chosen on the unseen domain's labels, an upper bound" in table.notes[0]
            assert marked == (rule == "oracle")
            assert table.notes[-1] == "Not comparable: runs in one column differ in steps."


RUN = made_result("dmg", {"sketch": 0.5})
ELSEWHERE = made_result("dmg", {"sketch": 0.5}, dataset="digits")


@pytest.mark.parametrize(
    ("runs", "rule", "kind", "message"),
    [
        ([], "source", UnseenError, "no finished runs"),
        ([RUN], "sorce", SettingsError, "did you mean 'source'"),
        ([RUN], "oracle", UnseenError, r"recorded: last, source\).* train with selection=oracle"),
        ([RUN, ELSEWHERE], "source", UnseenError, r"several datasets \(pacs, digits\)"),
        (
            [RUN, RUN.model_copy(update={"run": "other"})],
            "source",
            UnseenError,
            r"runs dmg-sketch-0 and other are both dmg, resnet18",
        ),
    ],
)
def test_errors_say_what_mends_them(
    runs: list[RunResult], rule: str, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        build_tables(runs, rule)


def test_rows_that_saw_the_target_are_named_and_not_compared_with_others() -> None:
    plain = by_seed("aggregate", "sketch", (0.4, 0.5))
    worse = by_seed("dmg", "sketch", (0.3, 0.4))
    adapted = by_seed("reweighting", "sketch", (0.6, 0.7), setting="adaptation")
    also = by_seed("dann", "sketch", (0.7, 0.8), setting="adaptation")
    table = build_tables([*plain, *worse, *adapted], "source")[0]
    note = "Adaptation (reweighting): trained with unlabelled images"
    assert [each.startswith(note) for each in table.notes].count(True) == 1
    assert bold(table) == {("aggregate", "sketch"), ("aggregate", "overall")}
    assert ("dann", "sketch") in bold(build_tables([*also, *adapted], "source")[0])
    assert not any("Adaptation" in note for note in build_tables(plain, "source")[0].notes)


def test_an_upper_bound_is_named_and_never_in_bold() -> None:
    domains = ("photo", "cartoon", "sketch")
    about: dict[str, Any] = {"training_domains": domains, "trained_on_unseen": True}
    bound = by_seed("aggregate, all labels", "sketch", (0.9, 0.95), **about)
    adapted = by_seed("dann", "sketch", (0.7, 0.8), setting="adaptation")
    other = by_seed("reweighting", "sketch", (0.6, 0.7), setting="adaptation")
    tables = build_tables([*adapted, *other, *bound], "source")
    for table in tables:
        assert any(note.startswith("aggregate, all labels: labelled") for note in table.notes)
        assert not any(note.startswith("Not comparable") for note in table.notes)
    assert bold(tables[0]) == {("dann", "sketch"), ("dann", "overall")}
    assert texts(tables[1])["aggregate, all labels"]["sketch"] == "80.0 ± 0.0"  # of the others


# 80 dogs and 20 houses: recall 70/80 and 2/20; 72 % are right, balanced accuracy 48.75 %
BLIND = counted([[70, 10], [18, 2]])
# recall 56/80 and 14/20: 70 % are right, and so is the balanced accuracy
FAIR = counted([[56, 24], [6, 14]])


def skewed(method: str, measured: Any, **changed: Any) -> RunResult:
    rules = {"source": RuleResult(step=200, views={"out_of_domain": {"sketch": measured}})}
    return made_result(method, {"sketch": 0.0}, results=rules, **changed)


def numbers(table: Table) -> dict[str, float]:
    cells = {row.name: row.cells[0] for row in table.lines}
    return {name: round(c.estimate.mean, 2) for name, c in cells.items() if c and c.estimate}


def test_another_metric_turns_the_order_round_and_has_its_own_floor() -> None:
    results = [skewed("blind", BLIND), skewed("fair", FAIR)]
    (by_accuracy,) = build_tables(results, "source")
    assert numbers(by_accuracy) == {"blind": 72.0, "fair": 70.0, "largest class": 80.0}
    (balanced,) = build_tables(results, "source", metric="balanced")
    assert numbers(balanced) == {"blind": 48.75, "fair": 70.0, "largest class": 50.0}
    assert balanced.title.startswith("Out-of-domain balanced accuracy (%)")
    assert "Checkpoints were chosen by accuracy, not by balanced accuracy." in balanced.notes
    (f1,) = build_tables(results[:1], "source", metric="macro_f1")
    assert numbers(f1)["largest class"] == round(100 * 2 * 80 / 180 / 2, 2)


def test_runs_are_shown_by_the_metric_that_chose_them() -> None:
    fair = skewed("fair", FAIR, metric="balanced")
    (table,) = build_tables([fair], "source")
    assert table.metric == "balanced"
    assert table.notes[0] == (
        "Selection rule source: best mean validation balanced accuracy over the training domains, "
        "lowest validation loss on ties."
    )
    results = [skewed("blind", BLIND), fair]
    with pytest.raises(UnseenError, match=r"different metrics \(accuracy, balanced\).*--metric"):
        build_tables(results, "source")
    (table,) = build_tables(results, "source", metric="macro_f1")
    note = "Checkpoints were chosen by different metrics (accuracy: blind; balanced accuracy: fair)"
    assert f"{note}." in table.notes
