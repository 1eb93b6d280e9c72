"""Images in, answers out: every kind of request, and every reason to refuse one."""

import base64
import io
import json

import pytest
from benchmarks.service.attacks import many_scans, rle_bmp
from benchmarks.service.clients import multipart
from benchmarks.service.mutations import bomb
from PIL import Image
from tests.serve.service.asking import FORM, JSON, STALL, BrightnessModel, ask, metric, picture

from unseen.serve.model import Model
from unseen.serve.predictor import Predictions


def as_json(*images: bytes) -> bytes:
    return json.dumps({"images": [base64.b64encode(each).decode() for each in images]}).encode()


def test_files_and_base64_get_the_same_answers(asked) -> None:
    dark, bright = picture(51), picture(204)
    form = asked("/predict", multipart(("a.png", dark), ("b.png", bright)))
    text = asked("/predict", as_json(dark, bright), headers=JSON)
    assert form.status == text.status == 200
    first, second = form.content["images"]
    assert (first["image"], first["class"], second["class"]) == ("a.png", "dark", "bright")
    assert first["confidence"] == pytest.approx(0.8)
    assert first["probabilities"] == pytest.approx({"dark": 0.8, "bright": 0.2})
    assert first["opinions"]["night"] == {"dark": 1.0, "bright": 0.0}
    assert first["disagreement"] > 0
    assert (form.content["temperature"], form.content["calibrated"]) == (1.0, False)
    renamed = [{**each, "image": f"image {n + 1}"} for n, each in enumerate((first, second))]
    assert renamed == text.content["images"]


def test_a_body_may_come_in_any_pieces_and_be_transparent(asked) -> None:
    file = io.BytesIO()
    Image.new("RGBA", (4, 4), (0, 0, 0, 0)).save(file, "PNG")  # white, as in training
    body = multipart(file.getvalue())
    reply = asked("/predict", *(body[i : i + 7] for i in range(0, len(body), 7)))
    assert reply.content["images"][0]["class"] == "bright"


def test_a_bad_image_has_a_problem_of_its_own(served) -> None:
    cut = picture(100, (64, 64))[:60]
    files = [("good.png", picture()), ("text.png", b"not an image"), ("cut.png", cut)]

    async def work(guard, _):
        return await ask(guard, "/predict", multipart(*files)), await ask(guard, "/metrics")

    reply, metrics = served(work)
    assert reply.status == 200
    good, text, damaged = reply.content["images"]
    assert "problem" not in good
    assert "not an image of a known format" in text["problem"]
    assert damaged["problem"].startswith("cut.png is not a readable image")
    assert "class" not in text
    lines = metrics.body.decode().splitlines()
    assert metric(lines, 'unseen_images_total{outcome="answered"}') == 1
    assert metric(lines, 'unseen_images_total{outcome="refused"}') == 2


SLOW = "takes too long to decode"


@pytest.mark.parametrize(
    ("files", "status", "says"),
    [
        ([b"text"], 415, "known format"),
        ([bomb(60000, 60000)], 413, "pixels"),
        ([bomb(2000, 2000)], 413, "pixels"),
        ([bomb(1, 20_000)], 413, "pixels"),  # rows take memory, too
        ([bomb(900, 900)[:200]], 422, "not a readable image"),
        ([b"text", bomb(2000, 2000)], 422, "none of the 2 images"),
        ([b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"], 415, "known format"),
        ([b""], 415, "known format"),
        ([rle_bmp(100, 100)], 200, ""),
        ([rle_bmp(700, 700)], 413, SLOW),
        ([b"P3 9 9 255 " + b"7 " * 243], 200, ""),
        ([b"P3 1000 400 255 " + b"7 " * 1_200_000], 413, SLOW),
        ([b"P3 9 9 255 " + b"#".ljust(900_000) + b"\n" + b"7 " * 243], 413, SLOW),
        ([many_scans(2, 1000)], 200, ""),
        ([many_scans(1000, 1000)], 413, SLOW),
    ],
    ids=lambda value: str(value)[:40],
)
def test_pixels_and_time_are_bounded_and_the_status_says_so(asked, files, status, says) -> None:
    reply = asked("/predict", multipart(*files), max_pixels=1_000_000)
    assert reply.status == status
    assert says in reply.content.get("problem", "")
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
        (b'{"images": ["/etc/passwd!"]}', "application/json", 422, "base64 text"),
        (b'{"images": ["\xff"]}', "application/json", 422, "base64 text"),
        (b"[" * 1000, "application/json", 422, "base64 text"),
        (b"[]," * 60_000, "application/json", 413, "far more values than 3 images need"),
        (b'[{"a":1},' * 20_000, "application/json", 413, "far more values"),
        (b'{"images": ["AAAA", "AAAA", "AAAA", "AAAA"]}', "application/json", 413, "more than 3"),
        (b'{"images": ["' + b"A" * 3000 + b'"]}', "application/json", 413, "2000 bytes"),
        (b"nothing of the kind", FORM["content-type"], 422, "not multipart"),
        (multipart(b"x")[:-6], FORM["content-type"], 422, "not complete"),
        (multipart(), FORM["content-type"], 422, ""),
        (multipart(*[b"x"] * 4), FORM["content-type"], 413, "more than 3"),
        (multipart(b"x").replace(b"; filename=0.png", b""), FORM["content-type"], 422, "a file"),
        (
            multipart(picture()).replace(b"Content-Type", b"X: y\r\n" * 4000 + b"Content-Type"),
            FORM["content-type"],
            422,
            "not multipart",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_reason(asked, body, kind, status, says) -> None:
    headers = {"content-type": kind} if kind else {}
    limit = 200_000 if len(body) > 4000 else 2000
    reply = asked("/predict", body, headers=headers, max_bytes=limit, max_images=3)
    assert reply.status == status, reply.body
    assert says in reply.content["problem"]


def test_a_large_body_is_refused_before_it_is_read(asked) -> None:
    headers = {**JSON, "content-length": "5000", "expect": "100-continue"}
    reply = asked("/predict", b"x" * 5000, headers=headers, max_bytes=2000)
    assert reply.status == 413
    assert reply.headers["connection"] == "close"


def test_the_less_memory_is_left_the_less_time_a_sender_has(served) -> None:
    async def work(guard, service):
        body = multipart(picture())
        with service.memory.share() as take:
            take(service.memory.total - 2 * len(body))
            late = await ask(guard, "/predict", body[:50], STALL)
            return late, await ask(guard, "/predict", body), await ask(guard, "/health")

    late, good, health = served(work, read_seconds=8)
    assert (late.status, good.status, health.status) == (408, 200, 200)
    assert "did not arrive within 0.4 seconds" in late.content["problem"]


def test_a_client_that_leaves_is_no_error(served) -> None:
    async def work(guard, service):
        await ask(guard, "/predict", multipart(picture())[:20], None)
        return await ask(guard, "/metrics"), service.waiting

    metrics, waiting = served(work)
    lines = metrics.body.decode().splitlines()
    assert metric(lines, 'unseen_requests_total{path="/predict",status="499"}') == 1
    assert waiting == 0


def test_other_pages(served) -> None:
    async def work(guard, _):
        return [await ask(guard, path) for path in ("/health", "/model", "/metrics", "/nothing")]

    health, model, metrics, nothing = served(work)
    assert health.content == {"status": "ok", "waiting": 0}
    assert model.content["classes"] == ["dark", "bright"]
    assert model.content["card"] == "# The card"
    assert model.content["limits"]["max_images"] == 64
    lines = metrics.body.decode().splitlines()
    assert metric(lines, 'unseen_requests_total{path="/model",status="200"}') == 1
    assert nothing.status == 404
    assert "default-src 'none'" in nothing.headers["content-security-policy"]


def test_a_failing_model_shows_nothing_of_itself(served, caplog) -> None:
    class Failing(BrightnessModel):
        def predict_pixels(self, *_: object) -> Predictions:
            raise RuntimeError("secret")

    async def work(guard, service):
        first = await ask(guard, "/predict", multipart(picture(), picture()))
        return first, await ask(guard, "/health"), service.waiting

    reply, health, waiting = served(work, Failing())
    assert (reply.status, health.status, waiting) == (500, 200, 0)
    assert b"secret" not in reply.body
    assert "secret" in caplog.text


def test_an_answer_that_is_not_a_number_is_an_error(asked) -> None:
    model = BrightnessModel(diverged=True)
    reply = asked("/predict", multipart(picture(255)), model=model)
    assert reply.status == 500
    assert "not a number" in reply.content["problem"]
    reply = asked("/predict", multipart(picture(255), picture()), model=model)
    assert reply.status == 200
    assert ["problem" in each for each in reply.content["images"]] == [True, False]
    assert b"NaN" not in reply.body


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        *((None, 401), ("Bearer secret", 200), ("bearer secret", 200), ("Bearer sécret", 401)),
        *((text, 401) for text in ("Bearer wrong", "Bearer secre", "secret", "Basic secret")),
    ],
)
def test_a_token_is_asked_for(asked, authorization, status) -> None:
    headers = {"host": "models.example.org"}
    if authorization is not None:
        headers["authorization"] = authorization
    reply = asked("/model", headers=headers, token="secret")
    assert reply.status == status
    assert (status == 401) == (reply.headers.get("www-authenticate") == "Bearer")
    assert asked("/health", headers=headers, token="secret").status == 200


@pytest.mark.parametrize(
    ("header", "status", "values"),
    [
        ("host", 200, ["localhost:8000", "127.0.0.1", "[::1]:8000", "[::1]"]),
        ("host", 421, ["", "evil.example.org:8000", "localhost.evil.example.org"]),
        ("sec-fetch-site", 200, ["same-origin"]),
        ("sec-fetch-site", 403, ["cross-site", "same-site"]),
        ("origin", 200, ["http://localhost:8000"]),
        ("origin", 403, ["http://localhost:3000", "null", "https://evil.example.org"]),
    ],
)
def test_without_a_token_only_this_machine_and_no_other_site_may_ask(
    asked, header, status, values
) -> None:
    for value in values:
        assert asked("/model", headers={header: value}).status == status, value


def test_heatmaps_come_with_the_answer(asked, dmg: Model) -> None:
    """Image, answer and three domains side by side; where a model has none, or for several images
    at once, the request is refused."""
    one, path = multipart(picture()), "/predict?heatmaps"
    (entry,) = asked(path, one, model=dmg).content["images"]
    kind, _, data = entry["heatmap"].partition(",")
    assert kind == "data:image/png;base64"
    with Image.open(io.BytesIO(base64.b64decode(data))) as strip:
        assert strip.width == (2 + len(dmg.domains)) * strip.height
    assert "heatmap" not in asked("/predict", one, model=dmg).content["images"][0]
    assert asked("/model", model=dmg).content["has_heatmaps"]
    assert asked(path, multipart(picture(), picture()), model=dmg).status == 422
    refused = asked(path, one)
    assert (refused.status, "serve a run folder" in refused.content["problem"]) == (422, True)
