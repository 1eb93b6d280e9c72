"""The service itself: from a request with images to its answer, in batches of many requests."""

import asyncio
import base64
import contextlib
import itertools
import json
import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from unseen.atomic import atomic_file
from unseen.errors import UnseenError
from unseen.forecast.profile import disagreement
from unseen.serve.drift import DriftWatch
from unseen.serve.limits import Limits
from unseen.serve.predictor import NOT_FINITE, Predictor, draw_heatmaps
from unseen.serve.requests import Allowance, SentImage, check_type, find_images, read_body

BODIES_HELD = 10
"""Requests of the largest size whose bodies are in memory at a time."""
DIGITS = 7
_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
_NAME = re.compile(r"\d{8}T\d{12}Z-\d{6}")
_ENDINGS = {"JPEG": ".jpg", "TIFF": ".tif"}
_logger = logging.getLogger("unseen.service")

Work = Future[tuple[Sequence[SentImage], list[dict[str, Any]], bytes]]
"""A request on its way through the threads: its images, their entries, and the answer."""


@contextlib.contextmanager
def _failing(work: Work) -> Iterator[None]:
    """Whatever goes wrong in a thread is the request's answer."""
    try:
        yield
    except Exception as error:
        with contextlib.suppress(InvalidStateError):  # another thread has failed before
            work.set_exception(error)


class Service:
    """A model and all that is known while it is served.

    Images of many requests are gathered into batches. No thread waits for another: the one that
    finds the model free predicts all that has gathered while it was busy, and a lonely image is
    predicted at once."""

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
        self._places = Allowance(limits.queue, f"{limits.queue} images are waiting")
        self.memory = Allowance(BODIES_HELD * limits.max_bytes, "too many requests are arriving")
        self._threads = ThreadPoolExecutor((os.cpu_count() or 1) + 1, "images")
        self._keeper_thread = ThreadPoolExecutor(1, "keeper")
        self._model = threading.Lock()
        self.gathered: deque[tuple[SentImage, Callable[[], None] | None]] = deque()
        """Images that wait for the model; the last one of a request says what comes next."""
        prometheus_client.disable_created_metrics()
        self.metrics = CollectorRegistry()
        self.metrics.register(self.watch)
        ProcessCollector(registry=self.metrics)

        def new(kind: type, name: str, about: str, **options: Any) -> Any:
            return kind(f"unseen_{name}", about, registry=self.metrics, **options)

        paths, about = ["path", "status"], "Time from the head of a request to its answer."
        self.requests = new(Counter, "requests", "Requests by path and status.", labelnames=paths)
        self._images = new(Counter, "images", "Images by outcome.", labelnames=["outcome"])
        self._predicted = new(Counter, "predicted", "Predictions by class.", labelnames=["class"])
        self._seconds = new(Histogram, "predict_seconds", about)
        about = "Images in a batch of the model."
        self._batches = new(Histogram, "batch_images", about, buckets=_BATCH_SIZES)
        waiting = new(Gauge, "waiting_images", "Images not yet predicted.")
        waiting.set_function(lambda: self.waiting)
        new(Gauge, "queue_limit_images", "Most images in work.").set(limits.queue)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        with self._threads, self._keeper_thread:
            yield

    @property
    def waiting(self) -> int:
        return self._places.taken

    def calibration(self) -> dict[str, Any]:
        fitted = self.predictor.fitted_temperature is not None
        return {"calibrated": fitted, "temperature": self.predictor.temperature}

    async def predict(self, request: Request) -> Response:
        """One or many images to one answer; a bad image stops no other."""
        start = time.perf_counter()
        boundary = check_type(request.headers.get("content-type", ""))
        looked = "heatmaps" in request.query_params
        if looked and not self.predictor.has_heatmaps:
            raise HTTPException(422, "this model has no heatmaps; serve a run folder for them")
        self._places.check()
        try:
            with self.memory.share() as take_memory, self._places.share() as take_places:
                body = await read_body(request, self.limits, self.memory, take_memory)
                work: Work = Future()
                self._threads.submit(self._begin, work, boundary, body, take_places, looked)
                images, entries, answer = await asyncio.wrap_future(work)
                if self.keeper is not None:  # before the answer: images wait in memory no longer
                    loop, keep = asyncio.get_running_loop(), self.keeper.keep
                    await loop.run_in_executor(self._keeper_thread, keep, images, entries)
        except ClientDisconnect:
            return Response(status_code=499)
        for image in images:
            outcome = "refused" if image.probabilities is None else "answered"
            self._images.labels(outcome).inc()
            if image.probabilities is not None:
                self.answered += 1
                self._predicted.labels(self.predictor.classes[image.probabilities.argmax()]).inc()
                if image.statistics is not None:
                    self.watch.add(image.probabilities, image.opinions, image.statistics)
        self._seconds.observe(time.perf_counter() - start)
        statuses = {image.status for image in images}
        common = statuses.pop() if len(statuses) == 1 else 422
        return Response(answer, 200 if 200 in statuses else common, media_type="application/json")

    def _begin(
        self,
        work: Work,
        boundary: bytes | None,
        body: bytes,
        take: Callable[[int], None],
        looked: bool,
    ) -> None:
        """Find the images of a request and decode them; the thread that is done last queues them
        for the model, and the one that predicts the last of them makes the answer."""
        how = self.predictor.image_size, self.limits, self.predictor.window, self.watch.measures

        def finish() -> None:
            with _failing(work):
                work.set_result((images, *self._answer(images)))

        def decode(image: SentImage) -> None:
            with _failing(work):
                image.decode(*how)
                if next(left) == 0:
                    self._gather([each for each in images if each.pixels is not None], finish)

        with _failing(work):
            images = find_images(boundary, body, self.limits)
            take(len(images))
            if looked and len(images) > 1:
                raise HTTPException(422, "send one image at a time for a heatmap")
            images[0].looked = looked
            left = itertools.count(len(images) - 1, -1)
            for image in images[1:]:
                self._threads.submit(decode, image)
            decode(images[0])

    def _gather(self, images: Sequence[SentImage], finish: Callable[[], None]) -> None:
        """Have images predicted, in this thread or another; then it calls `finish`."""
        if not images:
            finish()
        self.gathered.extend((each, finish if each is images[-1] else None) for each in images)
        while self.gathered and self._model.acquire(blocking=False):
            try:
                most = min(self.limits.max_batch, len(self.gathered))
                batch = [self.gathered.popleft() for _ in range(most)]
                if batch:
                    self._predict([image for image, _ in batch])
            finally:
                self._model.release()
            for _, then in batch:
                if then is not None:
                    then()

    def _predict(self, images: Sequence[SentImage]) -> None:
        """Give images to the model, and keep what the answer says about each of them."""
        self._batches.observe(len(images))
        try:
            pixels = [each.pixels for each in images if each.pixels is not None]
            found = self.predictor.predict_pixels(np.stack(pixels))
            finite, opinions = found.finite(), found.opinions
        except Exception:
            _logger.exception("the model failed")
            for image in images:
                image.refuse(500, "the service failed; its log says why")
            return
        apart = None if opinions is None else disagreement(opinions)
        for number, image in enumerate(images):
            if not finite[number]:
                image.refuse(500, f"{image.name}: {NOT_FINITE}")
                continue
            image.probabilities = found.probabilities[number]
            if opinions is not None and apart is not None:
                image.opinions, image.disagreement = opinions[number], abs(float(apart[number]))
            if image.looked:
                try:
                    image.heatmap = draw_heatmaps(self.predictor, pixels[number])
                except Exception:  # it costs the picture, not the answer
                    _logger.exception("a heatmap failed")

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
        if image.heatmap:
            entry["heatmap"] = f"data:image/png;base64,{base64.b64encode(image.heatmap).decode()}"
        if opinions is not None:
            entry["opinions"] = dict(zip(predictor.domains, map(by_class, opinions), strict=True))
            entry["disagreement"] = round(image.disagreement, DIGITS)
        if self.watch.outlier_scale is not None and image.statistics is not None:
            score, closest, most_unusual = self.watch.outlier_scale(image.statistics)
            entry["outlier_score"] = round(score, DIGITS)
            entry["closest_domain"], entry["most_unusual"] = closest, most_unusual
        return entry


class Keeper:
    """Keeps images and answers in a folder, where that was asked for: the newest ones, up to a
    size.

    Names of files are made here: time and a number. What somebody calls a file is only in the
    answer. One thread at a time writes."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self._folder, self._limits, self._numbers = folder, limits, itertools.count(1)
        self._kept: deque[tuple[Path, int]] = deque()
        """The pictures and the answers, in turn."""
        self._bytes = 0
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for path in folder.glob(".*.partial"):  # of a service that was killed
                if _NAME.match(path.name.removeprefix(".")):
                    path.unlink(missing_ok=True)
            self._remember(*sorted(p for p in folder.iterdir() if _NAME.fullmatch(p.stem)))
        except OSError as error:
            raise UnseenError(f"images cannot be kept in {folder}: {error.strerror}") from error

    def keep(self, images: Sequence[SentImage], entries: Sequence[dict[str, Any]]) -> None:
        """Write images and their answers; a full disk stops no answer."""
        for image, entry in zip(images, entries, strict=True):
            if image.kind is None:
                continue
            now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
            stem = f"{now}-{next(self._numbers) % 1_000_000:06d}"
            ending = _ENDINGS.get(image.kind, f".{image.kind.lower()}")
            answer = as_json({name: value for name, value in entry.items() if name != "heatmap"})
            try:
                for suffix, content in ((ending, image.data), (".json", answer)):
                    with atomic_file(self._folder / f"{stem}{suffix}") as temporary:
                        temporary.write_bytes(content)
                    self._remember(self._folder / f"{stem}{suffix}")
            except OSError as error:
                _logger.warning("an image was not kept in %s: %s", self._folder, error)

    def _remember(self, *files: Path) -> None:
        """Count these files, and remove the oldest ones while there are too many."""
        found = [(path, path.stat().st_size) for path in files]
        self._kept.extend(found)
        self._bytes += sum(size for _, size in found)
        images, most = 2 * self._limits.keep_images, self._limits.keep_bytes
        while len(self._kept) > images or (self._kept and self._bytes > most):
            path, size = self._kept.popleft()
            self._bytes -= size
            path.unlink(missing_ok=True)


def as_json(content: Any) -> bytes:
    """Returns text for the network and for files; raises where a number is not finite."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "replace")
