"""Jobs in worker processes, here and on Ray: the bytes of one by one, whatever goes wrong."""

import os
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.sweeps.tiny_sweep import (
    PARTS,
    Listener,
    assert_same_records,
    assert_same_run,
    below,
    tiny_job,
)

from unseen.atomic import read_json
from unseen.data.dataset import OpenDatasets
from unseen.errors import SettingsError, UnseenError
from unseen.results.folder import RunFolder
from unseen.settings.recipes import build_experiment
from unseen.sweeps import ray as on_ray
from unseen.sweeps.ledger import Ledger, Stopped, run_jobs, start_and_collect, stop_pool
from unseen.sweeps.ray import RayPool, worker_environment
from unseen.sweeps.workers import (
    Job,
    Outcome,
    Resources,
    changed_environment,
    count_workers,
    train_silently,
    worker_environments,
)
from unseen.training.checkpoints import steps_saved
from unseen.training.devices import StopFlag
from unseen.training.display import SilentDisplay
from unseen.training.execute import execute

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("on", ["here", pytest.param("ray", marks=pytest.mark.slow)])
def test_a_sweep_with_one_bad_method_and_one_killed_worker(
    on, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / f"parts_{on}.py").write_text(PARTS)
    monkeypatch.syspath_prepend(str(modules))
    monkeypatch.setenv("UNSEEN_MARK", str(tmp_path / "mark"))
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    jobs = [
        tiny_job(method={"name": f"parts_{on}:Failing"}),
        tiny_job(method={"name": f"parts_{on}:DyingOnce"}),
        tiny_job("digits/dmg", seed=1),
        tiny_job(seed=2, until=3),
    ]
    listener = Listener()
    outcomes = run_jobs(jobs, Resources(on, workers=1), listener)

    paths = [job.folders[0] for job in jobs]
    assert list(outcomes) == paths
    assert [o.state for o in outcomes.values()] == ["failed", "finished", "finished", "paused"]
    assert listener.outcomes == outcomes
    broken = "ArithmeticError: this method is broken"
    assert outcomes[paths[0]].error == f"{broken} (tried 2 times; --retries 2 tries it again)"
    failure = RunFolder(paths[0]).read_failure()
    assert failure is not None
    assert (failure["error"], failure["attempts"]) == (broken, 2)
    assert failure["traceback"].startswith("Traceback")
    assert f"parts_{on}.py" in failure["traceback"]
    assert steps_saved(RunFolder(paths[0]).checkpoint) == 2  # it can be looked at
    assert steps_saved(RunFolder(paths[3]).checkpoint) == 3
    assert Path("mark").exists()
    for number in (1, 2):  # the mark is there now: nothing dies in this process
        alone = RunFolder(tmp_path / "alone" / str(number))
        execute(build_experiment(jobs[number].settings[0]), alone, SilentDisplay())
        assert_same_run(paths[number], alone.path)
    command = read_json(RunFolder(paths[2]).environment)["command"]
    assert command == [Path(sys.argv[0]).name, *sys.argv[1:]]  # not a worker's own
    assert signal.getsignal(signal.SIGTERM) is before
    assert "ray" not in sys.modules or not sys.modules["ray"].is_initialized()
    _again(jobs, outcomes, monkeypatch)


def _again(jobs: list[Job], outcomes: dict[Path, Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same call starts no process, says the same, and touches no file."""
    monkeypatch.setattr("unseen.sweeps.workers.Worker", None)
    files = [path for path in Path("runs").rglob("*") if path.is_file()]
    before = [path.stat().st_mtime_ns for path in files]
    assert run_jobs(jobs, Resources(workers=1), Listener()) == outcomes
    assert [path.stat().st_mtime_ns for path in files] == before


@pytest.mark.slow
def test_a_cluster_that_is_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its address; it is still there afterwards, and its records are those of here."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    words = ["methods=aggregate", "unseen=plain", "draws=2", "settings.steps=6"]
    words += ["settings.evaluate_every=3", "settings.network.image_size=16"]
    sweep = [sys.executable, "-m", "unseen", "sweep", "digits", *words]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    ray = Path(sys.executable).with_name("ray")
    start = [ray, "start", "--head", "--block", "--num-cpus=1", "--include-dashboard=false"]
    head = subprocess.Popen([*start, f"--port={address.partition(':')[2]}"], cwd=tmp_path)
    try:
        there = [*sweep, "--on", "ray", "--address", address, "--runs", str(tmp_path / "there")]
        for _ in range(10):  # the head takes its time
            if subprocess.run(there, cwd=tmp_path, check=False).returncode == 0:
                break
        assert head.poll() is None
    finally:
        head.terminate()
        head.wait(60)
    here = [*sweep, "--workers", "1", "--runs", str(tmp_path / "here")]
    subprocess.run(here, cwd=tmp_path, check=True)
    assert_same_records(tmp_path / "there", tmp_path / "here")


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return below(tmp_path, tiny_job(steps=1))


def test_a_run_that_another_process_trains_is_busy(job: Job) -> None:
    folder = RunFolder(job.folders[0])
    with folder.locked():
        reply = train_silently(job, 1, OpenDatasets())
    assert reply.state == "busy"
    assert "another process is training the run" in reply.error
    assert not folder.failure.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": {"name": "no_such_module:Method"}}, "no_such_module"),  # no experiment at all
        ({"data": {"name": "digits", "unseen_domain": ["outline"]}}, "did you mean 'outlines'"),
    ],
)
def test_settings_that_do_not_hold_are_a_failure_of_their_run(
    job: Job, changes: dict[str, Any], message: str
) -> None:
    reply = train_silently(
        job._replace(settings=({**job.settings[0], **changes},)), 1, OpenDatasets()
    )
    assert reply.state == "failed"
    assert message in reply.error
    assert message in read_json(RunFolder(job.folders[0]).failure)["error"]


def test_a_run_that_finishes_leaves_nothing_of_what_went_wrong_before(job: Job) -> None:
    folder = RunFolder(job.folders[0])
    folder.write_failure("it was the weather", "trace")
    (folder.path / "weights").mkdir()
    (folder.path / "weights" / ".last.safetensors.abc.partial").write_text("cut sho")
    assert train_silently(job, 1, OpenDatasets()).state == "done"
    assert folder.finished
    assert not folder.failure.exists()
    assert list(folder.path.rglob(".*.partial")) == []


def test_threads_of_a_job_and_remarks_that_come_back(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tracker that fails, say: nobody sees what is printed in a worker."""

    def pretend(experiment, folder, display, *rest) -> None:
        display.step(1, 0.5)
        display.preparing("decoding", 5, 10)
        display.line("the tracker does not answer")

    threads: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    monkeypatch.setattr("unseen.training.execute.execute", pretend)
    told: list[str] = []
    reply = train_silently(job, 3, OpenDatasets(), told.append)
    assert threads == [3]
    assert told == ["decoding images 5/10"]
    assert reply == Outcome("done", remarks=("the tracker does not answer",))


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_worker_ends_with_its_command() -> None:
    """By the end of a pipe; and it is light until it has work."""
    words = [sys.executable, "-m", "tests.sweeps.orphan"]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as command:
        assert command.stdout is not None
        number = command.stdout.readline().strip()
        assert number.isdigit(), "the worker did not start, or loaded torch before it had work"
        worker = Path("/proc") / number
        assert (worker / "cmdline").read_text()
        command.kill()
        while worker.exists():  # for an hour, if it did not end with its command
            time.sleep(0.02)


@pytest.mark.parametrize(
    ("workers", "gpus", "visible", "expected"),
    [
        (2, 1, ["0", "1"], ["0", "1"]),
        (2, 2, ["0", "1", "2", "3"], ["0,1", "2,3"]),
        (4, 0.5, ["0", "1"], ["0", "1", "0", "1"]),
        (3, 1 / 3, ["5"], ["5", "5", "5"]),
        (2, 0.4, ["GPU-aa"], ["GPU-aa", "GPU-aa"]),
        (1, 0.5, ["0", "1"], ["0"]),
        (3, 0.4, ["0"], "which have room for 2;"),
        (2, 2, ["0", "1", "2"], "which have room for 1;"),
        (1, 1, [], "which have room for 0;"),
        (1, 1.5, ["0"], r"whole GPUs or a share of one, not 1\.5; try 1"),
    ],
)
def test_devices_of_each_worker(
    monkeypatch: pytest.MonkeyPatch, workers, gpus, visible, expected
) -> None:
    monkeypatch.setattr("unseen.sweeps.workers.visible_devices", lambda: visible)
    resources = Resources(workers=workers, gpus=gpus)
    if isinstance(expected, list):
        found = worker_environments(resources)
        assert [each["CUDA_VISIBLE_DEVICES"] for each in found] == expected
    else:
        with pytest.raises(SettingsError, match=expected):
            worker_environments(resources)


def test_workers_by_cores_and_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(8), raising=False)
    asked = [{}, {"cpus": 3}, {"cpus": 0.5}, {"cpus": 16}, {"cpus": 4, "workers": 5}]
    assert [count_workers(Resources(**each)) for each in asked] == [8, 2, 16, 1, 5]
    assert [Resources(cpus=cpus).threads for cpus in (0.25, 1, 1.9, 4)] == [1, 1, 1, 4]
    monkeypatch.setenv("UNSEEN_ONE", "before")
    with changed_environment({"UNSEEN_ONE": "1", "UNSEEN_TWO": "2"}):
        assert (os.environ["UNSEEN_ONE"], os.environ["UNSEEN_TWO"]) == ("1", "2")
    assert (os.environ["UNSEEN_ONE"], os.environ.get("UNSEEN_TWO")) == ("before", None)
    alone = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    assert worker_environments(Resources(workers=2)) == [alone] * 2
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,6")
    found = worker_environments(Resources(gpus=0.5, cpus=2))
    assert [e["CUDA_VISIBLE_DEVICES"] for e in found] == ["3", "6", "3", "6"]
    assert {e["OMP_NUM_THREADS"] for e in found} == {"2"}
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    found = worker_environments(Resources(gpus=1))
    assert [e["CUDA_VISIBLE_DEVICES"] for e in found] == ["0", "1"]


class Lost(Exception):
    """Stands for ray.exceptions.RayError."""


class Remote:
    """Stands for Ray: holds what was submitted, and replies when a test says so."""

    exceptions = SimpleNamespace(RayError=Lost)

    def __init__(self) -> None:
        self.options_given: dict[str, Any] = {}
        self.submitted: list[tuple[Any, ...]] = []
        self.replies: dict[int, Outcome | Exception] = {}
        self.cancelled: list[tuple[int, bool]] = []

    def remote(self, *arguments: Any) -> Any:
        if callable(arguments[0]):
            return self
        self.submitted.append(arguments)
        return len(self.submitted) - 1

    def options(self, **options: Any) -> "Remote":
        self.options_given = options
        return self

    def wait(self, waiting: list[int], num_returns: int, timeout: float) -> tuple[list[int], Any]:
        return [number for number in waiting if number in self.replies][:1], None

    def get(self, number: int) -> Outcome:
        reply = self.replies[number]
        if isinstance(reply, Exception):
            raise reply
        return reply

    def cancel(self, number: int, force: bool) -> None:
        self.cancelled.append((number, force))
        if force:
            self.replies[number] = Lost("cancelled")

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 100.0}


def pool_of(tmp_path: Path, count: int, resources: Resources) -> tuple[Remote, Ledger, RayPool]:
    remote: Any = Remote()
    jobs = [below(tmp_path, tiny_job(seed=seed)) for seed in range(count)]
    return remote, Ledger(jobs, resources.retries, lambda *_: None), RayPool(remote, resources)


def test_what_ray_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remote, _, pool = pool_of(tmp_path, 0, Resources(cpus=2, gpus=0.25, workers=3))
    options = remote.options_given
    assert (options["num_cpus"], options["num_gpus"], options["max_retries"]) == (2, 0.25, 0)
    monkeypatch.chdir(tmp_path)
    job = tiny_job()
    pool.start(job)
    folder, command, sent, threads = remote.submitted[0]
    assert (folder, command, threads) == (str(tmp_path), tuple(sys.argv), 2)
    assert sent.folders == (tmp_path / "runs" / job.folders[0].name,)


@pytest.mark.parametrize(
    ("resources", "number"),
    [
        (Resources(workers=2), 2),
        (Resources(cpus=0.5, address="auto"), 400),
        (Resources(cpus=4, address="auto"), 64),
    ],
)
def test_the_number_of_tasks_in_flight_is_bounded(
    tmp_path: Path, resources: Resources, number: int
) -> None:
    remote, _, pool = pool_of(tmp_path, 0, resources)
    job = tiny_job()
    while pool.has_room:
        pool.start(job)
    assert len(remote.submitted) == number


def test_a_lost_worker_is_replaced_as_often_as_asked(tmp_path: Path) -> None:
    remote, ledger, pool = pool_of(tmp_path, 1, Resources(workers=1, retries=2))
    for attempt in range(3):
        remote.replies[attempt] = Lost("The node died.\nand a long story")
        start_and_collect(ledger, pool)
        assert len(remote.submitted) == attempt + 1
    assert ledger.jobs_left == 0
    (outcome,) = ledger.outcomes().values()
    assert outcome.state == "failed"
    assert outcome.error == "the process that trained it was lost (Lost: The node died.)"


def test_stopping_lets_runs_save_and_ends_those_that_do_not(tmp_path: Path) -> None:
    remote, ledger, pool = pool_of(tmp_path, 2, Resources(workers=2))
    start_and_collect(ledger, pool)
    remote.replies[0] = Outcome("stopped")
    stop_pool(ledger, pool, patience=0.0)
    assert remote.cancelled[:2] == [(0, False), (1, False)]
    assert (1, True) in remote.cancelled
    assert ledger.runs_left == 2


def test_a_signal_stops_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command hears of it between two looks, and says how to go on."""
    remote = Remote()
    remote.is_initialized = lambda: True  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setattr(on_ray, "require", lambda name, extra: remote)
    monkeypatch.setattr(StopFlag, "signal_number", signal.SIGTERM)
    jobs = [below(tmp_path, tiny_job()), below(tmp_path, tiny_job(seed=1))]
    with pytest.raises(Stopped, match=r"2 runs are left\.\nContinue with the same") as stopped:
        run_jobs(jobs, Resources("ray", workers=1), Listener())
    assert stopped.value.exit_code == 143


def test_environment_of_ray_workers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("UNSEEN_DATA", "/somewhere/data")
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), sysconfig.get_paths()["purelib"]])
    found = worker_environment(Resources(cpus=4))
    assert found["UNSEEN_DATA"] == "/somewhere/data"
    assert found["UNSEEN_CACHE"] == os.environ["UNSEEN_CACHE"]
    assert found["PYTHONPATH"].split(os.pathsep) == [str(Path.cwd()), str(tmp_path)]
    assert (found["OMP_NUM_THREADS"], found["CUDA_VISIBLE_DEVICES"]) == ("4", "")
    assert "CUDA_VISIBLE_DEVICES" not in worker_environment(Resources(gpus=1))  # Ray sets it


def test_a_ray_of_our_own_is_quiet_and_as_large_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    given: dict[str, Any] = {}

    def init(**options: Any) -> None:
        if options["address"] == "far:6379":
            raise ConnectionError("nobody there")
        given.update(options, statistics=os.environ["RAY_USAGE_STATS_ENABLED"])

    ray = SimpleNamespace(init=init, is_initialized=lambda: False, shutdown=lambda: None)
    monkeypatch.setattr(on_ray, "require", lambda name, extra: ray)

    def start(resources: Resources) -> None:
        with on_ray.connected(resources):
            pass

    start(Resources(workers=3, cpus=1.5))
    assert (given["address"], given["num_cpus"], given["statistics"]) == ("local", 5, "0")
    assert (given["include_dashboard"], given["log_to_driver"]) == (False, False)
    assert "RAY_USAGE_STATS_ENABLED" not in os.environ
    with pytest.raises(SettingsError, match="the 0 GPUs there are"):  # Ray would wait for them
        start(Resources(workers=1, gpus=1))
    with pytest.raises(UnseenError, match="no Ray cluster answers at far:6379; 'ray start"):
        start(Resources(address="far:6379"))


def test_no_worker_stays_behind() -> None:
    """After all of the above: neither processes nor threads of them."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    if children.exists():
        names = [Path(f"/proc/{pid}/cmdline").read_text() for pid in children.read_text().split()]
        assert [name for name in names if "spawn_main" in name] == []
    assert all("unseen" not in thread.name for thread in threading.enumerate())
