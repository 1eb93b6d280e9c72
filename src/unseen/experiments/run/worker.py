"""A process on this machine that trains one job after another."""

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from types import FrameType
from typing import NoReturn

from unseen.experiments.run.jobs import Job, Reply
from unseen.experiments.run.resources import changed_environment
from unseen.experiments.run.train_job import Trainer

_PR_SET_PDEATHSIG = 1
_KILLED = 9
_STOPPING = (signal.SIGINT, signal.SIGTERM)
_SECONDS_TO_LEAVE = 10


class Worker:
    """The command's side: sends a job, gets the reply, notices when the process dies."""

    def __init__(self, environment: Mapping[str, str], threads: int) -> None:
        context = multiprocessing.get_context("spawn")  # CUDA and threads do not survive a fork
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, threads), name="unseen worker")
        self.job: Job | None = None
        self.news = ""
        with _held_back(_STOPPING), changed_environment(environment):
            self._process.start()
        theirs.close()

    @property
    def doors(self) -> tuple[Connection, int]:
        """What to wait for: a reply, and the end of the process."""
        return self._connection, self._process.sentinel

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def start(self, job: Job) -> None:
        self.job = job
        with suppress(OSError):  # it has just died, which `alive` tells
            self._connection.send(job)

    def reply(self) -> Reply | None:
        """What it has said about its job, if anything; news about it are kept."""
        try:
            while self._connection.poll():
                received = self._connection.recv()
                self.news = received if isinstance(received, str) else ""
                if isinstance(received, Reply):
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
    _end_with_the_command()
    for number in _STOPPING:
        signal.signal(number, _leave)
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPPING)
    with suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        trainer, reply = Trainer(threads), None
        while reply is None or reply.state != "stopped":
            reply = trainer.train(connection.recv(), tell=connection.send)
            connection.send(reply)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


def _end_with_the_command() -> None:
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
