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
from unseen.data.images import (
    deep_range,
    find_images,
    is_image,
    open_image,
    reader_of_file,
    to_rgb,
    to_square,
)
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


def bomb() -> bytes:
    """The beginning of a PNG file of 60,000 x 60,000 pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


NOISE = Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8))


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (as_bytes(NOISE)[:6000], ""),
        (as_bytes(NOISE, "JPEG")[:2000], ""),
        (b"<html>not found</html>", ": its bytes are in no known"),
        (b"", ""),
        (Path("nowhere/rex.jpg"), ""),
        (bomb(), ": it is too large"),
        (as_bytes(Image.new("1", (1, 10_000_000))), ": it is too large"),  # counts by its rows
    ],
    ids=["cut PNG", "cut JPEG", "text", "empty", "missing", "bomb", "narrow"],
)
def test_what_cannot_be_read_is_named(source: Path | bytes, problem: str) -> None:
    with pytest.raises(DataError, match=f"rex.jpg is not a readable image{problem}"):
        open_image(source, "rex.jpg")


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


def test_to_square_keeps_equal_sizes_and_averages_when_it_shrinks() -> None:
    """Also one column of many rows, which is averaged before."""
    assert np.array_equal(to_square(NOISE, 64), np.asarray(NOISE))
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[:, ::2] = 255
    small = to_square(Image.fromarray(stripes), 8)
    assert (small.shape, small.dtype) == ((8, 8, 3), np.uint8)
    assert abs(int(small[4, 4, 0]) - 127) < 10
    high = np.repeat(np.arange(256, dtype=np.uint8), 1000)[:, None].repeat(4, axis=1)
    found = to_square(Image.fromarray(high).convert("RGB"), 128)
    np.testing.assert_allclose(found[:, 0, 0], np.arange(128) * 2 + 0.5, atol=2)


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
        ("no: .a.jpg", lambda: as_bytes(Image.new("L", (4, 4)))),
        ("no: a.txt", lambda: b"BMW and others"),
        ("no: features.npy", lambda: numpy_file(np.zeros((5, 7, 9)))),
        ("no: labels.npy", lambda: numpy_file(np.zeros(5))),
        ("no: empty", lambda: b""),
    ],
)
def test_images_are_known_by_their_content(
    name: str, make: Callable[[], bytes], tmp_path: Path
) -> None:
    data, file = make(), name.removeprefix("no: ")
    (tmp_path / file).write_bytes(data)
    assert is_image(tmp_path, file) == (name == file)
    if name == file:
        assert open_image(tmp_path / name, name).mode == open_image(data, name).mode == "RGB"


def test_what_no_installed_package_reads_is_no_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.dcm").write_bytes(bytes(128) + b"DICM")
    monkeypatch.setattr(images, "is_installed", lambda module: False)
    assert reader_of_file(tmp_path, "a.dcm") == "pydicom"
    assert not is_image(tmp_path, "a.dcm")


def grays(data: bytes, window: Any = None) -> list[int]:
    return np.asarray(open_image(data, "x", window=window))[0, :, 0].tolist()


def test_a_window_chooses_what_is_black_and_white() -> None:
    """12 bits in a 16-bit file: 4095 of 65535 is nearly black unless a window says otherwise."""
    values = np.array([[0, 1000, 2000, 4095]], np.uint16)
    data = as_bytes(Image.fromarray(values))
    assert deep_range(data) == (0, 4095)
    assert grays(data) == [0, 4, 8, 16]
    assert grays(data, (0, 4095)) == [0, 62, 125, 255]
    assert grays(numpy_file(values), (1000, 2000)) == [0, 0, 255, 255]
    assert deep_range(as_bytes(Image.new("L", (4, 4)))) is None
    assert deep_range(b"nothing") is None


def test_dicom_values_are_shown_in_the_window_of_the_file() -> None:
    values = np.array([[0, 1000, 1500, 2000]])
    about = {"RescaleSlope": 1, "RescaleIntercept": -1000, "WindowCenter": 500, "WindowWidth": 1000}
    assert grays(dicom_file(values, **about)) == [0, 0, 128, 255]
    inverted = dicom_file(values, PhotometricInterpretation="MONOCHROME1", **about)
    assert grays(inverted) == [255, 255, 127, 0]
    assert grays(dicom_file(values, **about), (-1000, 1000)) == [0, 128, 191, 255]
    assert grays(dicom_file(values)) == [0, 128, 191, 255]


# finding them


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [
        "m.png",
        "a.JPG",
        "z/b.png",
        "z/a.png",
        "k/c.webp",
        ".x/d.png",
        "z/.e.png",
        "n.txt",
        "[1].png",
    ]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["."], "[1].png a.JPG m.png k/c.webp z/a.png z/b.png"),
        (["z", "k"], "z/a.png z/b.png k/c.webp"),
        (["*.png"], "[1].png m.png"),
        (["**/*.png"], "[1].png m.png z/a.png z/b.png"),
        (["*"], "[1].png a.JPG k/c.webp m.png z/a.png z/b.png"),
        (["?.png", "[yz]/*"], "m.png z/a.png z/b.png"),
        (["n.txt", "z/.e.png"], "n.txt z/.e.png"),  # named on purpose
        ([".x/*"], ".x/d.png"),
        (["[1].png"], "[1].png"),  # a name with the signs of a pattern
    ],
)
def test_in_order_of_name(folder: Path, words: list[str], expected: str) -> None:
    assert [path.as_posix() for path in find_images(words)] == expected.split()


def test_from_anywhere(folder: Path) -> None:
    assert list(find_images([f"{folder}/m*.png"])) == [folder / "m.png"]
    assert [p.name for p in find_images([f"{folder}/../{folder.name}/z/a*"])] == ["a.png"]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("nothing", "there is no file or folder nothing"),
        ("*.gif", r"no file or folder \*\.gif, and nothing matches it as a pattern"),
        ("*.txt", r"\*\.txt holds no images; expected files that end in \.jpg"),
    ],
)
def test_what_is_not_there(folder: Path, word: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(find_images(["m.png", word]))
