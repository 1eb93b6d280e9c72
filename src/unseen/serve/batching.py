"""Gathers images of many requests into batches, which one thread gives to the model."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from unseen.serve.limits import Limits
from unseen.serve.predictor import Answers, Predictor


class Row(NamedTuple):
    """What the model says about one image."""

    probabilities: np.ndarray
    opinions: np.ndarray | None


class _Waiting(NamedTuple):
    pixels: np.ndarray
    arrived: float
    answer: "asyncio.Future[Row]"


class Batcher:
    """An image waits for others only while there are any on their way, and never longer than
    `limits.wait`; while the model is busy, the next batch gathers by itself."""

    def __init__(
        self, predictor: Predictor, limits: Limits, on_batch: Callable[[int], None]
    ) -> None:
        """`on_batch` is told the number of images in each batch."""
        self._predictor, self._limits, self._on_batch = predictor, limits, on_batch
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue()
        self._on_their_way = 0
        self._model_thread = ThreadPoolExecutor(1, "model")

    @contextlib.contextmanager
    def expecting(self) -> Iterator[None]:
        """While a request is read and its images are decoded."""
        self._on_their_way += 1
        try:
            yield
        finally:
            self._on_their_way -= 1

    def put(self, pixels: np.ndarray) -> "asyncio.Future[Row]":
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Row] = loop.create_future()
        self._queue.put_nowait(_Waiting(pixels, loop.time(), answer))
        return answer

    async def run(self) -> None:
        """Until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            batch = await self._gather()
            self._on_batch(len(batch))
            pixels = [each.pixels for each in batch]
            try:
                answers = await loop.run_in_executor(self._model_thread, self._answer, pixels)
            except Exception as error:
                for each in batch:
                    _settle(each.answer, error)
                continue
            for number, each in enumerate(batch):
                opinions = None if answers.opinions is None else answers.opinions[number]
                _settle(each.answer, Row(answers.probabilities[number], opinions))

    def close(self) -> None:
        self._model_thread.shutdown()

    def _answer(self, pixels: list[np.ndarray]) -> Answers:
        return self._predictor.answer(np.stack(pixels), None, self._predictor.has_opinions)

    async def _gather(self) -> list[_Waiting]:
        batch = [await self._queue.get()]
        until = batch[0].arrived + self._limits.wait
        while len(batch) < self._limits.batch:
            if not self._queue.empty():
                batch.append(self._queue.get_nowait())
                continue
            if self._on_their_way == 0:
                break
            try:
                async with asyncio.timeout_at(until):
                    batch.append(await self._queue.get())
            except TimeoutError:
                break
        return batch


def _settle(answer: "asyncio.Future[Row]", outcome: Row | Exception) -> None:
    if answer.done():  # the request was given up
        return
    if isinstance(outcome, Exception):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)
