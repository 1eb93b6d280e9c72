"""Training steps in processes of their own that take turns, each with one thread."""

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Self

import torch

Step = Callable[[], float]
"""One training step; gives its loss."""


class Worker:
    """A fresh process that builds a step, then takes one whenever it is asked to."""

    def __init__(self, name: str, build: Callable[..., Step], *arguments: Any) -> None:
        """`build` and its arguments have to be picklable."""
        self.name = name
        self.losses: list[float] = []
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, build, arguments))
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def step(self) -> float:
        """Seconds of the processor for one step."""
        try:
            self._connection.send(None)
            seconds, loss = self._connection.recv()
        except (EOFError, BrokenPipeError) as error:
            raise RuntimeError(
                f"the process of {self.name} ended; its error stands above"
            ) from error
        self.losses.append(loss)
        return seconds

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._process.join()


def _serve(connection: Connection, build: Callable[..., Step], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    step = build(*arguments)
    while True:
        try:
            connection.recv()
        except EOFError:
            return
        start = time.process_time()
        loss = step()
        connection.send((time.process_time() - start, loss))
