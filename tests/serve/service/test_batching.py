"""Many requests become few batches; a full queue says so."""

import asyncio
import threading

import numpy as np
from benchmarks.service.clients import multipart
from tests.serve.service.asking import BrightnessModel, ask, metric, picture


class HeldModel(BrightnessModel):
    """Predicts only when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may, self.asked = threading.Event(), threading.Event()

    def predict_pixels(self, pixels: np.ndarray, domain: int | None = None, raw: bool = False):
        self.asked.set()
        self.may.wait()
        return super().predict_pixels(pixels)


def send(guard, *images: bytes) -> asyncio.Task:
    return asyncio.create_task(ask(guard, "/predict", multipart(*images)))


async def until(condition) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_what_waits_for_the_model_becomes_one_batch(served) -> None:
    model = HeldModel()
    grays = [int(gray) for gray in np.linspace(0, 255, 41)]

    async def work(guard, service):
        first = send(guard, picture(grays[0]))
        await until(model.asked.is_set)
        others = [send(guard, picture(gray)) for gray in grays[1:]]
        await until(lambda: len(service.gathered) == 40)
        model.may.set()
        return await asyncio.gather(first, *others), await ask(guard, "/metrics")

    replies, metrics = served(work, model, max_batch=32)
    assert model.batches == [1, 32, 8]
    lines = metrics.body.decode().splitlines()
    for most, batches in (("1.0", 1), ("4.0", 1), ("8.0", 2), ("16.0", 2), ("32.0", 3)):
        assert metric(lines, f'unseen_batch_images_bucket{{le="{most}"}}') == batches
    for gray, reply in zip(grays, replies, strict=True):
        found = reply.content["images"][0]["probabilities"]["bright"]
        assert abs(found - gray / 255) < 1e-6


def test_images_of_a_request_are_a_batch(asked) -> None:
    model = BrightnessModel()
    assert asked("/predict", multipart(*[picture()] * 5), model=model, max_batch=3).status == 200
    assert model.batches == [3, 2]


def test_a_full_queue_says_when_to_come_back(served) -> None:
    model = HeldModel()

    async def work(guard, service):
        two = [picture(), picture()]
        accepted = [send(guard, *two) for _ in range(2)]
        await until(lambda: service.waiting == 4)
        refused = await send(guard, *two)
        accepted.append(send(guard, picture()))
        await until(lambda: service.waiting == 5)
        full = await ask(guard, "/predict", b"not even read")
        model.may.set()
        done = await asyncio.gather(*accepted)
        return refused, full, [*done, await send(guard, *two)], service.waiting

    refused, full, done, waiting = served(work, model, queue=5, max_images=2)
    assert refused.status == full.status == 503
    assert refused.headers["retry-after"] == "1"
    assert "5 images are waiting" in refused.content["problem"]
    assert [reply.status for reply in done] == [200] * 4
    assert waiting == 0
