"""A sweep on Ray: this machine, or a cluster that is running already."""

import logging
import math
import os
import signal
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from unseen.errors import UnseenError
from unseen.experiments.run.jobs import Job, Means, Outcome, Report
from unseen.experiments.run.ledger import Ledger, Task, see_through
from unseen.experiments.run.resources import (
    changed_environment,
    count_workers,
    threads,
    worker_environments,
)
from unseen.experiments.run.train_job import Answer, Order, Origin, carry_out
from unseen.optional import require
from unseen.training.interruptions import stop_requests

_SECONDS_BETWEEN_LOOKS = 0.2
_SECONDS_TO_SAVE = 30.0
_LEAST_IN_FLIGHT = 64
"""On a cluster, which may grow when it sees that there is more to do."""
_OBJECT_STORE = 100 * 2**20
"""Bytes. Only settings and answers pass through Ray; images and records are on disk."""


def run_on_ray(jobs: Sequence[Job], runs: Path, means: Means, report: Report) -> list[Outcome]:
    """Carry out jobs as Ray tasks, with the CPUs and GPUs (or shares of one) that each needs.

    As `run_here`: the records are the state, and the same call goes on from them. A worker or a
    node that is lost counts as a process that died. All nodes must see the folder of runs.
    """
    ledger = Ledger(jobs, runs, means, report)
    if not ledger.tasks_left:
        return ledger.outcomes()
    ray = require("ray", extra="ray")
    with _connected(ray, means), stop_requests() as stop:
        see_through(ledger, RemoteCrew(ray, means, ledger), stop)
    return ledger.outcomes()


class RemoteCrew:
    """The tasks that Ray has at the moment."""

    def __init__(self, ray: ModuleType, means: Means, ledger: Ledger) -> None:
        self._ray = ray
        self._ledger = ledger
        self._in_flight = _in_flight(ray, means)
        self._under_way: dict[Any, Task] = {}
        self._remote = ray.remote(carry_out_there).options(
            num_cpus=means.cpus,
            num_gpus=means.gpus,
            max_retries=0,  # the ledger decides
            runtime_env={"env_vars": worker_environment(means)},
        )

    def give_out(self) -> None:
        while len(self._under_way) < self._in_flight:
            task = self._ledger.next_task()
            if task is None:
                return
            reference = self._remote.remote(Origin.here(), self._ledger.order(task))
            self._under_way[reference] = task

    def collect(self) -> None:
        """Wait a moment for answers, and for workers that were lost."""
        for reference in self._ready():
            task = self._under_way.pop(reference)
            try:
                answer: Answer = self._ray.get(reference)
            except self._ray.exceptions.RayError as error:
                self._ledger.lost(task, _how_it_was_lost(error))
            else:
                self._ledger.answered(task, answer)

    def stop(self) -> None:
        """Every run that is under way saves its state: Ray does in it what Ctrl-C would. One that
        does not hear it, as while it loads packages, is ended."""
        self._cancel(force=False)
        patience = time.monotonic() + _SECONDS_TO_SAVE
        while self._under_way:
            if time.monotonic() > patience:
                self._cancel(force=True)
            for reference in self._ready():
                task = self._under_way.pop(reference)
                try:
                    answer: Answer = self._ray.get(reference)
                except self._ray.exceptions.RayError:
                    continue  # it had not begun, or had nothing to save
                if answer.state == "done":
                    self._ledger.answered(task, answer)

    def _cancel(self, force: bool) -> None:
        for reference in self._under_way:
            self._ray.cancel(reference, force=force)

    def _ready(self) -> list[Any]:
        if not self._under_way:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
            return []
        waiting = list(self._under_way)
        return self._ray.wait(waiting, num_returns=1, timeout=_SECONDS_BETWEEN_LOOKS)[0]


def carry_out_there(origin: Origin, order: Order) -> Answer:
    """One job, in a process of Ray's."""
    origin.take_over()
    return carry_out(order)


def worker_environment(means: Means) -> dict[str, str]:
    """What has to be the same in Ray's processes as here: data, modules of the user's, threads."""
    installed = tuple(sysconfig.get_paths()[kind] for kind in ("stdlib", "purelib", "platlib"))
    modules = [str(Path(entry).absolute()) for entry in sys.path]
    modules = [entry for entry in modules if not entry.startswith(installed)]
    chosen = {name: value for name, value in os.environ.items() if name.startswith("UNSEEN_")}
    chosen["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(modules))
    chosen["OMP_NUM_THREADS"] = str(threads(means.cpus))
    if not means.gpus:
        chosen["CUDA_VISIBLE_DEVICES"] = ""
    return chosen


def _in_flight(ray: ModuleType, means: Means) -> int:
    """Enough to keep everybody busy, and no more: a sweep may have thousands of runs."""
    if means.workers is not None or means.address is None:
        return count_workers(means)
    return max(_LEAST_IN_FLIGHT, 2 * int(ray.cluster_resources().get("CPU", 0) / means.cpus))


@contextmanager
def _connected(ray: ModuleType, means: Means) -> Iterator[None]:
    """To the cluster, or to a Ray of our own that ends with the sweep."""
    if ray.is_initialized():
        yield
        return
    with _restored_signals():
        _start(ray, means)
        try:
            yield
        finally:
            ray.shutdown()


def _start(ray: ModuleType, means: Means) -> None:
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR, "include_dashboard": False}
    if means.address is not None:
        try:
            ray.init(address=means.address, log_to_driver=False, logging_level=logging.ERROR)
        except ConnectionError as error:
            raise UnseenError(
                f"no Ray cluster answers at {means.address}; 'ray start --head' starts one, and "
                "without an address the sweep runs on this machine. A cluster that asks for a "
                "token, as Ray's do by default, gets it with RAY_AUTH_MODE=token set here and the "
                "head's ~/.ray/auth_token at hand (or in RAY_AUTH_TOKEN)"
            ) from error
        return
    cores = math.ceil(len(worker_environments(means)) * means.cpus)  # raises if GPUs are missing
    with changed_environment({"RAY_USAGE_STATS_ENABLED": "0"}):
        ray.init(address="local", num_cpus=cores, object_store_memory=_OBJECT_STORE, **quiet)


@contextmanager
def _restored_signals() -> Iterator[None]:
    """Ray sets a handler for SIGTERM and leaves it there."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _how_it_was_lost(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"the process that trained it was lost ({type(error).__name__}: {lines[0]})"
