import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageOps
from tests.audit.conftest import scene

from unseen.audit.audit import audit
from unseen.data.dataset import open_dataset
from unseen.data.prepare import prepare
from unseen.settings.recipes import load_experiment


def redo(root: Path, pattern: str, change) -> None:
    for file in sorted(root.glob(pattern)):
        change(Image.open(file).convert("RGB")).save(file)


def with_mark(image: Image.Image) -> Image.Image:
    ImageDraw.Draw(image).text((50, 80), "ACME", fill="white")
    return image


def test_a_watermark_gives_a_class_away(scans: Path, look) -> None:
    redo(scans, "north/dog/*", with_mark)
    found = look(scans).of("class given away")
    assert found.count == 1
    assert "dog in north (the same mark at the bottom right of the image)" in found.text


def test_a_watermark_on_all_classes_does_not(scans: Path, look) -> None:
    redo(scans, "north/*/*", with_mark)
    assert look(scans).of("class given away") is None


@pytest.mark.parametrize(
    ("change", "way"),
    [
        (lambda image: image.resize((120, 96)), "width 120, others 96"),
        (lambda image: image.point(lambda value: value // 4), "brightness 3"),
        (lambda image: ImageOps.expand(image.crop((8, 8, 88, 88)), 8), "border brightness 0, "),
        (lambda image: ImageOps.grayscale(image).convert("RGB"), "saturation 0, others"),
    ],
)
def test_statistics_give_a_class_away(scans: Path, look, change, way: str) -> None:
    redo(scans, "south/cat/*", change)
    found = look(scans).of("class given away")
    assert way in found.text.partition("cat in south (")[2].partition("dog in")[0]
    assert "north" not in found.text


def test_digits_are_not_given_away_by_ink(scans: Path, look) -> None:
    """A one has less ink than any other digit; a six with a mark in the corner has too much."""
    random = np.random.default_rng(0)
    for name, bars in {"one": 1, "two": 3, "six": 4, "four": 5, "eight": 7}.items():
        (scans / "north" / name).mkdir()
        for number in range(24):
            digit = np.zeros((96, 96), dtype=np.uint8)
            for bar in random.choice(9, bars, replace=False):
                digit[5 + 9 * bar + random.integers(5) :, 20:60][:3] = 255
            Image.fromarray(digit).save(scans / "north" / name / f"{number}.png")
    for name in ("cat", "dog"):
        shutil.rmtree(scans / "north" / name)
    assert look(scans).of("class given away") is None
    redo(scans, "north/six/*", with_mark)
    text = look(scans).of("class given away").text
    assert "six in north" in text
    assert "one in north" not in text


@pytest.mark.parametrize(
    ("change", "way"),
    [
        (lambda image: image.point(lambda value: value // 3), "brightness"),
        (lambda image: ImageOps.expand(image.crop((2, 2, 94, 94)), 2), "border brightness"),
    ],
)
def test_a_domain_that_is_two(scans: Path, look, change, way: str) -> None:
    """Half of the pictures of each class are from a darker camera, or have a black border."""
    redo(scans, "north/*/*[13579].png", change)
    found = look(scans).of("two domains in one")
    assert found.count == 1
    assert f"north (by {way}: 50% and 50%)" in found.text


def test_grounds_of_all_hues_are_not_two_domains() -> None:
    """Green alone has two parts there: hues with much of it, and hues with little."""
    dataset = open_dataset(load_experiment("digits/aggregate", {}).data)
    assert audit(dataset, prepare(dataset, 32)).findings == ()


def test_classes_of_different_brightness_are_not_two_domains(scans: Path, look) -> None:
    redo(scans, "north/cat/*", lambda image: image.point(lambda value: value // 3))
    assert look(scans).of("two domains in one") is None


def test_a_domain_that_is_two_by_its_features(scans: Path, look) -> None:
    for name in ("cat", "dog"):
        for number in range(40):
            scene(1000 + number + 100 * (name == "cat")).save(
                scans / "north" / name / f"m{number}.png"
            )

    def features(name: str) -> np.ndarray:
        values = np.random.default_rng(len(name) + hash(name) % 1000).normal(size=16)
        return values + 6.0 * ("north" in name and int(name[-5]) % 2) * np.arange(16) / 16

    found = look(scans, features).of("two domains in one")
    assert "north (by look: " in found.text
    assert "south" not in found.text
