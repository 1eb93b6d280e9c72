"""Images in, answers out: every kind of request, and every reason to refuse one."""

import base64
import io
import json

import pytest
from benchmarks.service.mutations import bomb
from PIL import Image
from tests.serve.service.asking import MULTIPART, BrightnessModel, ask, multipart

from unseen.serve.predictor import Predictions

JSON = {"content-type": "application/json"}
FORM = {"content-type": MULTIPART}


def as_json(*images: bytes) -> bytes:
    return json.dumps({"images": [base64.b64encode(each).decode() for each in images]}).encode()


def test_files_and_base64_get_the_same_answers(served, picture) -> None:
    dark, bright = picture(51), picture(204)

    async def work(guard, _):
        form = await ask(guard, "/predict", [multipart(("a.png", dark), ("b.png", bright))], FORM)
        text = await ask(guard, "/predict", [as_json(dark, bright)], JSON)
        return form, text

    form, text = served(work)
    assert form.status == text.status == 200
    first, second = form.content["images"]
    assert first["image"] == "a.png"
    assert first["class"] == "dark"
    assert first["confidence"] == pytest.approx(0.8)
    assert first["probabilities"] == pytest.approx({"dark": 0.8, "bright": 0.2})
    assert first["opinions"]["night"] == {"dark": 1.0, "bright": 0.0}
    assert first["disagreement"] > 0
    assert second["class"] == "bright"
    assert form.content["temperature"] == 1.0
    assert not form.content["calibrated"]
    renamed = [
        {**each, "image": f"image {number}"}
        for number, each in enumerate(form.content["images"], start=1)
    ]
    assert renamed == text.content["images"]


def test_a_body_may_come_in_any_pieces(served, picture) -> None:
    body = multipart(("a.png", picture(200)))

    async def work(guard, _):
        return await ask(guard, "/predict", [body[i : i + 7] for i in range(0, len(body), 7)], FORM)

    assert served(work).content["images"][0]["class"] == "bright"


def test_a_bad_image_has_a_problem_of_its_own(served, picture) -> None:
    cut = picture(100, (64, 64))[:60]
    files = [("good.png", picture()), ("text.png", b"not an image"), ("cut.png", cut)]

    async def work(guard, service):
        reply = await ask(guard, "/predict", [multipart(*files)], FORM)
        return reply, service.metrics.images

    reply, counted = served(work)
    assert reply.status == 200
    good, text, damaged = reply.content["images"]
    assert "problem" not in good
    assert "not an image of a known format" in text["problem"]
    assert damaged["problem"].startswith("cut.png is not a readable image")
    assert "class" not in text
    assert counted == {"answered": 1, "refused": 2}


@pytest.mark.parametrize(
    ("files", "status"),
    [
        ([("a.txt", b"text")], 415),
        ([("a.png", bomb(60000, 60000))], 413),
        ([("a.png", bomb(2000, 2000))], 413),
        ([("a.png", bomb(900, 900)[:200])], 422),
        ([("a.txt", b"text"), ("a.png", bomb(2000, 2000))], 422),
        ([("a.eps", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")], 415),
        ([("a.png", b"")], 415),
    ],
)
def test_where_no_image_is_good_the_status_says_so(served, files, status) -> None:
    async def work(guard, _):
        return await ask(guard, "/predict", [multipart(*files)], FORM)

    reply = served(work, pixels=1_000_000)
    assert reply.status == status
    assert reply.content["problem"]
    assert len(reply.content["images"]) == len(files)


@pytest.mark.parametrize(
    ("body", "kind", "status", "says"),
    [
        (b"", "", 415, "no Content-Type"),
        (b"{}", "text/plain", 415, "multipart/form-data"),
        (b"x", "multipart/form-data", 415, "boundary"),
        (b"{}", "application/json", 422, "base64 text"),
        (b"[1, 2]", "application/json", 422, "base64 text"),
        (b'{"images": []}', "application/json", 422, "no image"),
        (b'{"images": [5]}', "application/json", 422, "base64 text"),
        (b'{"images": ["/etc/passwd!"]}', "application/json", 422, "image 1 is not base64"),
        (b'{"images": ["\xff"]}', "application/json", 422, "not JSON"),
        (b"[" * 100_000, "application/json", 422, "not JSON"),
        (b'{"images": ["AAAA", "AAAA", "AAAA", "AAAA"]}', "application/json", 413, "more than 3"),
        (b'{"images": ["' + b"A" * 3000 + b'"]}', "application/json", 413, "2000 bytes"),
        (b"nothing of the kind", MULTIPART, 422, "not multipart"),
        (multipart(("a.png", b"x"))[:-6], MULTIPART, 422, "not complete"),
        (multipart(), MULTIPART, 422, ""),
        (multipart(*[("a.png", b"x")] * 4), MULTIPART, 413, "more than 3"),
        (multipart(("a", b"x")).replace(b'; filename="a"', b""), MULTIPART, 422, "not a file"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_reason(served, body, kind, status, says) -> None:
    async def work(guard, _):
        headers = {"content-type": kind} if kind else {}
        return await ask(guard, "/predict", [body], headers)

    reply = served(work, bytes=200_000 if body[:1] == b"[" else 2000, images=3)
    assert reply.status == status, reply.body
    assert says in reply.content["problem"]


def test_a_large_body_is_refused_before_it_is_read(served) -> None:
    async def work(guard, _):
        headers = {**JSON, "content-length": "5000", "expect": "100-continue"}
        return await ask(guard, "/predict", [b"x" * 5000], headers)

    reply = served(work, bytes=2000)
    assert reply.status == 413
    assert reply.headers["connection"] == "close"


def test_a_client_that_leaves_is_no_error(served, picture) -> None:
    body = multipart(("a.png", picture()))

    async def work(guard, service):
        await ask(guard, "/predict", [body[:20], None], FORM)
        return service.metrics.requests, service.waiting

    requests, waiting = served(work)
    assert requests == {("/predict", 499): 1}
    assert waiting == 0


def test_transparency_and_rotation_are_prepared_as_in_training(served) -> None:
    file = io.BytesIO()
    Image.new("RGBA", (4, 4), (0, 0, 0, 0)).save(file, "PNG")

    async def work(guard, _):
        return await ask(guard, "/predict", [multipart(("clear.png", file.getvalue()))], FORM)

    assert served(work).content["images"][0]["class"] == "bright"


def test_other_pages(served) -> None:
    async def work(guard, _):
        return [await ask(guard, path) for path in ("/health", "/model", "/metrics", "/nothing")]

    health, model, metrics, nothing = served(work)
    assert health.content == {"status": "ok", "waiting": 0}
    assert model.content["classes"] == ["dark", "bright"]
    assert model.content["card"] == "# The card"
    assert model.content["limits"]["images"] == 64
    assert 'unseen_requests_total{path="/model",status="200"} 1\n' in metrics.body.decode()
    assert nothing.status == 404
    assert "default-src 'none'" in nothing.headers["content-security-policy"]


def test_a_failing_model_shows_nothing_of_itself(served, picture, caplog) -> None:
    class Failing(BrightnessModel):
        def predict_pixels(self, *_: object) -> Predictions:
            raise RuntimeError("secret")

    async def work(guard, service):
        body = [multipart(("a.png", picture()), ("b.png", picture()))]
        first = await ask(guard, "/predict", body, FORM)
        return first, await ask(guard, "/health"), service.waiting

    reply, health, waiting = served(work, Failing())
    assert reply.status == 500
    assert b"secret" not in reply.body
    assert "secret" in caplog.text
    assert health.status == 200
    assert waiting == 0
