"""The resize in exported files is Pillow's, pixel by pixel."""

import numpy as np
import pytest
import torch
from PIL import Image

from unseen.data.images import to_square
from unseen.serve.export import to_squares

SHAPES = [
    (64, 64), (128, 128), (192, 64), (100, 37), (37, 100), (227, 227), (300, 451), (17, 9), (1, 1),
    (2, 3), (640, 480), (65, 63), (1000, 20), (64, 200), (200, 64),
]  # fmt: skip


def picture(height: int, width: int, kind: str) -> np.ndarray:
    if kind == "noise":
        return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    if kind == "extremes":
        return np.random.default_rng(0).choice([0, 255], (height, width, 3)).astype(np.uint8)
    ramp = np.arange(height * width * 3) * 251 // (height * width * 3)
    return ramp.reshape(height, width, 3).astype(np.uint8)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("size", [16, 64])
def test_pixels_are_those_of_prepared_images(shape: tuple[int, int], size: int) -> None:
    batch = np.stack([picture(*shape, kind) for kind in ("noise", "extremes", "ramp")])
    expected = np.stack([to_square(Image.fromarray(pixels), size) for pixels in batch])
    found = to_squares(torch.from_numpy(batch), size).permute(0, 2, 3, 1).numpy()
    assert found.dtype == np.float32
    differing = found != expected
    assert np.abs(found - expected).max() <= 1
    assert differing.mean() <= 1e-4


def test_width_goes_first_whatever_the_shape() -> None:
    """Pillow 13 begins with the height of tall images; prepared pixels must not depend on that."""
    tall = Image.fromarray(picture(200, 20, "noise"))
    by_hand = tall.resize((32, 200), Image.Resampling.BILINEAR)
    by_hand = by_hand.resize((32, 32), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(to_square(tall, 32), np.asarray(by_hand))


def test_an_image_of_the_right_size_stays_as_it_is() -> None:
    pixels = picture(64, 64, "noise")
    np.testing.assert_array_equal(to_square(Image.fromarray(pixels), 64), pixels)
    found = to_squares(torch.from_numpy(pixels[None]), 64)[0].permute(1, 2, 0).numpy()
    np.testing.assert_array_equal(found, pixels)
