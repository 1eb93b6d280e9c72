"""The service itself: from a request with images to its answer."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from unseen.service.answers import ModelFacts, as_json, image_answer, status_of
from unseen.service.batching import Batcher, Row
from unseen.service.bodies import check_type, find_uploads, read_body
from unseen.service.decoding import Picture, decode
from unseen.service.limits import BODIES_HELD, Allowance, Limits
from unseen.service.metrics import Metrics, gauge
from unseen.serving.predictor import Predictor

Result = TypeVar("Result")


class Service:
    """A model and all that is known while it is served."""

    def __init__(self, predictor: Predictor, limits: Limits, name: str, card: str | None) -> None:
        self.predictor, self.limits, self.name, self.card = predictor, limits, name, card
        self.metrics = Metrics()
        self.batcher = Batcher(predictor, limits, self.metrics.batches.add)
        self._queue = Allowance(limits.queue, f"{limits.queue} images are waiting")
        self._memory = Allowance(BODIES_HELD * limits.bytes, "too many requests are arriving")
        self._threads = ThreadPoolExecutor(os.cpu_count(), "images")

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        work = asyncio.create_task(self.batcher.run())
        try:
            yield
        finally:
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work
            self.batcher.close()
            self._threads.shutdown()

    async def predict(self, request: Request) -> Response:
        """One or many images to one answer; a bad image stops no other."""
        start = time.perf_counter()
        content_type = request.headers.get("content-type", "")
        check_type(content_type)
        self._queue.check()
        try:
            with self._memory.share() as memory, self._queue.share() as places:
                with self.batcher.expecting():
                    body = await read_body(request, self.limits, memory)
                    uploads = await self._in_thread(find_uploads, content_type, body, self.limits)
                    places.take(len(uploads))
                    size, limits = self.predictor.image_size, self.limits
                    decoded = (self._in_thread(decode, each, size, limits) for each in uploads)
                    pictures = await asyncio.gather(*decoded)
                    good = (each.pixels for each in pictures if each.pixels is not None)
                    answers = [self.batcher.put(pixels) for pixels in good]
                rows = iter(await asyncio.gather(*answers))
                found = [None if each.pixels is None else next(rows) for each in pictures]
                answer = await self._in_thread(self._answer, pictures, found)
        except ClientDisconnect:
            return Response(status_code=499)
        self._count(found)
        self.metrics.seconds.add(time.perf_counter() - start)
        return Response(answer, status_of(pictures), media_type="application/json")

    def _answer(self, pictures: list[Picture], rows: list[Row | None]) -> bytes:
        images = [
            image_answer(self.predictor, picture, row)
            for picture, row in zip(pictures, rows, strict=True)
        ]
        content: dict[str, Any] = {"images": images, **self._calibration()}
        if not any(row is not None for row in rows):
            only = images[0]["problem"] if len(images) == 1 else None
            content["problem"] = only or f"none of the {len(images)} images could be read"
        return as_json(content)

    def _count(self, rows: list[Row | None]) -> None:
        for row in rows:
            self.metrics.images["refused" if row is None else "answered"] += 1
            if row is not None:
                self.metrics.predicted[self.predictor.classes[row.probabilities.argmax()]] += 1

    def _calibration(self) -> dict[str, Any]:
        temperature = getattr(self.predictor, "temperature", 1.0)
        return {"calibrated": temperature != 1.0, "temperature": temperature}

    def facts(self) -> ModelFacts:
        return ModelFacts(
            name=self.name,
            classes=self.predictor.classes,
            domains=self.predictor.domains,
            image_size=self.predictor.image_size,
            has_opinions=self.predictor.has_opinions,
            card=self.card,
            limits=asdict(self.limits),
            **self._calibration(),
        )

    @property
    def waiting(self) -> int:
        return self._queue.taken

    def metrics_text(self) -> str:
        return self.metrics.text(
            [
                gauge("unseen_waiting_images", "Images accepted, not yet answered.", self.waiting),
                gauge("unseen_queue_limit_images", "Most images in work.", self.limits.queue),
            ]
        )

    async def _in_thread(self, work: Callable[..., Result], *arguments: Any) -> Result:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, work, *arguments)
