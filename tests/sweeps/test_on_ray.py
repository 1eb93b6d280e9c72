"""The same jobs as Ray tasks: the same bytes, and the loss of a worker is no loss of a run."""

import os
import signal
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.sweeps.test_here import one_by_one
from tests.sweeps.tiny_sweep import (
    PARTS,
    Listener,
    assert_same_records,
    assert_same_run,
    below,
    tiny_job,
)

from unseen.atomic import read_json
from unseen.errors import SettingsError, UnseenError
from unseen.results.folder import RunFolder
from unseen.sweeps import ledger as loop
from unseen.sweeps import ray as module
from unseen.sweeps.jobs import Reply
from unseen.sweeps.ledger import Ledger, Stopped, run_jobs
from unseen.sweeps.ray import RayPool, worker_environment
from unseen.sweeps.resources import Resources
from unseen.training.interruptions import StopFlag


def test_a_sweep_with_one_bad_method_and_one_killed_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compared with runs in this process, as those of worker processes are."""
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "parts_on_ray.py").write_text(PARTS)
    monkeypatch.syspath_prepend(str(modules))
    monkeypatch.setenv("UNSEEN_MARK", str(tmp_path / "mark"))
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    jobs = [
        tiny_job(method={"name": "parts_on_ray:Failing"}),
        tiny_job(method={"name": "parts_on_ray:DyingOnce"}),
        tiny_job("digits/dmg", seed=1),
        tiny_job(seed=2, until=3),
    ]
    listener = Listener()
    outcomes = run_jobs(jobs, Resources("ray", workers=1), listener)

    assert [o.state for o in outcomes] == ["failed", "finished", "finished", "paused"]
    assert [o.path for o in outcomes] == [job.folders[0] for job in jobs]
    assert sorted(listener.outcomes) == sorted(outcomes)
    assert outcomes[0].error.startswith("ArithmeticError: this method is broken (tried 2 times;")
    assert (tmp_path / "mark").exists()
    for number in (1, 2):
        alone = one_by_one(jobs[number], tmp_path / "alone" / str(number))
        assert_same_run(outcomes[number].path, alone.path)
    command = read_json(RunFolder(outcomes[2].path).environment)["command"]
    assert command == [Path(sys.argv[0]).name, *sys.argv[1:]]  # not Ray's own
    assert signal.getsignal(signal.SIGTERM) is before
    assert not sys.modules["ray"].is_initialized()


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


class Lost(Exception):
    """Stands for ray.exceptions.RayError."""


class Remote:
    """Stands for Ray: holds what was submitted, and replies when a test says so."""

    exceptions = SimpleNamespace(RayError=Lost)

    def __init__(self) -> None:
        self.options_given: dict[str, Any] = {}
        self.submitted: list[tuple[Any, ...]] = []
        self.replies: dict[int, Reply | Exception] = {}
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

    def get(self, number: int) -> Reply:
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
    remote = Remote()
    jobs = [below(tmp_path, tiny_job(seed=seed)) for seed in range(count)]
    ledger = Ledger(jobs, resources.retries, lambda outcome: None)
    return remote, ledger, RayPool(remote, resources)  # pyright: ignore[reportArgumentType]


def test_what_ray_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remote, _, pool = pool_of(tmp_path, 0, Resources(cpus=2, gpus=0.25, workers=3))
    options = remote.options_given
    assert (options["num_cpus"], options["num_gpus"], options["max_retries"]) == (2, 0.25, 0)
    monkeypatch.chdir(tmp_path)
    job = tiny_job()
    pool.start(job)
    folder, command, sent, threads = remote.submitted[0]
    assert (folder, command) == (str(tmp_path), tuple(sys.argv))
    assert sent.folders == (tmp_path / "runs" / job.folders[0].name,)
    assert threads == 2


def test_the_number_of_tasks_in_flight_is_bounded(tmp_path: Path) -> None:
    remote, ledger, pool = pool_of(tmp_path, 5, Resources(workers=2))
    loop.start_and_collect(ledger, pool)
    loop.start_and_collect(ledger, pool)
    assert len(remote.submitted) == 2
    assert module._in_flight(remote, Resources(cpus=0.5, address="auto")) == 400  # pyright: ignore
    assert module._in_flight(remote, Resources(cpus=4, address="auto")) == 64  # pyright: ignore


def test_a_lost_worker_is_replaced_as_often_as_asked(tmp_path: Path) -> None:
    remote, ledger, pool = pool_of(tmp_path, 1, Resources(workers=1, retries=2))
    for attempt in range(3):
        remote.replies[attempt] = Lost("The node died.\nand a long story")
        loop.start_and_collect(ledger, pool)
        assert len(remote.submitted) == attempt + 1
    assert ledger.jobs_left == 0
    (outcome,) = ledger.outcomes()
    assert outcome.state == "failed"
    assert outcome.error == "the process that trained it was lost (Lost: The node died.)"


def test_stopping_lets_runs_save_and_ends_those_that_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote, ledger, pool = pool_of(tmp_path, 2, Resources(workers=2))
    loop.start_and_collect(ledger, pool)
    remote.replies[0] = Reply("stopped")
    loop.stop_pool(ledger, pool, patience=0.0)
    assert remote.cancelled[:2] == [(0, False), (1, False)]
    assert (1, True) in remote.cancelled
    assert ledger.runs_left == 2


def test_a_signal_stops_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command hears of it between two looks, and says how to go on."""
    remote = Remote()
    remote.is_initialized = lambda: True  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setattr(module, "require", lambda name, extra: remote)
    monkeypatch.setattr(StopFlag, "signal_number", signal.SIGTERM)
    jobs = [below(tmp_path, tiny_job()), below(tmp_path, tiny_job(seed=1))]
    with pytest.raises(Stopped, match=r"2 runs are left\.\nContinue with the same") as stopped:
        run_jobs(jobs, Resources("ray", workers=1), Listener())
    assert stopped.value.exit_code == 143


def test_environment_of_the_workers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("UNSEEN_DATA", "/somewhere/data")
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), sysconfig.get_paths()["purelib"]])
    found = worker_environment(Resources(cpus=4))
    assert found["UNSEEN_DATA"] == "/somewhere/data"
    assert found["UNSEEN_CACHE"] == os.environ["UNSEEN_CACHE"]
    assert found["PYTHONPATH"].split(os.pathsep) == [str(Path.cwd()), str(tmp_path)]
    assert found["OMP_NUM_THREADS"] == "4"
    assert found["CUDA_VISIBLE_DEVICES"] == ""
    assert "CUDA_VISIBLE_DEVICES" not in worker_environment(Resources(gpus=1))  # Ray sets it


def test_no_cluster_at_that_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**options: Any) -> None:
        raise ConnectionError("nobody there")

    ray: Any = SimpleNamespace(init=init)
    with pytest.raises(UnseenError, match="no Ray cluster answers at far:6379; 'ray start"):
        module._start(ray, Resources(address="far:6379"))


def test_ray_of_our_own_is_quiet_and_as_large_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    given: dict[str, Any] = {}

    def init(**options: Any) -> None:
        given.update(options, statistics=os.environ["RAY_USAGE_STATS_ENABLED"])

    ray: Any = SimpleNamespace(init=init)
    module._start(ray, Resources(workers=3, cpus=1.5))
    assert (given["address"], given["num_cpus"], given["statistics"]) == ("local", 5, "0")
    assert (given["include_dashboard"], given["log_to_driver"]) == (False, False)
    assert "RAY_USAGE_STATS_ENABLED" not in os.environ
    with pytest.raises(SettingsError, match="the 0 GPUs there are"):  # Ray would wait for them
        module._start(ray, Resources(workers=1, gpus=1))
