"""Many requests become few batches; a full queue says so."""

import asyncio
import threading

import numpy as np
from tests.serve.service.asking import MULTIPART, BrightnessModel, ask, multipart

FORM = {"content-type": MULTIPART}


class HeldModel(BrightnessModel):
    """Predictions only when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may = threading.Event()
        self.asked = threading.Event()

    def predict_pixels(self, pixels: np.ndarray, domain: int | None, opinions: bool):
        self.asked.set()
        self.may.wait()
        return super().predict_pixels(pixels, domain, opinions)


async def until(condition) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_what_waits_for_the_model_becomes_one_batch(served, picture) -> None:
    model = HeldModel()
    grays = [int(gray) for gray in np.linspace(0, 255, 41)]

    async def work(guard, service):
        def send(gray: int):
            return asyncio.create_task(
                ask(guard, "/predict", [multipart(("a.png", picture(gray)))], FORM)
            )

        first = send(grays[0])
        await until(model.asked.is_set)
        others = [send(gray) for gray in grays[1:]]
        await until(lambda: service.batcher._queue.qsize() == 40)
        model.may.set()
        return await asyncio.gather(first, *others), service.metrics.batches.counts

    replies, counts = served(work, model, batch=32)
    assert model.batches == [1, 32, 8]
    assert counts[:7] == [1, 0, 0, 1, 0, 1, 0]
    for gray, reply in zip(grays, replies, strict=True):
        found = reply.content["images"][0]["probabilities"]["bright"]
        assert abs(found - gray / 255) < 1e-6


def test_an_image_alone_does_not_wait(served, picture) -> None:
    """The wait is an hour, so that the test would not end."""

    async def work(guard, _):
        return await ask(guard, "/predict", [multipart(("a.png", picture()))], FORM)

    assert served(work, wait=3600).status == 200


def test_an_image_waits_for_others_that_are_being_read(served, picture) -> None:
    model = BrightnessModel()

    async def work(guard, service):
        body = multipart(("a.png", picture()))
        with service.batcher.expecting():
            first = asyncio.create_task(ask(guard, "/predict", [body], FORM))
            await until(lambda: service.waiting == 1)
            second = asyncio.create_task(ask(guard, "/predict", [body], FORM))
            return await asyncio.gather(first, second)

    assert [reply.status for reply in served(work, model, wait=3600, batch=2)] == [200, 200]
    assert model.batches == [2]


def test_a_full_queue_says_when_to_come_back(served, picture) -> None:
    model = HeldModel()

    async def work(guard, service):
        two = multipart(("a.png", picture()), ("b.png", picture()))
        accepted = [asyncio.create_task(ask(guard, "/predict", [two], FORM)) for _ in range(2)]
        await until(lambda: service.waiting == 4)
        refused = await ask(guard, "/predict", [two], FORM)
        one = multipart(("c.png", picture()))
        accepted.append(asyncio.create_task(ask(guard, "/predict", [one], FORM)))
        await until(lambda: service.waiting == 5)
        full = await ask(guard, "/predict", [b"not even read"], FORM)
        model.may.set()
        done = await asyncio.gather(*accepted)
        return refused, full, done, await ask(guard, "/predict", [two], FORM), service.waiting

    refused, full, done, after, waiting = served(work, model, queue=5, images=2)
    assert refused.status == full.status == 503
    assert refused.headers["retry-after"] == "1"
    assert "5 images are waiting" in refused.content["problem"]
    assert [reply.status for reply in done] == [200, 200, 200]
    assert after.status == 200
    assert waiting == 0
