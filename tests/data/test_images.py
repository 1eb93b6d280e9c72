import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from unseen.data.images import is_image_name, open_image, to_square
from unseen.errors import DataError


def as_bytes(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def palette(color: int) -> Image.Image:
    image = Image.new("P", (4, 4), color)
    image.putpalette([255, 0, 0] + [0, 0, 255] * 255)
    return image


RED, WHITE = (255, 0, 0), (255, 255, 255)


@pytest.mark.parametrize(
    ("image", "options", "expected"),
    [
        (Image.new("L", (4, 4), 77), {}, (77, 77, 77)),
        (Image.new("1", (4, 4), 1), {}, WHITE),
        (palette(0), {}, RED),
        (palette(0), {"transparency": 0}, WHITE),
        (palette(0), {"transparency": bytes([0, 255])}, WHITE),
        (Image.new("RGBA", (4, 4), (255, 0, 0, 0)), {}, WHITE),
        (Image.new("RGBA", (4, 4), (255, 0, 0, 255)), {}, RED),
        (Image.new("LA", (4, 4), (0, 0)), {}, WHITE),
        (Image.new("RGBA", (4, 4), (0, 0, 0, 51)), {}, (204, 204, 204)),
        (Image.new("CMYK", (8, 8), (0, 255, 255, 0)), {"kind": "JPEG", "quality": 100}, RED),
    ],
)
def test_any_mode_becomes_rgb_and_transparency_lies_on_white(
    image: Image.Image, options: dict[str, Any], expected: tuple[int, ...]
) -> None:
    found = open_image(as_bytes(image, **options), "x")
    assert found.mode == "RGB"
    tolerance = 10 if image.mode == "CMYK" else 0
    assert np.abs(np.asarray(found)[0, 0].astype(int) - expected).max() <= tolerance


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (np.array([[0, 257, 32896, 65535]], np.uint16), "PNG", [0, 1, 128, 255]),
        (np.array([[0, 257, 32896, 65535]], np.int32), "TIFF", [0, 1, 128, 255]),
        (np.array([[0.0, 0.2, 1.0]], np.float32), "TIFF", [0, 51, 255]),
    ],
)
def test_more_than_8_bits_are_scaled_and_not_clipped(
    values: np.ndarray, kind: str, expected: list[int]
) -> None:
    image = open_image(as_bytes(Image.fromarray(values), kind), "deep")
    assert np.asarray(image)[0, :, 0].tolist() == expected


def test_exif_rotation_is_applied() -> None:
    """Orientation 6: the stored left-top corner belongs to the right top."""
    image = Image.new("RGB", (16, 8), "black")
    image.paste("white", (0, 0, 4, 4))
    exif = Image.Exif()
    exif[0x0112] = 6
    upright = open_image(as_bytes(image, exif=exif), "turned")
    assert upright.size == (8, 16)
    assert upright.getpixel((7, 0)) == (255, 255, 255)
    assert upright.getpixel((0, 0)) == (0, 0, 0)


def test_truncated_image_is_named() -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8))
    for kind in ("PNG", "JPEG"):
        data = as_bytes(noise, kind)
        with pytest.raises(DataError, match=r"rex\.jpg is not a readable image"):
            open_image(data[: len(data) // 2], "rex.jpg")


def test_text_empty_and_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a is not a readable image: its bytes are in no known"):
        open_image(b"<html>not found</html>", "a")
    with pytest.raises(DataError, match="b is not a readable image"):
        open_image(b"", "b")
    with pytest.raises(DataError, match="c is not a readable image"):
        open_image(tmp_path / "c.png", "c")


def test_decompression_bomb_is_refused() -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")
    with pytest.raises(DataError, match="bomb is not a readable image: it is too large"):
        open_image(data, "bomb")


def test_to_square_keeps_equal_sizes_and_averages_when_it_shrinks() -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (8, 8, 3), np.uint8)
    assert np.array_equal(to_square(Image.fromarray(pixels), 8), pixels)
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[:, ::2] = 255
    small = to_square(Image.fromarray(stripes), 8)
    assert small.shape == (8, 8, 3)
    assert small.dtype == np.uint8
    assert abs(int(small[4, 4, 0]) - 127) < 10


def test_image_names() -> None:
    assert is_image_name("a.JPG")
    assert is_image_name("é.Png")
    assert not is_image_name(".a.jpg")
    assert not is_image_name("a.txt")
