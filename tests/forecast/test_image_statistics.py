"""Each statistic on pictures for which it is known."""

import io

import numpy as np
import pytest
from PIL import Image, ImageFilter

from unseen.forecast.profile import MEANINGS, STATISTICS, image_statistics


def measured(pixels: np.ndarray | Image.Image, size: int | None = None) -> dict[str, float]:
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    return dict(zip(STATISTICS, map(float, image_statistics(image, size)), strict=True))


def plain(colour: tuple[int, int, int], width: int = 40, height: int = 30) -> np.ndarray:
    return np.full((height, width, 3), colour, dtype=np.uint8)


def soft(size: int = 160) -> Image.Image:
    """A picture of smooth shapes."""
    dots = np.random.default_rng(3).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    return Image.fromarray(dots).resize((size, size), Image.Resampling.BICUBIC)


def test_a_plain_picture() -> None:
    found = measured(plain((255, 0, 0)), size=2400)
    assert (found["width"], found["height"]) == (40, 30)
    assert found["brightness"] == pytest.approx(0.299, abs=1e-5)
    assert found["warmth"] == found["saturation"] == pytest.approx(1)
    # mean of red - green is 1, of yellow - blue 1/2: 0.3 * sqrt(1.25)
    assert found["colourfulness"] == pytest.approx(0.3 * 1.25**0.5, abs=1e-5)
    assert found["bytes per pixel"] == 2
    for name in ("contrast", "noise", "blockiness"):
        assert found[name] == pytest.approx(0, abs=1e-5)
    assert found["sharpness"] == pytest.approx(-6, abs=0.1)
    assert np.isnan(measured(plain((1, 2, 3)))["bytes per pixel"])


def test_contrast_of_two_halves() -> None:
    pixels = plain((0, 0, 0))
    pixels[:, 20:] = 255
    found = measured(pixels)
    assert found["brightness"] == pytest.approx(0.5, abs=1e-5)
    assert found["contrast"] == pytest.approx(0.5, abs=1e-5)
    assert found["colourfulness"] == pytest.approx(0, abs=1e-5)


def test_noise_is_the_spread_of_the_grain() -> None:
    draws = np.random.default_rng(0)
    gray = 128 + draws.normal(0, 10, (200, 200, 1)).repeat(3, axis=2)
    assert measured(gray.round().astype(np.uint8))["noise"] == pytest.approx(10 / 255, rel=0.1)


def test_a_blurred_picture_is_less_sharp_and_a_compressed_one_has_blocks() -> None:
    image = soft()
    fine = Image.fromarray(
        np.clip(
            np.asarray(image) + np.random.default_rng(1).normal(0, 20, (160, 160, 3)), 0, 255
        ).astype(np.uint8)
    )
    assert measured(fine.filter(ImageFilter.GaussianBlur(2)))["sharpness"] < (
        measured(fine)["sharpness"] - 1
    )
    file = io.BytesIO()
    fine.save(file, "JPEG", quality=8)
    assert measured(Image.open(file).convert("RGB"))["blockiness"] > (
        measured(fine)["blockiness"] + 0.1
    )


@pytest.mark.parametrize("size", [(1, 1), (2, 9), (9, 2), (3000, 5)])
def test_odd_sizes_have_finite_statistics(size: tuple[int, int]) -> None:
    found = image_statistics(Image.new("RGB", size, "gray"), 10)
    assert np.isfinite(found).all()


def test_light_and_colour_hardly_depend_on_the_size() -> None:
    small, large = measured(soft(250)), measured(soft(250).resize((1500, 1500)))
    for name in ("brightness", "contrast", "colourfulness", "saturation", "warmth"):
        assert large[name] == pytest.approx(small[name], abs=0.02)


def test_every_statistic_is_explained() -> None:
    assert set(MEANINGS) == set(STATISTICS)
