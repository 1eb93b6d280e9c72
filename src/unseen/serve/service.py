"""The service itself: from a request with images to its answer, in batches of many requests."""

import asyncio
import contextlib
import itertools
import json
import logging
import os
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from unseen.atomic import atomic_file
from unseen.errors import UnseenError
from unseen.forecast.profile import disagreement
from unseen.serve.drift import DriftWatch
from unseen.serve.predictor import NOT_FINITE, Predictor
from unseen.serve.requests import (
    Allowance,
    Limits,
    SentImage,
    check_type,
    find_images,
    read_body,
)

BODIES_HELD = 10
"""Requests of the largest size whose bodies are in memory at a time."""
DIGITS = 7
_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
_NAME = re.compile(r"\d{8}T\d{12}Z-\d{6}")
_ENDINGS = {"JPEG": ".jpg", "TIFF": ".tif"}
_logger = logging.getLogger("unseen.service")
Result = TypeVar("Result")


class Service:
    """A model and all that is known while it is served."""

    def __init__(
        self,
        predictor: Predictor,
        limits: Limits,
        name: str,
        card: str | None = None,
        keeper: "Keeper | None" = None,
        watch: DriftWatch | None = None,
    ) -> None:
        self.predictor, self.limits, self.name, self.card = predictor, limits, name, card
        self.keeper, self.watch = keeper, watch or DriftWatch(predictor)
        self.answered = 0
        self._queue = Allowance(limits.queue, f"{limits.queue} images are waiting")
        self._memory = Allowance(BODIES_HELD * limits.bytes, "too many requests are arriving")
        self._threads = ThreadPoolExecutor(os.cpu_count(), "images")
        self._keeper_thread = ThreadPoolExecutor(1, "keeper")
        self._add_metrics()
        self.batcher = Batcher(predictor, limits, self._batches.observe)

    def _add_metrics(self) -> None:
        prometheus_client.disable_created_metrics()
        self.metrics = registry = CollectorRegistry()
        registry.register(self.watch)
        ProcessCollector(registry=registry)
        about = "Requests by path and status."
        self.requests = Counter("unseen_requests", about, ["path", "status"], registry=registry)
        self._images = Counter(
            "unseen_images", "Images by outcome.", ["outcome"], registry=registry
        )
        about = "Predictions by class."
        self._predicted = Counter("unseen_predicted", about, ["class"], registry=registry)
        about = "Time from the head of a request for predictions to its answer."
        self._seconds = Histogram("unseen_predict_seconds", about, registry=registry)
        about, sizes = "Images in a batch of the model.", _BATCH_SIZES
        self._batches = Histogram("unseen_batch_images", about, buckets=sizes, registry=registry)
        waiting = Gauge("unseen_waiting_images", "Images not yet predicted.", registry=registry)
        waiting.set_function(lambda: self.waiting)
        limit = Gauge("unseen_queue_limit_images", "Most images in work.", registry=registry)
        limit.set(self.limits.queue)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        work = asyncio.create_task(self.batcher.run())
        try:
            yield
        finally:
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work
            for pool in (self.batcher.model_thread, self._threads, self._keeper_thread):
                pool.shutdown()

    @property
    def waiting(self) -> int:
        return self._queue.taken

    def calibration(self) -> dict[str, Any]:
        fitted = self.predictor.fitted_temperature is not None
        return {"calibrated": fitted, "temperature": self.predictor.temperature}

    async def predict(self, request: Request) -> Response:
        """One or many images to one answer; a bad image stops no other."""
        start = time.perf_counter()
        boundary = check_type(request.headers.get("content-type", ""))
        self._queue.check()
        try:
            with self._memory.share() as take_memory, self._queue.share() as take_places:
                with self.batcher.expecting():
                    body = await read_body(request, self.limits, take_memory)
                    images = await self.in_thread(find_images, boundary, body, self.limits)
                    take_places(len(images))
                    how = self.predictor.image_size, self.limits, self.predictor.window
                    await asyncio.gather(*(self.in_thread(each.decode, *how) for each in images))
                    readable = [each for each in images if each.pixels is not None]
                    waiting = [self.batcher.put(each) for each in readable]
                await asyncio.gather(*waiting)
                entries, answer = await self.in_thread(self._answer, images)
                if self.keeper is not None:  # before the answer: images wait in memory no longer
                    await self._keep(self.keeper, images, entries)
        except ClientDisconnect:
            return Response(status_code=499)
        self._count(images)
        self._seconds.observe(time.perf_counter() - start)
        statuses = {image.status for image in images}
        common = statuses.pop() if len(statuses) == 1 else 422
        return Response(answer, 200 if 200 in statuses else common, media_type="application/json")

    def _answer(self, images: Sequence[SentImage]) -> tuple[list[dict[str, Any]], bytes]:
        """Returns the entries of the answer, and all of it as JSON."""
        entries = [self._entry(image) for image in images]
        content: dict[str, Any] = {"images": entries, **self.calibration()}
        if all(image.problem is not None for image in images):
            only = images[0].problem if len(images) == 1 else None
            content["problem"] = only or f"none of the {len(images)} images could be read"
        return entries, as_json(content)

    def _entry(self, image: SentImage) -> dict[str, Any]:
        """Returns the answer about one image, as plain data."""
        probabilities, opinions, predictor = image.probabilities, image.opinions, self.predictor
        if probabilities is None:
            return {"image": image.name, "problem": image.problem}

        def by_class(row: np.ndarray) -> dict[str, float]:
            values = row.astype(np.float64).round(DIGITS).tolist()
            return dict(zip(predictor.classes, values, strict=True))

        shares = by_class(probabilities)
        best = predictor.classes[int(probabilities.argmax())]
        entry: dict[str, Any] = {"image": image.name, "class": best, "confidence": shares[best]}
        entry["probabilities"] = shares
        if opinions is not None:
            entry["opinions"] = dict(zip(predictor.domains, map(by_class, opinions), strict=True))
            entry["disagreement"] = round(abs(float(disagreement(opinions))), DIGITS)
        if self.watch.outlier_scale is not None and image.statistics is not None:
            score, closest, most_unusual = self.watch.outlier_scale(image.statistics)
            entry["outlier_score"] = round(score, DIGITS)
            entry["closest_domain"], entry["most_unusual"] = closest, most_unusual
        return entry

    async def _keep(
        self, keeper: "Keeper", images: Sequence[SentImage], entries: Sequence[dict[str, Any]]
    ) -> None:
        loop = asyncio.get_running_loop()
        for image, entry in zip(images, entries, strict=True):
            if image.kind is not None:
                work = keeper.keep, image.data, image.kind, entry
                await loop.run_in_executor(self._keeper_thread, *work)

    def _count(self, images: Sequence[SentImage]) -> None:
        for image in images:
            if image.probabilities is None or image.statistics is None:
                self._images.labels("refused").inc()
                continue
            self.answered += 1
            self._images.labels("answered").inc()
            self._predicted.labels(self.predictor.classes[image.probabilities.argmax()]).inc()
            self.watch.add(image.probabilities, image.opinions, image.statistics)

    async def metrics_text(self) -> bytes:
        """Returns all metrics in the text format of Prometheus."""
        return await self.in_thread(prometheus_client.generate_latest, self.metrics)

    async def in_thread(self, work: Callable[..., Result], *arguments: Any) -> Result:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, work, *arguments)


class Batcher:
    """Gathers images of many requests into batches, which one thread gives to the model.

    An image waits for others only while there are any on their way, and never longer than
    `limits.wait`; while the model is busy, the next batch gathers by itself."""

    def __init__(
        self, predictor: Predictor, limits: Limits, on_batch: Callable[[int], None]
    ) -> None:
        """`on_batch` gets the number of images in each batch."""
        self._predictor, self._limits, self._on_batch = predictor, limits, on_batch
        self._queue: asyncio.Queue[tuple[SentImage, float, asyncio.Future[None]]] = asyncio.Queue()
        self._on_their_way = 0
        self.model_thread = ThreadPoolExecutor(1, "model")

    @contextlib.contextmanager
    def expecting(self) -> Iterator[None]:
        """While a request is read and its images are decoded."""
        self._on_their_way += 1
        try:
            yield
        finally:
            self._on_their_way -= 1

    def put(self, image: SentImage) -> "asyncio.Future[None]":
        """Queue an image; it has its probabilities when the future is done."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._queue.put_nowait((image, loop.time(), done))
        return done

    async def run(self) -> None:
        """Predict until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            batch = await self._gather()
            self._on_batch(len(batch))
            work = loop.run_in_executor(
                self.model_thread, self._predict, [each[0] for each in batch]
            )
            [failure] = await asyncio.gather(work, return_exceptions=True)
            for _, _, done in batch:
                if done.done():  # the request was given up
                    continue
                if failure is None:
                    done.set_result(None)
                else:
                    done.set_exception(failure)

    def _predict(self, images: Sequence[SentImage]) -> None:
        pixels = np.stack([each.pixels for each in images if each.pixels is not None])
        found = self._predictor.predict_pixels(pixels)
        for number, (image, finite) in enumerate(zip(images, found.finite(), strict=True)):
            if not finite:
                image.problem, image.status = f"{image.name}: {NOT_FINITE}", 500
                continue
            image.probabilities = found.probabilities[number]
            image.opinions = None if found.opinions is None else found.opinions[number]

    async def _gather(self) -> list[tuple[SentImage, float, "asyncio.Future[None]"]]:
        batch = [await self._queue.get()]
        until = batch[0][1] + self._limits.wait
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


class Keeper:
    """Keeps images and answers in a folder, where that was asked for: the newest ones, up to a
    size.

    Names of files are made here: time and a number. What somebody calls a file is only in the
    answer. One thread at a time writes."""

    def __init__(self, folder: Path, most_images: int, most_bytes: int) -> None:
        self._folder, self._most_images, self._most_bytes = folder, most_images, most_bytes
        self._kept: deque[list[tuple[Path, int]]] = deque()
        self._bytes = 0
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            before = sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.stem))
            for _, files in itertools.groupby(before, key=lambda path: path.stem):
                self._remember(*files)
        except OSError as error:
            raise UnseenError(f"images cannot be kept in {folder}: {error.strerror}") from error
        self._numbers = itertools.count(1)

    def keep(self, data: bytes, kind: str, answer: dict[str, Any]) -> None:
        """Write an image and its answer; a full disk stops no answer."""
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
        stem = f"{now}-{next(self._numbers) % 1_000_000:06d}"
        image = self._folder / f"{stem}{_ENDINGS.get(kind, f'.{kind.lower()}')}"
        text = self._folder / f"{stem}.json"
        try:
            for path, content in ((image, data), (text, as_json(answer))):
                with atomic_file(path) as temporary:
                    temporary.write_bytes(content)
            self._remember(image, text)
        except OSError as error:
            _logger.warning("an image was not kept in %s: %s", self._folder, error)

    def _remember(self, *files: Path) -> None:
        """Count these files, and remove the oldest ones while there are too many."""
        self._kept.append([(path, path.stat().st_size) for path in files])
        self._bytes += sum(size for _, size in self._kept[-1])
        while self._kept and (
            len(self._kept) > self._most_images or self._bytes > self._most_bytes
        ):
            for path, size in self._kept.popleft():
                self._bytes -= size
                path.unlink(missing_ok=True)


def as_json(content: Any) -> bytes:
    """Returns text for the network and for files; raises where a number is not finite."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "replace")
