"""Files, folders and lists of images: finding them, and reading any kind as upright 8-bit RGB."""

import csv
import io
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from unseen.errors import DataError
from unseen.optional import require

EXTENSIONS = (".jpg", ".jpeg", ".jpe", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm")
"""Endings that are believed; other files are images if their first bytes say so."""
Window = tuple[float, float]
"""The values that become black and white where an image has more than 8 bits."""

_READERS = {
    "PIL": (
        rb"\xff\xd8\xff|\x89PNG\r\n|GIF8[79]a|RIFF....WEBP"
        rb"|....(jP  |ftypavi[fs])|\xff\x4f\xff\x51"  # JPEG 2000 and AVIF
    ),
    "pillow_heif": rb"....ftyp(hei[cxms]|hev[cx]|mif1|msf1)",
    "pydicom": rb".{128}DICM",
    "numpy": rb"\x93NUMPY.{1,80}'shape': \(\d+, \d+(, [134])?,?\)",
}
"""The module that reads a file, and how such files begin."""
_BEGINNINGS = {module: re.compile(start, re.DOTALL) for module, start in _READERS.items()}
PACKAGES = {"pillow_heif": "pillow-heif", "pydicom": "pydicom"}
"""What to install for modules that not everybody has."""
_NARROW = 64
_MOST_PIXELS = 25_000_000
"""The most pixels of an image that was narrowed and not yet lowered."""
_ALPHA_MODES = ("RGBA", "LA", "PA", "RGBa", "La")


def reader_of(data: bytes) -> str | None:
    """Return the module that reads a file that begins like this; None where it is no image."""
    return next((name for name, start in _BEGINNINGS.items() if start.match(data)), None)


@cache
def is_installed(module: str) -> bool:
    return find_spec(module) is not None


def open_image(
    source: Path | bytes,
    name: str,
    formats: tuple[str, ...] | None = None,
    window: Window | None = None,
    side: int | None = None,
) -> Image.Image:
    """Return an upright RGB image of 8 bits; transparency lies on white. Raises DataError naming
    it. `formats`, as Pillow names them, are the ones to be tried; without them, all are, and those
    of other readers. Where it will be resized to `side` pixels, a JPEG of at least four times as
    many is decoded at a half, a quarter or an eighth of its size.
    """
    try:
        return to_rgb(_decoded(source, formats, side), window)
    except Exception as error:  # decoders raise nearly anything when bytes are damaged
        reason = str(error) or type(error).__name__
        if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
            reason = f"it is too large ({error})"
        elif isinstance(error, Image.UnidentifiedImageError):
            reason = "its bytes are in no known image format"
        raise DataError(f"{name} is not a readable image: {reason}") from error


def _decoded(
    source: Path | bytes, formats: tuple[str, ...] | None = None, side: int | None = None
) -> Image.Image:
    """Return the image as its file has it, but upright."""
    data = source if isinstance(source, bytes) else source.read_bytes()
    reader = reader_of(data) if formats is None else "PIL"
    if reader == "numpy":
        return _from_array(np.load(io.BytesIO(data), allow_pickle=False))
    if reader == "pydicom":
        return _from_dicom(io.BytesIO(data))
    if reader == "pillow_heif":
        require("pillow_heif", "formats").register_heif_opener()
    with Image.open(io.BytesIO(data), formats=formats) as image:
        _check_size(*image.size)
        if side is not None:
            image.draft(None, (2 * side, 2 * side))
        image.load()
        ImageOps.exif_transpose(image, in_place=True)
        return image


def count_pixels(width: int, height: int) -> int:
    """Return how many pixels an image counts as: a row or column takes memory of its own."""
    return max(width, _NARROW) * max(height, _NARROW)


def _check_size(width: int, height: int) -> None:
    """Refuse twice Pillow's own limit, from where on Pillow refuses to read, for every reader."""
    most = 2 * (Image.MAX_IMAGE_PIXELS or 0)
    if count_pixels(width, height) > most > 0:
        raise Image.DecompressionBombError(f"{width} x {height} pixels, more than {most}")


def _from_array(values: np.ndarray) -> Image.Image:
    """Make an image of `[height, width]` or `[height, width, channels]`, of any numbers."""
    if values.ndim == 3 and values.shape[2] == 1:
        values = values[..., 0]
    if values.dtype == np.uint8 or values.dtype == np.bool_:
        return Image.fromarray(values)
    if values.ndim == 3:
        values = values.mean(axis=2)
    kind = np.int32 if values.dtype.kind in "iu" else np.float32
    return Image.fromarray(values.astype(kind))


def _from_dicom(file: io.BytesIO) -> Image.Image:
    """Read a DICOM image of one frame: its values in units such as Hounsfield's, or RGB."""
    dicom: Any = require("pydicom", "formats")
    pixels: Any = require("pydicom.pixels", "formats")
    found = dicom.dcmread(file)
    if int(found.get("NumberOfFrames", 1)) > 1:
        raise ValueError(f"it has {found.NumberOfFrames} frames; save those you want as files")
    _check_size(found.Columns, found.Rows)
    values = np.asarray(found.pixel_array)
    if values.ndim == 3:
        return Image.fromarray(values.astype(np.uint8))
    values = np.asarray(pixels.apply_modality_lut(values, found), dtype=np.float32)
    low, high = float(values.min()), float(values.max())
    shown = (found.get("WindowCenter"), found.get("WindowWidth"))
    if all(each is not None for each in shown):
        centre, width = (float(np.atleast_1d(each)[0]) for each in shown)
        low, high = centre - width / 2, centre + width / 2
    image = Image.fromarray(values)
    image.info["window"] = low, high
    image.info["inverted"] = found.PhotometricInterpretation == "MONOCHROME1"
    return image


def to_square(image: Image.Image, size: int) -> np.ndarray:
    """Resize the whole image to uint8 [size, size, 3], bilinear and antialiased.

    Width first, then height: left to itself, Pillow chooses the order by shape and by its version.
    Very high images are averaged over some rows before, which keeps the memory within bounds.
    """
    rows = -(-image.height * size // _MOST_PIXELS)
    if rows > 1:
        image = image.reduce((1, rows))
    narrow = image.resize((size, image.height), Image.Resampling.BILINEAR)
    return np.array(narrow.resize((size, size), Image.Resampling.BILINEAR))


def is_image(folder: str | Path, name: str) -> bool:
    """Whether a file is visible and has an image's extension, in upper or lower case, or begins
    like an image that can be read here."""
    if name.startswith("."):
        return False
    if name.lower().endswith(EXTENSIONS):
        return True
    reader = reader_of_file(folder, name)
    return reader is not None and is_installed(reader)


def reader_of_file(folder: str | Path, name: str) -> str | None:
    """Return the module that reads a file, as `reader_of`; None where it cannot be opened."""
    try:
        with open(os.path.join(folder, name), "rb") as file:  # noqa: PTH118, PTH123
            return reader_of(file.read(256))
    except OSError:
        return None


def is_hidden(folder: str) -> bool:
    """Whether a folder is none of the user's own: hidden, or left by a Mac's archives."""
    return folder.startswith(".") or folder == "__MACOSX"


def to_rgb(image: Image.Image, window: Window | None = None) -> Image.Image:
    """Return 8 bits and three channels, from any mode."""
    if _is_deep(image):
        return _from_deep(image, window)
    if image.mode in _ALPHA_MODES or "transparency" in image.info:
        return _by_strips(image, _on_white)
    return image if image.mode == "RGB" else image.convert("RGB")


def _is_deep(image: Image.Image) -> bool:
    return image.mode.split(";")[0] in ("I", "F")  # more than 8 bits: "I;16", "I;16B", "F", ...


def _on_white(image: Image.Image) -> Image.Image:
    opaque = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(opaque, image.convert("RGBA")).convert("RGB")


def _from_deep(image: Image.Image, window: Window | None) -> Image.Image:
    """Scale 16-bit or float to 8-bit gray: a window if there is one, else the full range of the
    type, or of the image where it has more. Pillow itself would clip everything above 255."""
    window = window or image.info.get("window")
    if window is None:
        highest = max(_values(strip).max() for strip, _ in _strips(image))
        full = (1.0, 255.0) if image.mode == "F" else (65535.0,)
        window = 0.0, next((limit for limit in full if highest <= limit), highest)
    low, high = window

    def scaled(strip: Image.Image) -> Image.Image:
        shares = (_values(strip) - low).clip(0, high - low) * (255 / ((high - low) or 1.0))
        gray = 255 - np.rint(shares) if image.info.get("inverted") else np.rint(shares)
        return Image.fromarray(gray.astype(np.uint8)).convert("RGB")

    return _by_strips(image, scaled)


def _values(image: Image.Image) -> np.ndarray:
    return np.nan_to_num(np.asarray(image).astype(np.float64))


def _strips(image: Image.Image) -> Iterator[tuple[Image.Image, tuple[int, int]]]:
    """Yield some rows after the other, and where they begin: what is done to them takes no more
    memory than the image."""
    rows = max(1, 2**20 // image.width)
    for top in range(0, image.height, rows):
        yield image.crop((0, top, image.width, min(top + rows, image.height))), (0, top)


def _by_strips(image: Image.Image, convert: Callable[[Image.Image], Image.Image]) -> Image.Image:
    whole = Image.new("RGB", image.size)
    for strip, place in _strips(image):
        whole.paste(convert(strip), place)
    return whole


def deep_range(source: Path | bytes) -> Window | None:
    """Return the lowest and highest value of an image of more than 8 bits; None for others."""
    try:
        image = _decoded(source)
    except Exception:  # as in `open_image`, which says what is wrong
        return None
    if not _is_deep(image):
        return None
    low, high = image.getextrema()
    return float(low), float(high)  # pyright: ignore[reportArgumentType]


def file_state(file: Path | str) -> str:
    """Return a text that changes when a file may have changed: its size and its time."""
    try:
        state = os.stat(file)  # noqa: PTH116, half of the time where there is no path yet
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from error
    return f"{state.st_size} {state.st_mtime_ns}"


def read_bytes(file: Path | str, name: str) -> bytes:
    """Return what an image's file holds. Raises DataError naming the image."""
    try:
        with open(file, "rb") as stream:  # noqa: PTH123, a path takes longer than a small file
            return stream.read()
    except OSError as error:
        where = "" if str(file) == name else f" from {file}"
        raise DataError(f"{name} cannot be read{where}: {error.strerror}") from error


def existing_folder(root: Path | None, layout: str) -> Path:
    """Return `root`, if it is a folder. Raises DataError with the layout that was expected."""
    if root is None or not root.is_dir():
        problem = "is a file" if root is not None and root.is_file() else "does not exist"
        raise DataError(f"the folder {root} {problem}; expected {layout}")
    return root


def folders_in(parent: Path) -> list[str]:
    """List the names of the visible folders in a folder."""
    entries = os.scandir(parent)
    return sorted(e.name for e in entries if e.is_dir() and not is_hidden(e.name))


def images_in(folder: Path) -> list[str]:
    """List the names of the images that lie directly in a folder."""
    return sorted(file for file in os.listdir(folder) if is_image(folder, file))  # noqa: PTH208, twice as fast


def names_below(folder: Path) -> Iterator[str]:
    """Name all images in a folder and in those below it, relative to it, in order; hidden ones are
    left out. Names are plain text: paths of half a million files take seconds to make."""
    for base, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not is_hidden(name))
        below = Path(base).relative_to(folder).as_posix()
        start = "" if below == "." else f"{below}/"
        yield from (start + name for name in sorted(files) if is_image(base, name))


def find_images(words: Iterable[str]) -> Iterator[Path]:
    """Find files as they are named; folders with all that is below them; patterns as `a/*.jpg`.

    They come in order of name, and are looked up as they are used: there may be any number.
    """
    for word in words:
        found = None
        for path in _matching(word):
            for found in map(path.joinpath, names_below(path)) if path.is_dir() else (path,):
                yield found
        if found is None:
            raise DataError(
                f"{word} holds no images; expected files that end in {', '.join(EXTENSIONS)}, or "
                "that begin like an image"
            )


def _matching(word: str) -> Iterator[Path]:
    pattern = Path(word)
    if pattern.exists():
        yield pattern
        return
    base, is_pattern = Path(pattern.anchor or "."), any(sign in word for sign in "*?[")
    names = sorted(base.glob(str(pattern.relative_to(pattern.anchor)))) if is_pattern else []
    if not names:
        raise DataError(f"there is no file or folder {word}, and nothing matches it as a pattern")
    for path in names:
        hidden = any(part.startswith(".") and part not in pattern.parts for part in path.parts)
        if not hidden and (path.is_dir() or is_image(path.parent, path.name)):
            yield path


def read_text(file: Path, expected: str) -> str:
    """Return what a text file holds. Raises DataError where it is missing or no UTF-8."""
    try:
        return file.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        problem = f"{file} cannot be read as UTF-8 text ({error})"
        raise DataError(f"{problem}; expected {expected}") from error


def csv_rows(
    file: Path, columns: Collection[str], expected: str
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the line number and the fields of each row of a CSV file that has these columns."""
    reader = csv.DictReader(io.StringIO(read_text(file, expected), ""), skipinitialspace=True)
    try:
        reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
        absent = [name for name in columns if name not in reader.fieldnames]
        if absent:
            header = ",".join(reader.fieldnames)
            problem = f"has no column {', '.join(absent)} in its header '{header}'"
            raise DataError(f"{file} {problem}; expected {expected}")
        for fields in reader:
            yield reader.line_num, fields
    except csv.Error as error:
        raise DataError(f"{file} is no CSV file ({error}); expected {expected}") from error
