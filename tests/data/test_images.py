import io
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from unseen.data import images
from unseen.data.images import deep_range, is_image, open_image, reader_of_file, to_rgb, to_square
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


@pytest.mark.parametrize("kind", ["16 bits", "float", "transparent"])
def test_large_images_are_converted_in_strips(kind: str) -> None:
    """The same values as in one piece, and no copies of all of it as floats."""
    ramp = np.linspace(0, 65535, 3000 * 1000).reshape(1000, 3000)
    expected = np.rint(ramp.astype(np.uint16) / 257)
    image = Image.fromarray(ramp.astype(np.uint16))
    if kind == "float":
        image, expected = Image.fromarray((ramp / 65535).astype(np.float32)), np.rint(ramp / 257)
    elif kind == "transparent":
        image = Image.fromarray(expected.astype(np.uint8)).convert("LA")
    tracemalloc.start()
    try:
        found = to_rgb(image)
        assert tracemalloc.get_traced_memory()[1] < 8 * 4 * 2**20
    finally:
        tracemalloc.stop()
    assert np.abs(np.asarray(found)[..., 1] - expected).max() <= (kind == "float")


def test_narrow_images_count_by_their_rows() -> None:
    """One column of many rows is small as an image, and large while it is read and resized."""
    with pytest.raises(DataError, match="it is too large"):
        open_image(as_bytes(Image.new("1", (1, 10_000_000))), "x")
    high = np.repeat(np.arange(256, dtype=np.uint8), 1000)[:, None].repeat(4, axis=1)
    found = to_square(Image.fromarray(high).convert("RGB"), 128)
    np.testing.assert_allclose(found[:, 0, 0], np.arange(128) * 2 + 0.5, atol=2)


def test_to_square_keeps_equal_sizes_and_averages_when_it_shrinks() -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (8, 8, 3), np.uint8)
    assert np.array_equal(to_square(Image.fromarray(pixels), 8), pixels)
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[:, ::2] = 255
    small = to_square(Image.fromarray(stripes), 8)
    assert small.shape == (8, 8, 3)
    assert small.dtype == np.uint8
    assert abs(int(small[4, 4, 0]) - 127) < 10


def numpy_file(values: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values)
    return buffer.getvalue()


def dicom_file(values: np.ndarray, **about: object) -> bytes:
    """A DICOM image of 16-bit values; `about` are other elements of it."""
    pydicom = pytest.importorskip("pydicom")
    found = pydicom.Dataset()
    found.file_meta = pydicom.dataset.FileMetaDataset()
    found.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    found.file_meta.MediaStorageSOPClassUID = pydicom.uid.CTImageStorage
    found.file_meta.MediaStorageSOPInstanceUID = found.SOPInstanceUID = "1.2.3"
    found.SOPClassUID = pydicom.uid.CTImageStorage
    found.Rows, found.Columns = values.shape
    found.SamplesPerPixel, found.BitsAllocated, found.BitsStored, found.HighBit = 1, 16, 12, 11
    found.PixelRepresentation, found.PhotometricInterpretation = 0, "MONOCHROME2"
    found.PixelData = values.astype("<u2").tobytes()
    for name, value in about.items():
        setattr(found, name, value)
    buffer = io.BytesIO()
    pydicom.dcmwrite(buffer, found, enforce_file_format=True)
    return buffer.getvalue()


def heic_file() -> bytes:
    pytest.importorskip("pillow_heif").register_heif_opener()
    return as_bytes(Image.new("RGB", (64, 64), RED), "HEIF", quality=100)


GRAY = np.full((6, 4), 128, np.uint8)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("a.JPG", lambda: as_bytes(Image.fromarray(GRAY), "JPEG")),
        ("é.Png", lambda: as_bytes(Image.fromarray(GRAY))),
        ("from_a_phone.jfif", lambda: as_bytes(Image.fromarray(GRAY), "JPEG")),
        ("no_ending", lambda: as_bytes(Image.fromarray(GRAY))),
        ("a.jp2", lambda: as_bytes(Image.fromarray(GRAY), "JPEG2000")),
        ("a.avif", lambda: as_bytes(Image.fromarray(GRAY), "AVIF")),
        ("a.heic", heic_file),
        ("a.npy", lambda: numpy_file(GRAY)),
        ("rgb.npy", lambda: numpy_file(np.full((6, 4, 3), 0.5))),
        ("1.2.840.10008", lambda: dicom_file(np.full((6, 4), 128))),
    ],
)
def test_images_are_known_by_their_content(
    name: str, make: Callable[[], bytes], tmp_path: Path
) -> None:
    data = make()
    (tmp_path / name).write_bytes(data)
    assert is_image(tmp_path, name)
    assert open_image(tmp_path / name, name).mode == open_image(data, name).mode == "RGB"


@pytest.mark.parametrize(
    ("name", "data"),
    [
        (".a.jpg", as_bytes(Image.new("L", (4, 4)))),
        ("a.txt", b"BMW and others"),
        ("features.npy", numpy_file(np.zeros((5, 7, 9)))),
        ("labels.npy", numpy_file(np.zeros(5))),
        ("empty", b""),
    ],
)
def test_other_files_are_no_images(name: str, data: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    assert not is_image(tmp_path, name)


def test_what_no_installed_package_reads_is_no_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.dcm").write_bytes(bytes(128) + b"DICM")
    monkeypatch.setattr(images, "is_installed", lambda module: False)
    assert reader_of_file(tmp_path, "a.dcm") == "pydicom"
    assert not is_image(tmp_path, "a.dcm")


def test_a_window_chooses_what_is_black_and_white() -> None:
    """12 bits in a 16-bit file: 4095 of 65535 is nearly black unless a window says otherwise."""
    values = np.array([[0, 1000, 2000, 4095]], np.uint16)
    data = as_bytes(Image.fromarray(values))
    assert deep_range(data) == (0, 4095)
    assert np.asarray(open_image(data, "x"))[0, :, 0].tolist() == [0, 4, 8, 16]
    windowed = open_image(data, "x", window=(0, 4095))
    assert np.asarray(windowed)[0, :, 0].tolist() == [0, 62, 125, 255]
    cut = open_image(numpy_file(values), "x", window=(1000, 2000))
    assert np.asarray(cut)[0, :, 0].tolist() == [0, 0, 255, 255]
    assert deep_range(as_bytes(Image.new("L", (4, 4)))) is None
    assert deep_range(b"nothing") is None


def test_dicom_values_are_shown_in_the_window_of_the_file() -> None:
    values = np.array([[0, 1000, 1500, 2000]])
    about = {"RescaleSlope": 1, "RescaleIntercept": -1000, "WindowCenter": 500, "WindowWidth": 1000}
    shown = open_image(dicom_file(values, **about), "x")
    assert np.asarray(shown)[0, :, 0].tolist() == [0, 0, 128, 255]
    inverted = dicom_file(values, PhotometricInterpretation="MONOCHROME1", **about)
    assert np.asarray(open_image(inverted, "x"))[0, :, 0].tolist() == [255, 255, 127, 0]
    asked = open_image(dicom_file(values, **about), "x", window=(-1000, 1000))
    assert np.asarray(asked)[0, :, 0].tolist() == [0, 128, 191, 255]
    assert np.asarray(open_image(dicom_file(values), "x"))[0, :, 0].tolist() == [0, 128, 191, 255]
