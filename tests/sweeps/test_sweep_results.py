"""After a sweep: what each rule chose, its tables, and every run that is missing, by name."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.made_results import measured
from tests.sweeps.made_records import DOMAINS, TINY, Pretender, comparison_plan, small_plan

from unseen.atomic import read_json
from unseen.reports.page.studies import load_runs, make_studies
from unseen.reports.page.write import write_report
from unseen.results.files import FORMAT
from unseen.results.folder import find_runs, run_name
from unseen.settings.experiment import Experiment
from unseen.sweeps.plan import Plan
from unseen.sweeps.tables import Comparison, apply_rules
from unseen.sweeps.train import train_plan


def rate(experiment: Experiment, step: int) -> float:
    """Validation that a higher rate makes better, and time worse."""
    return min(0.9, 100 * experiment.optimizer.lr) - step / 1000


def unlike_rate(experiment: Experiment, domain: str) -> float:
    """An unseen domain that a higher rate makes worse; plain most of all."""
    return 0.5 - 20 * experiment.optimizer.lr - (0.1 if domain == "plain" else 0)


def swept(plan: Plan, pretender: Pretender | None = None) -> Comparison:
    pretender = pretender or Pretender(rate, unlike_rate)
    results = apply_rules(plan, train_plan(plan, pretender, together=True))
    results.write()
    return results


def by_rate(plan: Plan, number: int = 0) -> list[int]:
    """Draw numbers under a condition, the lowest rate first."""
    draws = list(plan.draws.values())[number]
    return [t.draw for t in sorted(draws, key=lambda t: t.experiment.optimizer.lr)]


def test_rules_choose_and_tables_say_by_which_rule(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, seeds="0-1")
    results = swept(plan)
    assert results.missing == []
    assert results.home.parent == tmp_path / "tables"
    written = read_json(results.home / "chosen.json")
    assert written["format"] == FORMAT
    assert len(written["chosen"]) == 3 * 4 * 2  # rules, domains, seeds
    for number, (condition, draws) in enumerate(plan.draws.items()):
        lowest, *_, highest = by_rate(plan, number)
        chosen = {each.rule: each.run.draw for each in results.chosen if each.run in draws}
        assert chosen == {"source": highest, "last": highest, "oracle": lowest}
        entry = next(
            each
            for each in written["chosen"]
            if each["rule"] == "source"
            and (tuple(each["unseen"]), each["seed"]) == (condition.unseen, condition.seed)
        )
        run = draws[highest]
        assert entry["draw"] == highest
        assert entry["run"] == run_name(run.experiment)
        assert entry["settings"] == {"optimizer.lr": run.experiment.optimizer.lr}
        assert entry["score"] == pytest.approx(rate(run.experiment, 2))
        assert (entry["compared"], entry["left_out"], entry["step"]) == (3, [], 200)
    for rule in ("source", "last", "oracle"):
        table = results.tables[rule][0]
        assert table.title.endswith(f"best of 3 draws by rule {rule}")
        assert table.rule == rule
        choice = f"Best of 3 draws for each column and seed, chosen by rule {rule}: "
        assert table.notes[0].startswith(choice)
        assert not any("Selection rule" in note for note in table.notes)
        text = (results.home / rule / "out_of_domain.md").read_text()
        assert f"best of 3 draws by rule {rule}" in text
        chosen = [each.run.path for each in results.chosen if each.rule == rule]
        found = [run.path.resolve() for run in find_runs(results.home / rule)]
        assert found == [path.resolve() for path in chosen]
        page = write_report(results.home / rule, tmp_path / "page" / rule).read_text()
        assert choice in page
    assert "an upper bound" in results.tables["oracle"][0].notes[0]


def test_tables_of_one_draw_are_those_of_a_comparison(tmp_path: Path) -> None:
    plain = {key.removeprefix("settings."): each for key, each in TINY.items() if "." in key}
    compared = comparison_plan("digits", "aggregate", overrides=plain, runs=tmp_path)
    plan = small_plan(tmp_path, draws=1)
    for tables in (swept(plan).tables["source"], swept(compared).tables["source"]):
        assert tables[0].title == "Out-of-domain accuracy (%): digits, small_cnn"
        assert tables[0].notes[0].startswith("Selection rule source: ")
    page = write_report(plan.home / "source", tmp_path / "page").read_text()
    assert "chosen by rule" not in page


def test_a_table_holds_the_results_of_the_chosen_draws(tmp_path: Path) -> None:
    plan = small_plan(tmp_path)
    results = swept(plan)
    for rule, place_in_order in (("source", -1), ("oracle", 0)):
        out_of_domain = results.tables[rule][0]
        (row,) = out_of_domain.rows
        for number, domain in enumerate(DOMAINS):
            run = list(plan.draws.values())[number][by_rate(plan, number)[place_in_order]]
            cell = row.cells[number]
            assert cell is not None
            assert cell.estimate is not None
            expected = 100 * unlike_rate(run.experiment, domain)
            assert cell.estimate.mean == pytest.approx(expected)


def test_the_oracle_takes_the_better_checkpoint_of_each_run(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, unseen="plain,blended")
    swept(plan)
    for run in plan.singles:
        folder = run.folder
        result = folder.read_result()
        (domain,) = run.condition.unseen
        more = {"plain": 0.2, "blended": -0.2}[domain]
        out_of_domain = result.rules["last"].views["out_of_domain"]
        out_of_domain[domain] = measured(out_of_domain[domain].accuracy + more)
        folder.write_result(result)
    again = small_plan(tmp_path, unseen="plain,blended")
    (row,) = apply_rules(again).tables["oracle"][0].rows
    lowest = plan.singles[by_rate(plan)[0]].experiment
    expected = [unlike_rate(lowest, "plain") + 0.2, unlike_rate(lowest, "blended")]
    means = [cell.estimate.mean for cell in row.cells[:2] if cell and cell.estimate]
    assert means == pytest.approx([100 * each for each in expected])


def test_missing_runs_are_named(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, unseen="plain,blended")
    pretender = Pretender(rate, unlike_rate)
    highest = by_rate(plan)[-1]
    broken = plan.singles[highest]
    pretender.broken = {run_name(broken.experiment)}
    results = swept(plan, pretender)
    (missing,) = results.missing
    assert (missing.run, missing.state, missing.error) == (broken, "failed", "it broke down")
    chosen = next(each for each in results.chosen if each.run.condition == broken.condition)
    assert chosen.run.draw == by_rate(plan)[-2]
    note = "Without a result: 1 failed (chosen.json names the runs)."
    assert note in results.tables["source"][0].notes
    written = read_json(results.home / "chosen.json")
    assert written["chosen"][0]["left_out"] == [highest]
    assert written["chosen"][1]["left_out"] == []
    (entry,) = written["missing"]
    assert entry["run"] == run_name(broken.experiment)
    assert (entry["state"], entry["error"], entry["draw"]) == ("failed", "it broke down", highest)


def test_a_condition_without_any_finished_draw_is_shown_as_missing(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, unseen="plain,blended")
    pretender = Pretender(rate, unlike_rate)
    lost = [run for run in plan.singles if run.condition.unseen == ("blended",)]
    pretender.broken = {run_name(run.experiment) for run in lost}
    results = swept(plan, pretender)
    table = results.tables["source"][0]
    assert table.columns[:2] == ("plain", "blended")
    assert any("aggregate: 1 of 2 results is missing (blended" in note for note in table.notes)
    other = small_plan(tmp_path / "other", unseen="plain,blended")
    pretender.broken |= {run_name(run.experiment) for run in plan.singles}
    nothing = swept(other, pretender)
    assert nothing.tables == {"source": [], "last": [], "oracle": []}
    assert len(nothing.missing) == 6


def paired(experiment: Experiment, domain: str) -> float:
    """Draw by draw another order than validation: the middle rate does best on other domains."""
    return 1 - abs(experiment.optimizer.lr - 1e-3) * 100


def test_pairs_choose_without_the_target(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, pairs="all")

    def unseen(experiment: Experiment, domain: str) -> float:
        target = experiment.data.unseen_domain
        return paired(experiment, domain) if len(target) > 1 else unlike_rate(experiment, domain)

    results = swept(plan, Pretender(rate, unseen))
    chosen = [each for each in results.chosen if each.rule == "leave-one-domain-out"]
    best = max(plan.draws[plan.singles[0].condition], key=lambda t: paired(t.experiment, ""))
    assert [each.run.draw for each in chosen] == [best.draw] * 4
    assert chosen[0].score == pytest.approx(paired(best.experiment, ""))
    table = results.tables["leave-one-domain-out"][0]
    assert table.rule == "leave-one-domain-out"
    (row,) = table.rows
    assert row.cells[0] is not None
    assert row.cells[0].estimate is not None
    expected = 100 * unlike_rate(best.experiment, "plain")
    assert row.cells[0].estimate.mean == pytest.approx(expected)


def test_a_draw_that_lacks_a_pair_is_left_out(tmp_path: Path) -> None:
    plan = small_plan(tmp_path, pairs="all", unseen="plain")
    pretender = Pretender(rate, paired)
    best = max(plan.singles, key=lambda t: paired(t.experiment, ""))
    lost = plan.partners[best.condition][best.draw]["outlines"]
    pretender.broken = {run_name(lost.experiment)}
    results = swept(plan, pretender)
    (chosen,) = [each for each in results.chosen if each.rule == "leave-one-domain-out"]
    assert chosen.run.draw != best.draw
    assert best.draw not in chosen.compared
    assert [missing.run for missing in results.missing] == [lost]


def test_datasets_have_tables_of_their_own(tmp_path: Path) -> None:
    """Recipes of the same images under another name, say."""
    plan = small_plan(tmp_path, unseen="plain")
    other = [replace(part, dataset="digits_2") for part in plan.parts]
    sweep = plan.sweep.model_copy(update={"datasets": ("digits", "digits_2")})
    both = replace(plan, parts=(*plan.parts, *other), sweep=sweep)
    results = swept(both)
    assert {path.name for path in (results.home / "source").iterdir()} == {
        "digits",
        "digits_2",
        "runs.json",
        *(f"summary{suffix}" for suffix in (".csv", ".md", ".tex")),
    }
    columns = results.summaries["source"].columns
    assert columns == ("digits", "digits_2", "average")  # not twice the dataset's own name
    assert len(results.tables["source"]) == 6


def test_variants_keep_their_names_in_tables_and_report(tmp_path: Path) -> None:
    faster = {"variant_of": "aggregate", "settings": {"optimizer": {"lr": 0.01}}}
    plan = small_plan(
        tmp_path, methods="aggregate,faster", by_method={"faster": faster}, draws=None
    )
    results = swept(plan)
    for run in plan.singles:
        run.folder.create(run.experiment)
    table = results.tables["source"][0]
    assert [row.name for row in table.rows] == ["aggregate", "faster"]
    assert all(cell.complete for row in table.rows for cell in row.cells if cell.planned)
    page = write_report(results.home / "source", tmp_path / "report")
    assert "faster" in page.read_text(encoding="utf-8")
    runs, _ = load_runs(results.home / "source")
    assert [study.rows[0][0] for study in make_studies(runs, None)] == ["aggregate"]
    assert {run.label for run in runs} == {"aggregate", "faster"}
