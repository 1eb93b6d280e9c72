"""Jobs on this machine: in worker processes, or in this process, one after the other; and with what
they are trained, here or on Ray."""

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Literal, NamedTuple, NoReturn

from unseen.data.dataset import OpenDatasets
from unseen.errors import SettingsError
from unseen.sweeps.jobs import Job, Outcome, failed, train_job, train_silently
from unseen.training.devices import Interrupted
from unseen.training.display import Display

_PR_SET_PDEATHSIG = 1
_KILLED = 9
_STOPPING = (signal.SIGINT, signal.SIGTERM)
_SECONDS_TO_LEAVE = 10
_SECONDS = 0.2
"""How long the end of a job is waited for before the command looks around."""


class Resources(NamedTuple):
    """Where jobs are trained, with what, and how often a failed one is tried again."""

    on: Literal["here", "ray"] = "here"
    workers: int | None = None
    """Jobs at once on this machine; empty: as many as the cores allow; 0: in this process."""
    cpus: float = 1
    """Cores of a job, and its threads: results depend on their number in the last bit."""
    gpus: float = 0
    """GPUs of a job; half of one is shared by two jobs. 0: it computes on the CPU."""
    retries: int = 1
    """How often a run that failed is tried again."""
    address: str | None = None
    """The address of a running Ray cluster; empty: Ray on this machine."""

    @property
    def threads(self) -> int:
        """The threads of one job. The same everywhere, so that results are the same."""
        return max(1, int(self.cpus))


def count_workers(resources: Resources) -> int:
    """As many as were asked for, or as the cores and GPUs of this machine allow."""
    if resources.workers is not None:
        return resources.workers
    room = _cores() / resources.cpus
    if resources.gpus:
        room = min(room, _jobs_on_devices(len(visible_devices()), resources.gpus))
    return max(1, int(room))


def worker_environments(resources: Resources) -> list[dict[str, str]]:
    """The environment variables of each worker: its number of threads, and its GPUs."""
    number = count_workers(resources)
    shared = {"OMP_NUM_THREADS": str(resources.threads)}
    devices = [""] * number
    if resources.gpus:
        devices = assign_devices(number, resources.gpus, visible_devices())
    return [shared | {"CUDA_VISIBLE_DEVICES": visible} for visible in devices]


def assign_devices(workers: int, gpus: float, visible: Sequence[str]) -> list[str]:
    """CUDA_VISIBLE_DEVICES of each worker: GPUs of its own, or a share of one."""
    room = _jobs_on_devices(len(visible), gpus)
    if workers > room:
        raise SettingsError(
            f"{workers} jobs at once with {gpus:g} GPUs each need more than the {len(visible)} "
            f"GPUs there are, which have room for {room}; ask for fewer jobs or smaller shares"
        )
    if gpus < 1:
        return [visible[worker % len(visible)] for worker in range(workers)]
    each = int(gpus)
    return [",".join(visible[each * worker : each * (worker + 1)]) for worker in range(workers)]


def _jobs_on_devices(devices: int, gpus: float) -> int:
    """How many jobs fit at a time."""
    if gpus > 1 and gpus != int(gpus):
        raise SettingsError(
            f"a job gets whole GPUs or a share of one, not {gpus:g}; try {int(gpus)} or 0.5"
        )
    return int(devices // gpus) if gpus >= 1 else devices * int(1 / gpus + 1e-9)


def visible_devices() -> list[str]:
    """The GPUs that this process may use, by the names that CUDA_VISIBLE_DEVICES has for them."""
    import torch

    number = torch.cuda.device_count()
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = chosen.split(",") if chosen is not None else [str(i) for i in range(number)]
    return [name.strip() for name in names[:number]]


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def changed_environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Processes that are started in this context inherit the changes."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class Worker:
    """The command's side: sends a job, gets its outcome, notices when the process dies."""

    def __init__(self, environment: Mapping[str, str], threads: int) -> None:
        context = multiprocessing.get_context("spawn")  # CUDA and threads do not survive a fork
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, threads), name="unseen worker")
        self.job: Job | None = None
        self.status = ""
        with _held_back(_STOPPING), changed_environment(environment):
            self._process.start()
        theirs.close()

    @property
    def wait_handles(self) -> tuple[Connection, int]:
        """What to wait for: an outcome, and the end of the process."""
        return self._connection, self._process.sentinel

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def start(self, job: Job) -> None:
        self.job = job
        with suppress(OSError):  # it has just died, which `alive` tells
            self._connection.send(job)

    def outcome(self) -> Outcome | None:
        """What it has said about its job, if anything; how far it is, is kept."""
        try:
            while self._connection.poll():
                received = self._connection.recv()
                self.status = received if isinstance(received, str) else ""
                if isinstance(received, Outcome):
                    return received
            return None
        except (EOFError, OSError):
            self._process.join(_SECONDS_TO_LEAVE)
            self._process.kill()
            self._process.join()
            return None

    def how_it_died(self) -> str:
        code = self._process.exitcode or 0
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        memory = "; most often memory ran out" if code == -_KILLED else ""
        return f"the process that trained it died ({how}){memory}"

    def ask_to_stop(self) -> None:
        self._process.terminate()

    def end(self) -> None:
        """At once: what counts is on disk, and tidying up takes a process seconds."""
        self._process.kill()
        self._process.join()
        self._process.close()
        self._connection.close()


def serve(connection: Connection, threads: int) -> None:
    """The worker's side: jobs until the pipe ends. A signal ends it, too; in training the state
    is saved first."""
    end_with_the_command()
    for number in _STOPPING:
        signal.signal(number, _leave)
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPPING)
    with suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        datasets, outcome = OpenDatasets(), None
        while outcome is None or outcome.state != "stopped":
            outcome = train_silently(connection.recv(), threads, datasets, connection.send)
            connection.send(outcome)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


def end_with_the_command() -> None:
    """A command that is killed cannot say so: Linux does, elsewhere its end is waited for."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    command = multiprocessing.parent_process()
    assert command is not None

    def watch() -> None:
        command.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _held_back(signals: Sequence[signal.Signals]) -> Iterator[None]:
    """A process that is started meanwhile gets these signals once it is ready for them."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class WorkerPool:
    """Workers, each with an environment of its own; one that dies leaves room for another."""

    def __init__(self, resources: Resources) -> None:
        self._threads = resources.threads
        self._environments = worker_environments(resources)
        self._workers: dict[int, Worker] = {}

    def _free(self) -> int | None:
        """A place without a worker, or whose worker has no job."""
        for place in range(len(self._environments)):
            worker = self._workers.get(place)
            if worker is None or (worker.job is None and worker.alive):
                return place
        return None

    @property
    def has_room(self) -> bool:
        return self._free() is not None

    def start(self, job: Job) -> None:
        place = self._free()
        assert place is not None
        if place not in self._workers:  # workers are started only when there is a job for them
            self._workers[place] = Worker(self._environments[place], self._threads)
        self._workers[place].start(job)

    def wait(self) -> list[tuple[Job, Outcome]]:
        """Jobs that have ended, by an outcome or by the death of their worker."""
        handles = [each for worker in self._workers.values() for each in worker.wait_handles]
        wait(handles, _SECONDS)
        ended = []
        for place, worker in list(self._workers.items()):
            outcome, job = worker.outcome(), worker.job
            if outcome is None and not worker.alive:
                outcome = Outcome("lost", worker.how_it_died())
                self._dismiss(place)
            if outcome is not None and job is not None:
                worker.job = None
                ended.append((job, outcome))
        return ended

    @property
    def status(self) -> str:
        return next((worker.status for worker in self._workers.values() if worker.status), "")

    def ask_to_stop(self, force: bool) -> None:
        """Also those that do not react: they are saving, and nothing must be lost."""
        for worker in self._workers.values():
            worker.ask_to_stop()

    def close(self) -> None:
        """No worker is left behind, whatever it was doing."""
        for place in list(self._workers):
            self._dismiss(place)

    def _dismiss(self, place: int) -> None:
        self._workers.pop(place).end()


class ThisProcess:
    """A pool of one, which trains a job while it is started."""

    status = ""

    def __init__(self, begin: Callable[[Job], Display]) -> None:
        self._begin = begin
        self._datasets = OpenDatasets()
        self._ended: list[tuple[Job, Outcome]] = []

    @property
    def has_room(self) -> bool:
        return not self._ended

    def start(self, job: Job) -> None:
        try:
            train_job(job, self._begin(job), self._datasets)
            outcome = Outcome("done")
        except Interrupted:  # the state is saved, and it says how to continue
            raise
        except Exception as error:
            from unseen.training.devices import is_launched

            if is_launched():  # one of several processes: the others would wait for this one
                raise
            outcome = failed(job, error)
        self._ended.append((job, outcome))

    def wait(self) -> list[tuple[Job, Outcome]]:
        if not self._ended:
            time.sleep(_SECONDS)
        ended, self._ended = self._ended, []
        return ended

    def ask_to_stop(self, force: bool) -> None:
        """Nothing is under way between two jobs."""
