"""Successive halving: when, who goes on, the same after a kill, and survivors as if undisturbed."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.numpy import load_file
from tests.sweeps.made_records import Pretender, small_plan
from tests.sweeps.tiny_sweep import job_of

from unseen.atomic import read_json
from unseen.data.dataset import OpenDatasets
from unseen.errors import SettingsError, UnseenError
from unseen.results.folder import RunFolder, run_name
from unseen.settings.recipes import load_experiment
from unseen.sweeps.draws import PlannedRun
from unseen.sweeps.plan import Plan
from unseen.sweeps.rules import rounds, rungs, state_of, survivors
from unseen.sweeps.sweep_file import Halving
from unseen.sweeps.tables import apply_rules
from unseen.sweeps.train import train_plan
from unseen.sweeps.workers import Job, Outcome, train_job
from unseen.training.display import SilentDisplay


def is_stopped(folder: RunFolder) -> bool:
    return state_of(folder) == "stopped"


def halved_plan(runs: Path, draws: int = 3, keep_one_in: int = 2) -> Plan:
    halving = {"first": 0.2, "keep_one_in": keep_one_in}
    return small_plan(runs, unseen="plain", draws=draws, halving=halving)


def by_rate(plan: Plan) -> list[PlannedRun]:
    """The runs with the best one first, as the pretender scores them."""
    return sorted(plan.singles, key=lambda run: -run.experiment.optimizer.lr)


@pytest.fixture
def pretender() -> Pretender:
    return Pretender(lambda e, step: e.optimizer.lr * 100, lambda e, domain: 0.5)


@pytest.mark.parametrize(
    ("steps", "every", "first", "keep_one_in", "expected"),
    [
        (300, 10, 0.1, 3, [30, 90, 270]),
        (300, 100, 0.2, 3, [100, 200]),  # 60 and 180, at the next evaluations
        (300, 100, 0.1, 3, [100]),  # 30 and 90 are the same one, 270 is the end
        (300, 50, 1 / 3, 3, [100]),
        (6, 2, 0.2, 2, [2, 4]),  # 1.2, 2.4 and 4.8, which is the end
    ],
)
def test_draws_are_compared_at_evaluations(
    steps: int, every: int, first: float, keep_one_in: int, expected: list[int]
) -> None:
    experiment = load_experiment("digits/aggregate", {"steps": steps, "evaluate_every": every})
    assert rungs(experiment, steps, Halving(first=first, keep_one_in=keep_one_in)) == expected


def test_no_evaluation_before_the_end() -> None:
    experiment = load_experiment("digits/aggregate", {"steps": 30, "evaluate_every": 30})
    with pytest.raises(SettingsError, match="evaluate_every=30, steps=30; lower evaluate_every"):
        rungs(experiment, 30, Halving())


def record(home: Path, scores: dict[int, float], candidate: bool = True) -> RunFolder:
    """A run that was evaluated at these steps."""
    home.mkdir()
    lines = [{"step": s, "validation": {"a": v}} for s, v in scores.items()]
    lines = [line | ({} if candidate else {"candidate": False}) for line in lines]
    (home / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return RunFolder(home)


def test_the_best_up_to_their_rung_go_on(tmp_path: Path) -> None:
    folders = {
        0: record(tmp_path / "0", {2: 0.5, 4: 0.6}),
        1: record(tmp_path / "1", {2: 0.8, 4: 0.1}),  # its best counts
        2: record(tmp_path / "2", {2: 0.1, 4: 0.7, 6: 0.99}),  # what comes later does not
        3: record(tmp_path / "3", {2: 0.9}),  # never got there
    }
    assert survivors({n: (folder, 4) for n, folder in folders.items()}, keep=2) == [1, 2]
    mark = {"step": 4, "validation": 0.6, "better": 2, "compared": 3}
    assert read_json(tmp_path / "0" / "stopped.json") == mark
    assert [is_stopped(folders[number]) for number in (1, 2, 3)] == [False] * 3


def test_ties_go_to_the_first_draws_and_all_go_on_while_some_only_prepare(tmp_path: Path) -> None:
    equal = {n: (record(tmp_path / str(n), {2: 0.5}), 2) for n in (2, 1, 0)}
    assert survivors(equal, keep=2) == [0, 1]
    preparing = record(tmp_path / "3", {2: 0.9}, candidate=False)
    assert survivors({0: equal[0], 1: (preparing, 2)}, keep=1) == [0, 1]


def test_rounds_ask_for_fewer_and_fewer(tmp_path: Path, pretender: Pretender) -> None:
    plan = halved_plan(tmp_path, draws=4)
    first, second, *_ = by_rate(plan)
    train_plan(plan, pretender, together=True)
    numbers = {run.path.name: run.draw for run in plan.singles}
    asked = [[(numbers[name], until) for name, until in each] for each in pretender.asked]
    assert asked == [
        [(0, 2), (1, 2), (2, 2), (3, 2)],
        [(draw, 4) for draw in sorted((first.draw, second.draw))],
        [(first.draw, None)],
    ]
    assert [run for run in plan.singles if not is_stopped(run.folder)] == [first]
    score = pytest.approx(100 * second.experiment.optimizer.lr)
    mark = {"step": 4, "validation": score, "better": 1, "compared": 2}
    assert read_json(second.path / "stopped.json") == mark
    results = apply_rules(plan)
    assert {each.state for each in results.missing} == {"stopped"}
    assert results.failed == []
    assert any("3 stopped" in note for note in results.tables["source"][0].notes)
    assert next(each.compared for each in results.chosen) == (first.draw,)


def test_a_failed_draw_takes_nobody_with_it(tmp_path: Path, pretender: Pretender) -> None:
    plan = halved_plan(tmp_path, keep_one_in=3)
    best, second, _ = by_rate(plan)
    pretender.broken = {best.path.name}
    train_plan(plan, pretender, together=True)
    assert pretender.asked[-1] == [(second.path.name, None)]
    assert not is_stopped(best.folder)


def test_a_run_that_goes_on_after_all_is_no_longer_stopped(
    tmp_path: Path, pretender: Pretender
) -> None:
    """Under a milder rule, where the sweep is killed before its second round; or under none."""
    strict, mild = (halved_plan(tmp_path, keep_one_in=number) for number in (3, 2))
    _, second, third = by_rate(strict)
    train_plan(strict, pretender, together=True)
    assert is_stopped(second.folder)
    made = rounds(mild)
    next(made)  # all have reached the first rung already
    assert second.experiment in [run.experiment for run in next(made)]
    assert not is_stopped(second.folder)
    assert is_stopped(third.folder)
    whole = replace(strict, sweep=strict.sweep.model_copy(update={"halving": None}))
    train_plan(whole, pretender, together=True)
    assert not any(is_stopped(run.folder) for run in strict.singles)
    assert apply_rules(whole).missing == []


class InProcess:
    """Trains in this process; may be killed after some jobs."""

    def __init__(self, jobs: int = 10**6) -> None:
        self.jobs = jobs

    def __call__(self, jobs: Iterable[Job]) -> dict[Path, Outcome]:
        outcomes: dict[Path, Outcome] = {}
        for job in jobs:
            (path,) = job.folders
            self.jobs -= 1
            if self.jobs < 0:
                raise UnseenError("killed")
            train_job(job, SilentDisplay(), OpenDatasets())
            outcomes[path] = Outcome("finished" if RunFolder(path).finished else "paused")
        return outcomes


def content(folder: Path) -> dict[str, bytes]:
    """Every file but those that tell the time or the command; of a stopped run's checkpoint the
    tensors."""
    unlike = {"timing.json", "environment.json", "lock", "checkpoint.safetensors"}
    found = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in unlike
    }
    checkpoint = RunFolder(folder).checkpoint
    tensors = load_file(checkpoint) if checkpoint.is_file() else {}
    return found | {name: tensor.tobytes() for name, tensor in tensors.items()}


def test_survivors_equal_an_undisturbed_run_and_a_kill_changes_nothing(tmp_path: Path) -> None:
    halved, killed, plain = (tmp_path / name for name in ("halved", "killed", "plain"))
    plan = halved_plan(halved)
    train_plan(plan, InProcess(), together=False)
    (survivor,) = [run for run in plan.singles if run.folder.finished]
    InProcess()([job_of(survivor.experiment, runs=plain)])
    name = run_name(survivor.experiment)
    assert content(halved / name) == content(plain / name)
    for jobs in (1, 2, 4, 5):  # in the first round, again, in the second, before the third
        with pytest.raises(UnseenError, match="killed"):
            train_plan(halved_plan(killed), InProcess(jobs), together=False)
    train_plan(halved_plan(killed), InProcess(), together=False)
    for run in plan.singles:
        name = run_name(run.experiment)
        assert content(killed / name) == content(halved / name)
        assert is_stopped(RunFolder(killed / name)) == (run != survivor)
        assert RunFolder(killed / name).checkpoint.is_file() == (run != survivor)
