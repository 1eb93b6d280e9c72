"""Jobs on this machine: what every worker does, here and on Ray, and the processes that do it.

A worker has to react to signals before torch is loaded: it is imported when there is work.
"""

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn

from unseen.data.dataset import OpenDatasets
from unseen.errors import SettingsError, UnseenError
from unseen.results.folder import RunBusy, RunFolder
from unseen.settings.recipes import build_experiment

if TYPE_CHECKING:
    from unseen.training.display import Display

_KILLED = 9
_STOPPING = (signal.SIGINT, signal.SIGTERM)
_SECONDS_TO_LEAVE = 10
SECONDS = 0.2
"""How long the end of a job is waited for before the command looks around."""


class Job(NamedTuple):
    """One run; or several that are trained together in one process, from stored features.

    Plain data, which can travel to another process or machine.
    """

    settings: tuple[Mapping[str, Any], ...]
    folders: tuple[Path, ...]
    until: int | None = None
    """Pause at this step, with a checkpoint; empty: train to the end."""
    log: tuple[str, ...] = ()
    """Trackers that get the records, too."""

    @property
    def one_by_one(self) -> "list[Job]":
        pairs = zip(self.settings, self.folders, strict=True)
        return [self._replace(settings=(s,), folders=(folder,)) for s, folder in pairs]


class Outcome(NamedTuple):
    """How a job ended, or where a run stands once its job has ended.

    Of a job, `done` says that its records tell how it went; `busy`: another process trains the run;
    `stopped`: a signal arrived, and the state is saved; `lost`: the process ended without a word.
    """

    state: Literal["finished", "paused", "failed", "done", "busy", "stopped", "lost"]
    error: str = ""
    remarks: tuple[str, ...] = ()


Ended = list[tuple[Job, Outcome]]


def train_silently(
    job: Job,
    threads: int,
    datasets: OpenDatasets,
    on_status: Callable[[str], None] | None = None,
) -> Outcome:
    """Train a job in a worker. Errors are kept in the record of their run, and come back;
    `on_status` gets what takes long before the first step."""
    import torch

    from unseen.training.devices import Interrupted
    from unseen.training.display import SilentDisplay

    torch.set_num_threads(threads)
    display = SilentDisplay(on_status)
    try:
        train_job(job, display, datasets)
        outcome = Outcome("done")
    except Interrupted as error:
        outcome = Outcome("stopped", str(error))
    except Exception as error:
        outcome = failed(job, error)
    return outcome._replace(remarks=tuple(display.remarks))


def train_job(job: Job, display: "Display", datasets: OpenDatasets) -> None:
    """Train all runs of a job, to their end or to the step at which they pause."""
    from unseen.training.execute import execute, train_together

    experiments = [build_experiment(settings) for settings in job.settings]
    folders = [RunFolder(path) for path in job.folders]
    if len(experiments) > 1:
        train_together(experiments, folders, display, datasets)
    else:
        execute(experiments[0], folders[0], display, job.log, job.until, datasets)


def failed(job: Job, error: Exception) -> Outcome:
    """Write the error's trace beside the run's records; to be called while it is handled."""
    described = str(error) if isinstance(error, UnseenError) else f"{type(error).__name__}: {error}"
    if isinstance(error, RunBusy):
        return Outcome("busy", described)
    if len(job.folders) == 1:  # which of several is at fault shows when they are trained alone
        folder, trace = RunFolder(job.folders[0]), traceback.format_exc()
        try:
            with folder.locked():
                with suppress(UnseenError):  # settings may not hold in this process
                    folder.create(build_experiment(job.settings[0]))
                folder.write_failure(described, trace)
        except RunBusy as busy:
            return Outcome("busy", str(busy))
    return Outcome("failed", described)


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
    """Return as many as were asked for, or as the cores and GPUs of this machine allow."""
    if resources.workers is not None:
        return resources.workers
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    room = (cores or 1) / resources.cpus
    if resources.gpus:
        room = min(room, _jobs_on_devices(len(visible_devices()), resources.gpus))
    return max(1, int(room))


def worker_environments(resources: Resources) -> list[dict[str, str]]:
    """Return the environment variables of each worker: its number of threads, and its GPUs: some of
    its own, or a share of one."""
    number, gpus = count_workers(resources), resources.gpus
    devices = [""] * number
    if gpus:
        visible = visible_devices()
        room = _jobs_on_devices(len(visible), gpus)
        if number > room:
            raise SettingsError(
                f"{number} jobs at once with {gpus:g} GPUs each need more than the {len(visible)} "
                f"GPUs there are, which have room for {room}; ask for fewer jobs or smaller shares"
            )
        each = max(1, int(gpus))
        shares = [visible[at : at + each] for at in range(0, len(visible), each)]
        devices = [",".join(shares[worker % len(shares)]) for worker in range(number)]
    threads = str(resources.threads)
    return [{"OMP_NUM_THREADS": threads, "CUDA_VISIBLE_DEVICES": own} for own in devices]


def _jobs_on_devices(devices: int, gpus: float) -> int:
    """Return how many jobs fit at a time."""
    if gpus > 1 and gpus != int(gpus):
        raise SettingsError(
            f"a job gets whole GPUs or a share of one, not {gpus:g}; try {int(gpus)} or 0.5"
        )
    return int(devices // gpus) if gpus >= 1 else devices * int(1 / gpus + 1e-9)


def visible_devices() -> list[str]:
    """Name the GPUs that this process may use, as CUDA_VISIBLE_DEVICES does."""
    import torch

    number = torch.cuda.device_count()
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = chosen.split(",") if chosen is not None else [str(i) for i in range(number)]
    return [name.strip() for name in names[:number]]


@contextmanager
def changed_environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Let processes that are started in this context inherit the changes."""
    before = dict(os.environ)
    os.environ.update(changes)
    try:
        yield
    finally:
        for name in changes:
            del os.environ[name]
        os.environ.update({name: before[name] for name in changes.keys() & before.keys()})


class Worker:
    """The command's side: sends a job, gets its outcome, notices when the process dies."""

    def __init__(self, environment: Mapping[str, str], threads: int) -> None:
        context = multiprocessing.get_context("spawn")  # CUDA and threads do not survive a fork
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, threads), name="unseen worker")
        self.job: Job | None = None
        self.status = ""
        with _held_back(_STOPPING), changed_environment(environment):
            self.process.start()
        theirs.close()

    def start(self, job: Job) -> None:
        self.job = job
        with suppress(OSError):  # it has just died, which `outcome` tells
            self.connection.send(job)

    def outcome(self) -> Outcome | None:
        """Return what it has said about its job, if anything, or that its process died; how far it
        is, is kept."""
        try:
            while self.connection.poll():
                received = self.connection.recv()
                self.status = received if isinstance(received, str) else ""
                if isinstance(received, Outcome):
                    return received
        except (EOFError, OSError):
            self.process.join(_SECONDS_TO_LEAVE)
            self.process.kill()
            self.process.join()
        if self.process.is_alive():
            return None
        code = self.process.exitcode or 0
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        memory = "; most often memory ran out" if code == -_KILLED else ""
        return Outcome("lost", f"the process that trained it died ({how}){memory}")

    def end(self) -> None:
        """End it at once: what counts is on disk, and tidying up takes a process seconds."""
        self.process.kill()
        self.process.join()
        self.process.close()
        self.connection.close()


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
    """End this process with that of the command, which cannot say so when it is killed."""
    command = multiprocessing.parent_process()
    assert command is not None

    def watch() -> None:
        command.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _held_back(signals: Sequence[signal.Signals]) -> Iterator[None]:
    """Let a process that is started meanwhile get these signals once it is ready for them."""
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

    @property
    def has_room(self) -> bool:
        return len(self._busy) < len(self._environments)

    @property
    def _busy(self) -> list[int]:
        return [place for place, worker in self._workers.items() if worker.job is not None]

    def start(self, job: Job) -> None:
        place = min({*range(len(self._environments))}.difference(self._busy))
        if place in self._workers and not self._workers[place].process.is_alive():
            self._workers.pop(place).end()
        if place not in self._workers:  # workers are started only when there is a job for them
            self._workers[place] = Worker(self._environments[place], self._threads)
        self._workers[place].start(job)

    def wait(self) -> Ended:
        """Return jobs that have ended, by an outcome or by the death of their worker."""
        workers = [self._workers[place] for place in self._busy]
        wait([each for w in workers for each in (w.connection, w.process.sentinel)], SECONDS)
        ended: Ended = []
        for worker in workers:
            outcome, job = worker.outcome(), worker.job
            if outcome is not None and job is not None:
                worker.job = None
                ended.append((job, outcome))
        return ended

    @property
    def status(self) -> str:
        return next((worker.status for worker in self._workers.values() if worker.status), "")

    def ask_to_stop(self, force: bool) -> None:
        """Ask also those again that do not react: they are saving, and nothing must be lost."""
        for worker in self._workers.values():
            worker.process.terminate()

    def close(self) -> None:
        """Leave no worker behind, whatever it was doing."""
        for worker in self._workers.values():
            worker.end()


class ThisProcess:
    """A pool of one, which trains a job while it is started."""

    status = ""

    def __init__(self, begin: Callable[[Job], "Display"]) -> None:
        self._begin = begin
        self._datasets = OpenDatasets()
        self._ended: Ended = []

    @property
    def has_room(self) -> bool:
        return not self._ended

    def start(self, job: Job) -> None:
        from unseen.training.devices import Interrupted, is_launched

        try:
            train_job(job, self._begin(job), self._datasets)
            outcome = Outcome("done")
        except Interrupted:  # the state is saved, and it says how to continue
            raise
        except Exception as error:
            if is_launched():  # one of several processes: the others would wait for this one
                raise
            outcome = failed(job, error)
        self._ended.append((job, outcome))

    def wait(self) -> Ended:
        if not self._ended:
            time.sleep(SECONDS)
        ended, self._ended = self._ended, []
        return ended

    def ask_to_stop(self, force: bool) -> None:
        """Nothing is under way between two jobs."""
