"""After a sweep: what each rule chose, its tables, and every run that is missing, by name."""

from pathlib import Path

import pytest
from tests.experiments.made_records import DOMAINS, Pretender, small_plan
from tests.made_results import measured

from unseen.atomic import read_json
from unseen.config import Experiment
from unseen.experiments.choose.results import Verdict, judge
from unseen.experiments.plan import Plan
from unseen.experiments.run.jobs import Means
from unseen.experiments.sweep import Way, carry_out_sweep
from unseen.records.folder import run_name
from unseen.records.run_list import find_runs
from unseen.reports.page.write import write_report


def rate(experiment: Experiment, step: int) -> float:
    """Validation that a higher rate makes better, and time worse."""
    return min(0.9, 100 * experiment.optimizer.lr) - step / 1000


def unlike_rate(experiment: Experiment, domain: str) -> float:
    """An unseen domain that a higher rate makes worse; plain most of all."""
    return 0.5 - 20 * experiment.optimizer.lr - (0.1 if domain == "plain" else 0)


def swept(plan: Plan, runs: Path, pretender: Pretender | None = None) -> Verdict:
    pretender = pretender or Pretender(rate, unlike_rate)
    outcomes = carry_out_sweep(plan, runs, Way(pretender, Means()), lambda outcome: None)
    return judge(plan, runs, [each for each in outcomes if each.state == "failed"])


def by_rate(plan: Plan, place_number: int = 0) -> list[int]:
    """Draw numbers at a place, the lowest rate first."""
    trials = list(plan.groups.values())[place_number]
    return [t.draw for t in sorted(trials, key=lambda t: t.experiment.optimizer.lr)]


def test_rules_choose_and_tables_say_by_which_rule(tmp_path: Path) -> None:
    plan = small_plan(seeds="0-1")
    verdict = swept(plan, tmp_path)
    assert verdict.missing == []
    assert verdict.home == tmp_path / "tables" / plan.folder_name
    written = read_json(verdict.home / "chosen.json")
    assert len(written["chosen"]) == 3 * 4 * 2  # rules, domains, seeds
    for number, (place, trials) in enumerate(plan.groups.items()):
        lowest, *_, highest = by_rate(plan, number)
        chosen = {each.rule: each.trial.draw for each in verdict.chosen if each.trial in trials}
        assert chosen == {"source": highest, "last": highest, "oracle": lowest}
        entry = next(
            each
            for each in written["chosen"]
            if each["rule"] == "source"
            and (tuple(each["unseen"]), each["seed"]) == (place.unseen, place.seed)
        )
        trial = trials[highest]
        assert entry["draw"] == highest
        assert entry["run"] == run_name(trial.experiment)
        assert entry["settings"] == {"optimizer.lr": trial.experiment.optimizer.lr}
        assert entry["score"] == pytest.approx(rate(trial.experiment, 2))
        assert (entry["compared"], entry["left_out"], entry["step"]) == (3, [], 200)
    for rule in ("source", "last", "oracle"):
        table = verdict.tables[rule][0]
        assert table.title.endswith(f"best of 3 draws by rule {rule}")
        assert table.rule == rule
        assert table.notes[0].startswith(f"Best of 3 draws for each column and seed; rule {rule}: ")
        assert not any("Selection rule" in note for note in table.notes)
        text = (verdict.home / rule / "out_of_domain.md").read_text()
        assert f"best of 3 draws by rule {rule}" in text
        chosen = [each.trial.folder(tmp_path).path for each in verdict.chosen if each.rule == rule]
        found = [run.path.resolve() for run in find_runs(verdict.home / rule)]
        assert found == [path.resolve() for path in chosen]
        page = write_report(verdict.home / rule, tmp_path / "page" / rule).read_text()
        assert f"Best of 3 draws, chosen by rule {rule}: " in page
    assert "an upper bound" in verdict.tables["oracle"][0].notes[0]


def test_a_table_holds_the_results_of_the_chosen_draws(tmp_path: Path) -> None:
    plan = small_plan()
    verdict = swept(plan, tmp_path)
    for rule, place_in_order in (("source", -1), ("oracle", 0)):
        out_of_domain = verdict.tables[rule][0]
        (row,) = out_of_domain.rows
        for number, domain in enumerate(DOMAINS):
            trial = list(plan.groups.values())[number][by_rate(plan, number)[place_in_order]]
            cell = row.cells[number]
            assert cell is not None
            assert cell.estimate is not None
            expected = 100 * unlike_rate(trial.experiment, domain)
            assert cell.estimate.mean == pytest.approx(expected)


def test_the_oracle_takes_the_better_checkpoint_of_each_run(tmp_path: Path) -> None:
    plan = small_plan(unseen="plain,blended")
    swept(plan, tmp_path)
    for trial in plan.singles:
        folder = trial.folder(tmp_path)
        result = folder.read_result()
        (domain,) = trial.place.unseen
        more = {"plain": 0.2, "blended": -0.2}[domain]
        out_of_domain = result.rules["last"].views["out_of_domain"]
        out_of_domain[domain] = measured(out_of_domain[domain].accuracy + more)
        folder.write_result(result)
    (row,) = judge(plan, tmp_path).tables["oracle"][0].rows
    lowest = plan.singles[by_rate(plan)[0]].experiment
    expected = [unlike_rate(lowest, "plain") + 0.2, unlike_rate(lowest, "blended")]
    means = [cell.estimate.mean for cell in row.cells[:2] if cell and cell.estimate]
    assert means == pytest.approx([100 * each for each in expected])


def test_missing_runs_are_named(tmp_path: Path) -> None:
    plan = small_plan(unseen="plain,blended")
    pretender = Pretender(rate, unlike_rate)
    highest = by_rate(plan)[-1]
    broken = plan.singles[highest]
    pretender.broken = {run_name(broken.experiment)}
    verdict = swept(plan, tmp_path, pretender)
    (missing,) = verdict.missing
    assert (missing.trial, missing.state, missing.error) == (broken, "failed", "it broke down")
    chosen = next(each for each in verdict.chosen if each.trial.place == broken.place)
    assert chosen.trial.draw == by_rate(plan)[-2]
    note = "Not compared, for want of a result: 1 failed (chosen.json names the runs)."
    assert note in verdict.tables["source"][0].notes
    written = read_json(verdict.home / "chosen.json")
    assert written["chosen"][0]["left_out"] == [highest]
    assert written["chosen"][1]["left_out"] == []
    (entry,) = written["missing"]
    assert entry["run"] == run_name(broken.experiment)
    assert (entry["state"], entry["error"], entry["draw"]) == ("failed", "it broke down", highest)


def test_a_place_without_any_finished_draw_is_shown_as_missing(tmp_path: Path) -> None:
    plan = small_plan(unseen="plain,blended")
    pretender = Pretender(rate, unlike_rate)
    lost = [trial for trial in plan.singles if trial.place.unseen == ("blended",)]
    pretender.broken = {run_name(trial.experiment) for trial in lost}
    verdict = swept(plan, tmp_path, pretender)
    table = verdict.tables["source"][0]
    assert [column.name for column in table.columns][:2] == ["plain", "blended"]
    assert any("aggregate: 1 of 2 results is missing (blended" in note for note in table.notes)
    pretender.broken |= {run_name(trial.experiment) for trial in plan.singles}
    nothing = swept(plan, tmp_path / "other", pretender)
    assert nothing.tables == {"source": [], "last": [], "oracle": []}
    assert len(nothing.missing) == 6


def paired(experiment: Experiment, domain: str) -> float:
    """Draw by draw another order than validation: the middle rate does best on other domains."""
    return 1 - abs(experiment.optimizer.lr - 1e-3) * 100


def test_pairs_choose_without_the_target(tmp_path: Path) -> None:
    plan = small_plan(pairs="all")

    def unseen(experiment: Experiment, domain: str) -> float:
        target = experiment.data.unseen_domain
        return paired(experiment, domain) if len(target) > 1 else unlike_rate(experiment, domain)

    verdict = swept(plan, tmp_path, Pretender(rate, unseen))
    chosen = [each for each in verdict.chosen if each.rule == "leave-one-domain-out"]
    best = max(plan.groups[plan.singles[0].place], key=lambda t: paired(t.experiment, ""))
    assert [each.trial.draw for each in chosen] == [best.draw] * 4
    assert chosen[0].candidate.score == pytest.approx(paired(best.experiment, ""))
    table = verdict.tables["leave-one-domain-out"][0]
    assert table.rule == "leave-one-domain-out"
    (row,) = table.rows
    assert row.cells[0] is not None
    assert row.cells[0].estimate is not None
    expected = 100 * unlike_rate(best.experiment, "plain")
    assert row.cells[0].estimate.mean == pytest.approx(expected)


def test_nested_pairs_train_only_the_winner_alone(tmp_path: Path) -> None:
    plan = small_plan(pairs="nested", draws=3)
    pretender = Pretender(rate, paired)
    verdict = swept(plan, tmp_path, pretender)
    first, second = pretender.asked
    assert len(first) == 6 * 3
    best = max(plan.groups[plan.singles[0].place], key=lambda t: paired(t.experiment, ""))
    alone = [t for t in plan.singles if t.draw == best.draw]
    assert second == [(run_name(trial.experiment), None) for trial in alone]
    assert verdict.missing == []
    assert list(verdict.tables) == ["leave-one-domain-out"]
    # the same again: derived from the records, nothing else is asked for
    again = Pretender(rate, paired)
    swept(plan, tmp_path, again)
    assert again.asked == pretender.asked


def test_a_draw_that_lacks_a_pair_is_left_out(tmp_path: Path) -> None:
    plan = small_plan(pairs="nested", unseen="plain")
    pretender = Pretender(rate, paired)
    best = max(plan.singles, key=lambda t: paired(t.experiment, ""))
    lost = plan.partners[best.place, best.draw]["outlines"]
    pretender.broken = {run_name(lost.experiment)}
    verdict = swept(plan, tmp_path, pretender)
    (chosen,) = verdict.chosen
    assert chosen.trial.draw != best.draw
    assert best.draw not in chosen.compared
    assert [missing.trial for missing in verdict.missing] == [lost]


def test_datasets_have_tables_of_their_own(tmp_path: Path) -> None:
    """Recipes of the same images under another name, say."""
    plan = small_plan(unseen="plain")
    other = [t._replace(place=t.place._replace(dataset="digits_2")) for t in plan.singles]
    both = Plan(plan.name, plan.sweep, (*plan.singles, *other), ())
    verdict = swept(both, tmp_path)
    assert {path.name for path in (verdict.home / "source").iterdir()} == {
        "digits",
        "digits_2",
        "runs.json",
    }
    assert len(verdict.tables["source"]) == 6


def test_no_torch_is_needed_to_choose() -> None:
    import subprocess
    import sys

    modules = "unseen.experiments.choose.rules, unseen.experiments.choose.halving"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
