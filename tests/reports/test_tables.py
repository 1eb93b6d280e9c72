import pytest

from unseen.errors import SettingsError, UnseenError
from unseen.reports.formats import cell_text
from unseen.reports.tables import Expected, build_tables


def texts(table):
    """{row: {column: what is printed}}."""
    return {
        row.name: {
            column.name: cell_text(cell, column)
            for column, cell in zip(table.columns, row.cells, strict=True)
        }
        for row in table.rows
    }


def bold(table):
    return {
        (row.name, column.name)
        for row in table.rows
        for column, cell in zip(table.columns, row.cells, strict=True)
        if cell and cell.best
    }


@pytest.fixture
def results(make_result):
    accuracies = {
        ("aggregate", "sketch"): (0.60, 0.64),
        ("aggregate", "photo"): (0.90, 0.92),
        ("dmg", "sketch"): (0.66, 0.68),
        ("dmg", "photo"): (0.88, 0.94),
    }
    training = {"sketch": {"art": 0.8, "photo": 0.6}, "photo": {"art": 0.5, "sketch": 0.4}}
    return [
        make_result(method, {unseen: value}, training[unseen], seed)
        for (method, unseen), values in accuracies.items()
        for seed, value in enumerate(values)
    ]


def test_out_of_domain_by_hand(results):
    table = build_tables(results, "source")[0]
    assert [column.name for column in table.columns] == [
        "sketch",
        "photo",
        "overall",
        "difference to aggregate",
    ]
    # With two seeds the half width is 12.7062 times half of their distance.
    # Overall: aggregate 75, 78; dmg 77, 81; so the paired differences are +2 and +3.
    assert texts(table) == {
        "aggregate": {
            "sketch": "62.0 ± 25.4",
            "photo": "91.0 ± 12.7",
            "overall": "76.5 ± 19.1",
            "difference to aggregate": "",
        },
        "dmg": {
            "sketch": "67.0 ± 12.7",
            "photo": "91.0 ± 38.1",
            "overall": "79.0 ± 25.4",
            "difference to aggregate": "+2.5 ± 6.4",
        },
    }


def test_the_best_of_each_column_is_bold_and_ties_are_both(results):
    assert bold(build_tables(results, "source")[0]) == {
        ("dmg", "sketch"),
        ("aggregate", "photo"),
        ("dmg", "photo"),
        ("dmg", "overall"),
        ("dmg", "difference to aggregate"),
    }


def test_a_negative_difference_is_not_bold(results):
    table = build_tables(results, "source", Expected(methods=("dmg",)))[0]
    assert [row.name for row in table.rows] == ["dmg", "aggregate"]
    assert texts(table)["aggregate"]["difference to dmg"] == "-2.5 ± 6.4"
    assert ("aggregate", "difference to dmg") not in bold(table)


def test_in_and_known_domain_are_means_over_training_domains(results):
    _, in_domain, known_domain = build_tables(results, "last")
    for table in (in_domain, known_domain):
        assert texts(table)["dmg"]["sketch"] == "70.0 ± 0.0"
        assert texts(table)["dmg"]["photo"] == "45.0 ± 0.0"
        assert texts(table)["dmg"]["overall"] == "57.5 ± 0.0"
        assert any("left out of training" in note for note in table.notes)
    assert (in_domain.view, known_domain.view) == ("in_domain", "known_domain")


def test_several_unseen_domains_make_one_column(make_result):
    run = make_result("dmg", {"sketch": 0.2, "photo": 0.6}, {"art": 1.0})
    table = build_tables([run], "source")[0]
    assert texts(table) == {"dmg": {"photo+sketch": "40.0", "overall": "40.0"}}


def test_one_seed_has_no_interval_and_says_so(make_result):
    runs = [make_result("aggregate", {"sketch": 0.5}), make_result("dmg", {"sketch": 0.513})]
    table = build_tables(runs, "source")[0]
    assert texts(table)["dmg"]["difference to aggregate"] == "+1.3"
    assert "Percent; one seed (0), so values and differences have no interval." in table.notes


def test_a_missing_column_leaves_no_overall(results):
    kept = [
        result
        for result in results
        if (result.method, result.unseen_domains) != ("dmg", ("photo",))
    ]
    table = build_tables(kept, "source")[0]
    assert texts(table)["dmg"] == {
        "sketch": "67.0 ± 12.7",
        "photo": "–",
        "overall": "–",
        "difference to aggregate": "–",
    }
    assert (
        "dmg: 2 of 4 results are missing (photo: seeds 0, 1); no seed has them all, so "
        "there is no overall." in table.notes
    )


def test_only_whole_seeds_enter_the_overall(results):
    kept = [result for result in results if result.run != "dmg-photo-1"]
    table = build_tables(kept, "source")[0]
    assert texts(table)["dmg"] == {
        "sketch": "67.0 ± 12.7",
        "photo": "88.0*",
        "overall": "77.0*",
        "difference to aggregate": "+2.0*",
    }
    assert "dmg: 1 of 4 results is missing (photo: seed 1); overall is over seed 0." in table.notes
    assert table.notes[-1].startswith("* over fewer seeds")
    assert ("dmg", "overall") not in bold(table)


def test_what_was_planned_and_is_not_there_is_shown(results):
    expected = Expected(("aggregate", "multihead", "dmg"), (("photo",), ("sketch",)), (0, 1))
    table = build_tables(results, "source", expected)[0]
    assert [row.name for row in table.rows] == ["aggregate", "multihead", "dmg"]
    assert [column.name for column in table.columns][:2] == ["photo", "sketch"]
    assert set(texts(table)["multihead"].values()) == {"–"}
    assert "multihead: all 4 results are missing." in table.notes


def test_a_missing_training_domain_is_not_averaged_over(make_result):
    run = make_result("dmg", {"sketch": 0.5}, {"art": 0.9, "photo": 0.7})
    del run.rules["source"].views["in_domain"]["photo"]
    tables = {table.view: table for table in build_tables([run], "source")}
    assert set(tables) == {"out_of_domain", "known_domain"}


def test_each_backbone_is_compared_within_itself(make_result):
    runs = [
        make_result(method, {"sketch": value}, backbone=backbone)
        for backbone, method, value in [
            ("resnet18", "aggregate", 0.5),
            ("resnet18", "dmg", 0.6),
            ("resnet50", "aggregate", 0.7),
            ("resnet50", "dmg", 0.75),
        ]
    ]
    printed = texts(build_tables(runs, "source")[0])
    assert printed["dmg (resnet18)"]["difference to aggregate"] == "+10.0"
    assert printed["dmg (resnet50)"]["difference to aggregate"] == "+5.0"
    assert printed["aggregate (resnet50)"]["difference to aggregate"] == ""


def test_the_rule_is_always_named_and_the_oracle_is_marked(make_result):
    runs = [make_result("dmg", {"sketch": 0.5}, rules=("source", "last", "oracle"))]
    for rule in ("source", "last", "oracle"):
        for table in build_tables(runs, rule):
            assert table.rule == rule
            assert table.notes[0].startswith(f"Selection rule {rule}: ")
    oracle = build_tables(runs, "oracle")[0]
    assert "oracle: chosen on the unseen domain's labels, an upper bound" in oracle.notes[0]


def test_the_worst_unseen_domain_is_named(results):
    table = build_tables(results, "source")[0]
    assert "Worst unseen domain: aggregate 62.0 (sketch), dmg 67.0 (sketch)." in table.notes


def test_unlike_runs_are_called_so(make_result):
    runs = [make_result("a", {"sketch": 0.5}), make_result("b", {"sketch": 0.5}, steps=600)]
    for table in build_tables(runs, "source"):
        assert table.notes[-1] == "Not comparable: runs in one column differ in steps."


def test_errors_say_what_mends_them(make_result):
    run = make_result("dmg", {"sketch": 0.5})
    with pytest.raises(UnseenError, match="no finished runs"):
        build_tables([], "source")
    with pytest.raises(SettingsError, match="did you mean 'source'"):
        build_tables([run], "sorce")
    with pytest.raises(
        UnseenError, match=r"recorded: last, source\).* train with selection=oracle"
    ):
        build_tables([run], "oracle")
    with pytest.raises(UnseenError, match=r"several datasets \(pacs, digits\)"):
        build_tables([run, make_result("dmg", {"sketch": 0.5}, dataset="digits")], "source")
    with pytest.raises(UnseenError, match=r"runs dmg-sketch-0 and other are both dmg, resnet18"):
        build_tables([run, run.model_copy(update={"run": "other"})], "source")


def test_runs_with_nothing_unseen_have_no_out_of_domain_table(make_result):
    tables = build_tables([make_result("dmg", {})], "source")
    assert [table.view for table in tables] == ["in_domain", "known_domain"]
    assert texts(tables[0])["dmg"]["none unseen"] == "80.0"


def test_rows_that_saw_the_target_are_named(make_result) -> None:
    results = [
        make_result("aggregate", {"sketch": 0.5}, setting="generalization"),
        make_result("reweighting", {"sketch": 0.6}, setting="adaptation"),
    ]
    (table, *_) = build_tables(results, "source")
    (note,) = (note for note in table.notes if note.startswith("Adaptation"))
    assert note.startswith("Adaptation (reweighting): trained with unlabelled images")
    assert [row.cells[0].best for row in table.rows] == [True, False]  # not against each other
    alone = [make_result("dann", {"sketch": 0.7}, setting="adaptation"), results[1]]
    assert [row.cells[0].best for row in build_tables(alone, "source")[0].rows] == [True, False]
    (table, *_) = build_tables(results[:1], "source")
    assert not any(note.startswith("Adaptation") for note in table.notes)


def test_an_upper_bound_is_named_and_never_in_bold(make_result) -> None:
    bound = make_result(
        "aggregate, all labels",
        {"sketch": 0.9},
        training_domains=("photo", "cartoon", "sketch"),
        trained_on_unseen=True,
    )
    adapted = make_result("dann", {"sketch": 0.7}, setting="adaptation")
    other = make_result("reweighting", {"sketch": 0.6}, setting="adaptation")
    tables = build_tables([adapted, other, bound], "source")
    for table in tables:
        assert any(note.startswith("aggregate, all labels: labelled") for note in table.notes)
        assert not any(note.startswith("Not comparable") for note in table.notes)
    assert [row.cells[0].best for row in tables[0].rows] == [True, False, False]
    assert texts(tables[1])["aggregate, all labels"]["sketch"] == "80.0"  # of the other domains
