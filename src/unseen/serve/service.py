"""The service itself: from a request with images to its answer."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any, NamedTuple, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from unseen.serve.answers import Keeper, ModelFacts, as_json, image_answer, status_of
from unseen.serve.batching import Batcher, Row
from unseen.serve.drift import DriftWatch, drift_metrics
from unseen.serve.limits import BODIES_HELD, Allowance, Limits
from unseen.serve.metrics import Metrics, gauge
from unseen.serve.predictor import Predictor
from unseen.serve.requests import Picture, check_type, decode, find_uploads, read_body

Result = TypeVar("Result")


class Facts(NamedTuple):
    """What is shown of a model besides its classes and domains."""

    name: str
    card: str | None


class Service:
    """A model and all that is known while it is served."""

    def __init__(
        self,
        predictor: Predictor,
        limits: Limits,
        facts: Facts,
        keeper: Keeper | None = None,
        watch: DriftWatch | None = None,
    ) -> None:
        self.predictor, self.limits, self.facts = predictor, limits, facts
        self.metrics = Metrics()
        self.watch = watch or DriftWatch(predictor)
        self.batcher = Batcher(predictor, limits, self.metrics.batches.add)
        self._queue = Allowance(limits.queue, f"{limits.queue} images are waiting")
        self._memory = Allowance(BODIES_HELD * limits.bytes, "too many requests are arriving")
        self._threads = ThreadPoolExecutor(os.cpu_count(), "images")
        self._keeper = keeper
        self._keeper_thread = ThreadPoolExecutor(1, "keeper")

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
            self._keeper_thread.shutdown()

    async def predict(self, request: Request) -> Response:
        """One or many images to one answer; a bad image stops no other."""
        start = time.perf_counter()
        check_type(request.headers.get("content-type", ""))
        self._queue.check()
        try:
            with contextlib.ExitStack() as held:
                pictures, rows = await self._look(request, held)
                answers, body = await self._in_thread(self._answer, pictures, rows)
                await self._keep(pictures, answers)
        except ClientDisconnect:
            return Response(status_code=499)
        self._count(pictures, rows)
        self.metrics.seconds.add(time.perf_counter() - start)
        return Response(body, status_of(pictures), media_type="application/json")

    async def _look(
        self, request: Request, held: contextlib.ExitStack
    ) -> tuple[list[Picture], list[Row | None]]:
        """What was sent and what the model says; `held` gives back what it took of the limits."""
        memory = held.enter_context(self._memory.share())
        places = held.enter_context(self._queue.share())
        content_type = request.headers.get("content-type", "")
        with self.batcher.expecting():
            body = await read_body(request, self.limits, memory)
            uploads = await self._in_thread(find_uploads, content_type, body, self.limits)
            places.take(len(uploads))
            size = self.predictor.image_size
            decoded = (self._in_thread(decode, each, size, self.limits) for each in uploads)
            pictures = await asyncio.gather(*decoded)
            good = (each.pixels for each in pictures if each.pixels is not None)
            waiting = [self.batcher.put(pixels) for pixels in good]
        rows = iter(await asyncio.gather(*waiting))
        return pictures, [None if each.pixels is None else next(rows) for each in pictures]

    def _answer(
        self, pictures: list[Picture], rows: list[Row | None]
    ) -> tuple[list[dict[str, Any]], bytes]:
        """Entries of the answer, and all of it as JSON."""
        images: list[dict[str, Any]] = []
        for picture, row in zip(pictures, rows, strict=True):
            known = picture.statistics
            strange = None if known is None else self.watch.strangeness(known)
            images.append(image_answer(self.predictor, picture, row, strange))
        content: dict[str, Any] = {"images": images, **self._calibration()}
        if not any(row is not None for row in rows):
            only = images[0]["problem"] if len(images) == 1 else None
            content["problem"] = only or f"none of the {len(images)} images could be read"
        return images, as_json(content)

    async def _keep(self, pictures: Iterable[Picture], answers: Iterable[dict[str, Any]]) -> None:
        """Before the answer is given, so that images wait in memory no longer than that."""
        if self._keeper is None:
            return
        loop = asyncio.get_running_loop()
        for picture, answer in zip(pictures, answers, strict=True):
            if picture.kind is not None:
                data = picture.upload.data
                kept = (self._keeper.keep, data, picture.kind, answer)
                await loop.run_in_executor(self._keeper_thread, *kept)

    def _count(self, pictures: list[Picture], rows: list[Row | None]) -> None:
        for picture, row in zip(pictures, rows, strict=True):
            self.metrics.images["refused" if row is None else "answered"] += 1
            if row is not None and picture.statistics is not None:
                self.metrics.predicted[self.predictor.classes[row.probabilities.argmax()]] += 1
                self.watch.add(row.probabilities, row.opinions, picture.statistics)

    def _calibration(self) -> dict[str, Any]:
        fitted = self.predictor.fitted_temperature is not None
        return {"calibrated": fitted, "temperature": self.predictor.temperature}

    def model_facts(self) -> ModelFacts:
        return ModelFacts(
            name=self.facts.name,
            classes=self.predictor.classes,
            domains=self.predictor.domains,
            image_size=self.predictor.image_size,
            has_opinions=self.predictor.has_opinions,
            card=self.facts.card,
            limits=asdict(self.limits),
            keeps_images=self._keeper is not None,
            **self._calibration(),
        )

    @property
    def waiting(self) -> int:
        return self._queue.taken

    async def drift(self) -> dict[str, Any]:
        """As `DriftReport` says."""
        return await self._in_thread(self.watch.report, *self.watch.now())

    async def metrics_text(self) -> str:
        waiting = gauge("unseen_waiting_images", "Images not yet answered.", self.waiting)
        most = gauge("unseen_queue_limit_images", "Most images in work.", self.limits.queue)
        return self.metrics.text([waiting, most, *drift_metrics(await self.drift())])

    async def _in_thread(self, work: Callable[..., Result], *arguments: Any) -> Result:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, work, *arguments)
