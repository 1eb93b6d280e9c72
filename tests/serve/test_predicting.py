"""A model in use: what goes in, what comes out, and how much of it is held in memory."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.serve.models import CLASSES, DOMAINS, make_model

from unseen.errors import DataError, SettingsError, UnseenError
from unseen.forecast.profile import disagreement
from unseen.serve.model import Model
from unseen.serve.predictor import Predictions, Predictor


def files(pictures: Path) -> list[Path]:
    return sorted(pictures.rglob("*.png"))


def test_probabilities_and_opinions(dmg: Model, pictures: Path) -> None:
    found = dmg.predict(files(pictures))
    assert found.shape == (4, len(CLASSES))
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)
    assert found.max() > 0.3  # answers worth comparing
    opinions = dmg.opinions(files(pictures))
    assert opinions.shape == (4, len(DOMAINS), len(CLASSES))
    for position, name in enumerate(DOMAINS):
        known = dmg.predict(files(pictures), domain=name)
        np.testing.assert_allclose(opinions[:, position], known, atol=1e-6)
    np.testing.assert_array_equal(dmg.disagreement(files(pictures)), disagreement(opinions))
    assert dmg.opinions([]).shape == (0, len(DOMAINS), len(CLASSES))


@pytest.mark.parametrize("method", ["fusion", "multihead"])
def test_opinions_come_with_the_same_answer_as_without(method: str, pictures: Path) -> None:
    model = make_model(method)
    streamed = [each.probabilities for each in model.stream(files(pictures))]
    np.testing.assert_allclose(np.stack(streamed), model.predict(files(pictures)), atol=1e-6)


def test_a_model_that_ignores_the_domain_has_no_opinions(pictures: Path) -> None:
    model = make_model("aggregate")
    (first, *_) = model.stream(files(pictures))
    assert (first.opinions, first.disagreement) == (None, None)
    with pytest.raises(UnseenError, match="gives the same answer for every domain"):
        model.opinions(files(pictures))


def test_a_bad_image_stops_nothing_in_a_stream(dmg: Model, pictures: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"no picture")
    given = [bad, *files(pictures)[:2], bad, files(pictures)[2]]
    found = list(dmg.stream(given, batch=2))
    assert [each.image for each in found] == given
    assert [each.problem is None for each in found] == [False, True, True, False, True]
    assert (
        found[0].problem == f"{bad} is not a readable image: its bytes are in no known image format"
    )
    assert (found[0].probabilities, found[0].opinions) == (None, None)
    alone = dmg.predict([files(pictures)[2]])[0]
    np.testing.assert_allclose(found[4].probabilities, alone, atol=1e-6)
    with pytest.raises(DataError, match=r"bad\.png is not a readable image"):
        dmg.predict(given)


class Counting(Predictor):
    """Predictions with the brightness of each image, and remembers how large its batches were."""

    classes, domains, image_size, has_opinions = ["a", "b"], ["x"], 4, False

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def predict_pixels(
        self, pixels: np.ndarray, domain: int | None, opinions: bool, raw: bool = False
    ) -> Predictions:
        self.sizes.append(len(pixels))
        share = pixels.mean(axis=(1, 2, 3)) / 255
        return Predictions(np.stack([share, 1 - share], axis=1), None)


def test_only_two_batches_are_ever_held() -> None:
    drawn = 0

    def images() -> Iterator[Image.Image]:
        nonlocal drawn
        for number in range(1000):
            drawn += 1
            yield Image.new("RGB", (4, 4), (number % 256,) * 3)

    model = Counting()
    ahead = []
    for number, prediction in enumerate(model.stream(images(), batch=8)):
        assert prediction.probabilities is not None
        assert prediction.probabilities[0] == pytest.approx(number % 256 / 255)  # in order
        ahead.append(drawn - number)
    assert number == 999
    assert max(ahead) <= 16
    assert set(model.sizes) == {8}
    assert len(model.sizes) == 125


def test_what_is_refused(dmg: Model, pictures: Path) -> None:
    with pytest.raises(
        SettingsError, match=r"unknown training domain 'foto'; did you mean 'photo'"
    ):
        dmg.predict(files(pictures), domain="foto")
    for single in (files(pictures)[0], str(files(pictures)[0]), Image.new("RGB", (4, 4))):
        with pytest.raises(DataError, match="put a single image into a list"):
            dmg.stream(single)  # pyright: ignore[reportArgumentType]
    for array in (np.zeros((4, 4, 3)), np.zeros((4, 4, 5), np.uint8), np.zeros((4,), np.uint8)):
        with pytest.raises(DataError, match=r"an array should be uint8 \[height, width, 3\], got"):
            dmg.predict([array])


def test_an_image_bomb_is_named_and_left_out(dmg: Model, tmp_path: Path) -> None:
    """A header that claims 60,000 x 60,000 pixels in a file of a hundred bytes."""
    import struct
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    bomb = tmp_path / "bomb.png"
    bomb.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IEND", b""))
    (found,) = dmg.stream([bomb])
    assert found.problem is not None
    assert "bomb.png is not a readable image: it is too large" in found.problem


def test_devices() -> None:
    with pytest.raises(SettingsError, match="the device 'abacus' cannot be used"):
        Model(make_model("aggregate").method, make_model("aggregate").experiment, "", "abacus")
