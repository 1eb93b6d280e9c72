"""Files and folders of images: finding them, and reading any kind as upright 8-bit RGB."""

import io
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from unseen.errors import DataError

EXTENSIONS = (".jpg", ".jpeg", ".jpe", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm")

_DEEP_MODES = ("I", "F")  # more than 8 bits: "I", "I;16", "I;16B", "F", ...
_ALPHA_MODES = ("RGBA", "LA", "PA", "RGBa", "La")


def open_image(
    source: Path | bytes, name: str, formats: tuple[str, ...] | None = None
) -> Image.Image:
    """Return an upright RGB image of 8 bits; transparency lies on white. Raises DataError naming
    it. `formats`, as Pillow names them, are the ones to be tried; without them, all are.
    """
    try:
        file = io.BytesIO(source) if isinstance(source, bytes) else source
        with Image.open(file, formats=formats) as image:
            image.load()
            ImageOps.exif_transpose(image, in_place=True)
            return to_rgb(image)
    except Exception as error:  # decoders raise nearly anything when bytes are damaged
        reason = str(error) or type(error).__name__
        if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
            reason = f"it is too large ({error})"
        elif isinstance(error, Image.UnidentifiedImageError):
            reason = "its bytes are in no known image format"
        raise DataError(f"{name} is not a readable image: {reason}") from error


def to_square(image: Image.Image, size: int) -> np.ndarray:
    """Resize the whole image to uint8 [size, size, 3], bilinear and antialiased.

    Width first, then height: left to itself, Pillow chooses the order by shape and by its version.
    """
    narrow = image.resize((size, image.height), Image.Resampling.BILINEAR)
    return np.array(narrow.resize((size, size), Image.Resampling.BILINEAR))


def is_image_name(name: str) -> bool:
    """Whether this is a visible file with an image's extension, in upper or lower case."""
    return not name.startswith(".") and name.lower().endswith(EXTENSIONS)


def to_rgb(image: Image.Image) -> Image.Image:
    """Return 8 bits and three channels, from any mode."""
    if image.mode.split(";")[0] in _DEEP_MODES:
        return _from_deep(image).convert("RGB")
    if image.mode in _ALPHA_MODES or "transparency" in image.info:
        opaque = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(opaque, image.convert("RGBA")).convert("RGB")
    return image.convert("RGB")


def _from_deep(image: Image.Image) -> Image.Image:
    """Scale 16-bit or float to 8-bit gray; Pillow itself would clip everything above 255."""
    values = np.nan_to_num(np.asarray(image).astype(np.float64))
    highest = values.max()
    expected = (1.0, 255.0) if image.mode == "F" else (65535.0,)
    full = next((limit for limit in expected if highest <= limit), highest)
    return Image.fromarray(np.rint(values.clip(0) * (255 / full)).astype(np.uint8))


def file_state(file: Path | str) -> str:
    """Return a text that changes when a file may have changed: its size and its time."""
    try:
        state = os.stat(file)  # noqa: PTH116, half of the time where there is no path yet
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from error
    return f"{state.st_size} {state.st_mtime_ns}"


def read_bytes(file: Path, name: str) -> bytes:
    """Return what an image's file holds. Raises DataError naming the image."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise DataError(f"{name} cannot be read from {file}: {error.strerror}") from error


def existing_folder(root: Path | None, layout: str) -> Path:
    """Return `root`, if it is a folder. Raises DataError with the layout that was expected."""
    if root is None or not root.is_dir():
        problem = "is a file" if root is not None and root.is_file() else "does not exist"
        raise DataError(f"the folder {root} {problem}; expected {layout}")
    return root


def folders_in(parent: Path) -> list[str]:
    """List the names of the visible folders in a folder."""
    entries = os.scandir(parent)
    return sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))


def images_in(folder: Path) -> list[str]:
    """List the names of the images that lie directly in a folder."""
    return sorted(file for file in os.listdir(folder) if is_image_name(file))  # noqa: PTH208, twice as fast


def names_below(folder: Path) -> Iterator[str]:
    """Name all images in a folder and in those below it, relative to it, in order; hidden ones are
    left out. Names are plain text: paths of half a million files take seconds to make."""
    for base, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        below = Path(base).relative_to(folder).as_posix()
        start = "" if below == "." else f"{below}/"
        yield from (start + name for name in sorted(files) if is_image_name(name))


def find_images(words: Iterable[str]) -> Iterator[Path]:
    """Find files as they are named; folders with all that is below them; patterns as `a/*.jpg`.

    They come in order of name, and are looked up as they are used: there may be any number.
    """
    for word in words:
        images = (
            file
            for path in _matching(word)
            for file in (map(path.joinpath, names_below(path)) if path.is_dir() else (path,))
        )
        first = next(images, None)
        if first is None:
            raise DataError(
                f"{word} holds no images; expected files that end in {', '.join(EXTENSIONS)}"
            )
        yield first
        yield from images


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
        if not hidden and (path.is_dir() or is_image_name(path.name)):
            yield path
