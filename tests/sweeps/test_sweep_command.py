"""The command: from a name to tables, what it says beforehand, and how it ends when runs fail."""

from pathlib import Path
from typing import Any

import pytest
from tests.commands import commands_in
from tests.sweeps.made_records import Pretender, small_plan

from unseen.results.folder import find_runs
from unseen.sweeps.cost import (
    ImageTimes,
    Row,
    clock,
    cost_summary,
    cost_table,
    estimate,
    on_workers,
    runs_table,
)
from unseen.sweeps.train import PlanDisplay, train_plan
from unseen.sweeps.workers import Job, Outcome, Resources

WORDS = (
    "settings.steps=6",
    "settings.evaluate_every=2",
    "settings.images_per_domain=2",
    "settings.network.image_size=16",
    "search=optimizer.lr",
    "methods=aggregate",
    "unseen=plain,blended",
)


@pytest.fixture
def pretender() -> Pretender:
    return Pretender(lambda e, step: 0.5 + e.optimizer.lr, lambda e, domain: 0.4)


@pytest.fixture(autouse=True)
def resources_seen(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, pretender: Pretender
) -> list[Resources]:
    """What the executor was given; it only pretends to train."""
    seen: list[Resources] = []

    def run_jobs(
        jobs: list[Job], resources: Resources, display: PlanDisplay
    ) -> dict[Path, Outcome]:
        seen.append(resources)
        outcomes = pretender(jobs)
        for path, outcome in outcomes.items():
            display.ended(path, outcome)
        return outcomes

    if "real" not in request.node.name:
        monkeypatch.setattr("unseen.sweeps.train.run_jobs", run_jobs)
    return seen


@pytest.fixture
def unseen(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Run a command in an empty folder; its exit code and what it printed."""
    return commands_in(tmp_path, capsys, monkeypatch)


def test_a_sweep_ends_with_the_table_of_its_rule(
    unseen, pretender: Pretender, resources_seen: list[Resources]
) -> None:
    options = "--on ray --address 10.0.0.1:6379 --cpus 2 --gpus 0.5 --workers 3"
    code, out, err = unseen("sweep", "digits", *WORDS, "selection=last", *options.split())
    assert code == 0
    assert "best of 3 draws by rule last" in out
    assert "best of 3 draws by rule source" not in out
    assert "Tables for the rules source, last, oracle: runs/tables/sweep-" in err
    assert "6/6 aggregate, unseen blended, seed 0, draw 2: out of domain 40.0%, in domain 90" in err
    assert len(pretender.asked[0]) == 6
    unseen("sweep", "digits", *WORDS, *options.split(), "retries=4")
    unseen("sweep", "digits", *WORDS, *options.split(), "retries=4", "--retries", "0")
    expected = [Resources("ray", 3, 2.0, 0.5, retries, "10.0.0.1:6379") for retries in (1, 4, 0)]
    assert resources_seen == expected


def test_failed_runs_are_named_and_the_exit_code_says_so(unseen, pretender: Pretender) -> None:
    words = ("sweep", "digits", *WORDS)
    unseen(*words, "--runs", "first")
    name, _ = pretender.asked[0][1]
    pretender.broken = {name}
    code, out, err = unseen(*words, "--runs", "second")
    assert code == 1
    assert "best of 3 draws by rule source" in out
    assert "1 of 6 runs failed; a higher --retries tries them again" in err
    assert "failed: aggregate, unseen plain, seed 0, draw 1: it broke down" in err
    assert f"second/{name}" in err
    pretender.broken = set()
    code, _, err = unseen(*words, "halving={}", "--runs", "third")  # to be stopped is no failure
    assert code == 0
    assert "4 runs were stopped early by successive halving." in err


@pytest.mark.parametrize(("devices", "gpus"), [([], 0.0), (["0", "1"], 1.0)])
def test_a_run_gets_a_gpu_where_there_is_one(
    unseen, monkeypatch: pytest.MonkeyPatch, resources_seen: list[Resources], devices, gpus: float
) -> None:
    monkeypatch.setattr("unseen.sweeps.train.visible_devices", lambda: devices)
    unseen("sweep", "digits", *WORDS)
    assert [resources.gpus for resources in resources_seen] == [gpus]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("sweep digit", "unknown sweep 'digit'; did you mean 'digits'?"),
        ("sweep mine.yaml", "there is no file mine.yaml"),
        ("sweep digits steps=3", "a setting of all runs is written settings.steps"),
        ("sweep digits --address x", "--address is that of a Ray cluster; add --on ray"),
        ("sweep digits --workers -1", "should be 0 or more, got -1"),
        ("sweep digits --workers 0 --on ray", "leave it or --on ray out"),
        ("sweep digits --retries -1", "should be 0 or more, got -1"),
        ("sweep digits --gpus -1", "should be 0.0 or more, got -1"),
    ],
)
def test_mistakes_end_with_a_message(unseen, words: str, message: str) -> None:
    code, out, err = unseen(*words.split())
    assert code == 2
    assert message in err
    assert "Traceback" not in err
    assert out == ""


def test_a_dry_run_lists_runs_and_cost_and_leaves_nothing_behind(unseen, tmp_path: Path) -> None:
    words = ("sweep", "digits", *WORDS, "draws=2", "--workers", "2")
    code, out, err = unseen(*words, "--dry-run")
    assert (code, err) == (0, "")
    for text in (
        "optimizer.lr=0.0003665",
        "aggregate (digits, small_cnn)",
        "a timed step",
        " on 2,",
    ):
        assert text in out
    assert "4 runs, 0 finished; " in out
    assert list(tmp_path.iterdir()) == []
    assert unseen(*words)[0] == 0
    code, out, _ = unseen(*words, "--dry-run")
    assert (code, "0 s of work is left" in out, "4 finished runs" in out) == (0, True, True)


def test_the_time_of_finished_runs_is_used_where_there_are_some(
    tmp_path: Path, pretender: Pretender
) -> None:
    """They took 12 s each, as the pretender says."""
    plan = small_plan(tmp_path, unseen="plain,blended", draws=2)
    pretender.broken = {run.path.name for run in plan.singles[1:]}
    train_plan(plan, pretender, together=True)

    def never(*about: Any) -> ImageTimes:
        raise AssertionError("measured, though a run is finished")

    (row,) = estimate(plan, never)
    assert (row.planned, row.states) == (4, {"finished": 1, "to train": 3})
    assert row.basis == "1 finished run"
    assert (row.seconds_per_run, row.seconds_left) == (12, 36)


def test_one_timed_step_stands_for_all_runs(tmp_path: Path) -> None:
    asked = []

    def measure(*about: Any) -> ImageTimes:
        asked.append(about)
        return ImageTimes(training=2.0, evaluation=0.0)

    def cost(**changes: Any) -> Row:
        (row,) = estimate(small_plan(tmp_path, unseen="plain", **changes), measure)
        return row

    # 6 steps of 3 domains with 2 or 4 images, 2 s each
    row = cost(draws=None, grid={"images_per_domain": [2, 4]})
    assert row.seconds_left == pytest.approx(72 + 144)
    assert [about[1:] for about in asked] == [(3, 10)]


def test_workers_share_the_work_but_not_a_run() -> None:
    rows = [Row(("d", m, "b"), 4, {}, s, 4 * s, "") for m, s in (("x", 10.0), ("y", 50.0))]
    assert [on_workers(rows, number) for number in (1, 2, 100)] == [240, 120, 50]
    assert on_workers([], 2) == 0
    said = "8 runs, 0 finished; 4 min of work is left: 4 min on 1, 2 min on 2"
    assert said in cost_summary(rows, 2)


def test_many_runs_are_shown_by_kind_alone(tmp_path: Path) -> None:
    assert runs_table(small_plan(draws=10)) is not None
    assert runs_table(small_plan(draws=11)) is None


def test_columns_without_a_number_are_left_out() -> None:
    row = Row(("digits", "dmg", "small_cnn"), 4, {}, 10, 40, "a few timed steps")
    assert [c.header for c in cost_table([row]).columns] == [
        "runs of",
        "planned",
        "a run",
        "left",
        "by",
    ]
    more = row._replace(states={"finished": 1, "stopped": 2})
    headers = [column.header for column in cost_table([row, more]).columns]
    assert headers[1:4] == ["planned", "finished", "stopped"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (99, "99 s"),
        (720, "12 min"),
        (7200, "2.0 h"),
        (864000, "10.0 days"),
        (4e9, "127 years"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_a_real_sweep_here(unseen, tmp_path: Path) -> None:
    """The second time nothing is trained."""
    words = ("sweep", "digits", *WORDS, "draws=2", "unseen=plain", "--workers", "1", "--one-by-one")
    code, out, err = unseen(*words)
    assert code == 0, err
    assert len(list(find_runs(tmp_path / "runs"))) == 2
    stamps = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("result.json")}
    code, again, _ = unseen(*words)
    assert (code, again) == (0, out)
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("result.json")} == stamps
    command = next(line for line in err.splitlines() if line.startswith("Next: unseen "))
    assert unseen(*command.removeprefix("Next: unseen ").split()).code == 0
    (page,) = tmp_path.rglob("report.html")
    assert "Best of 2 draws for each column and seed, chosen by rule source" in page.read_text()
    assert "digits · 1 run ·" in page.read_text(), "the chosen one alone"
