"""What can be measured on a picture itself, before any network sees it."""

import numpy as np
from PIL import Image

STATISTICS = (
    "width",
    "height",
    "brightness",
    "contrast",
    "colourfulness",
    "saturation",
    "warmth",
    "sharpness",
    "noise",
    "blockiness",
    "bytes per pixel",
)
MEANINGS = {
    "width": "pixels of the file",
    "height": "pixels of the file",
    "brightness": "mean luminance, 0 to 1",
    "contrast": "standard deviation of luminance",
    "colourfulness": "spread and strength of the opponent colours (Hasler and Süsstrunk 2003)",
    "saturation": "mean distance of a pixel from gray, 0 to 1",
    "warmth": "mean red minus mean blue, -1 to 1",
    "sharpness": "logarithm (base 10) of the Laplacian's variance",
    "noise": "standard deviation of fine grain (Immerkær 1996, by the median)",
    "blockiness": "how much stronger edges are at every eighth pixel, as JPEG leaves them",
    "bytes per pixel": "size of the file over its pixels; unknown for pictures in memory",
}
_LOOKED_AT = 256
"""Pixels of the longer side of the copy on which light and colour are measured."""
_CROP = 512
"""Pixels of the middle square on which grain and blocks are measured: those of the file itself."""
_BLOCK = 8


def image_statistics(image: Image.Image, file_bytes: int | None) -> np.ndarray:
    """One float32 for each of `STATISTICS`, of an upright RGB image; NaN where one is not known."""
    small = _at_most(image, _LOOKED_AT)
    gray = _luminance(small)
    own = _luminance(_middle(image))
    compression = np.nan if file_bytes is None else file_bytes / (image.width * image.height)
    values = (
        image.width,
        image.height,
        gray.mean(),
        gray.std(),
        *_colours(small),
        np.log10(_laplacian(gray).var() + 1e-6),
        _noise(own),
        _blockiness(own),
        compression,
    )
    return np.array(values, dtype=np.float32)


def _at_most(image: Image.Image, side: int) -> np.ndarray:
    """float32 `[height, width, 3]` from 0 to 1, smaller where the image is larger."""
    longest = max(image.size)
    if longest > side:
        width, height = (max(1, round(length * side / longest)) for length in image.size)
        image = image.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=2.0)
    return np.asarray(image.convert("RGB"), dtype=np.float32) / 255


def _middle(image: Image.Image) -> np.ndarray:
    """The middle square, cut where blocks of eight begin."""
    left, top = (max(0, (length - _CROP) // 2) // _BLOCK * _BLOCK for length in image.size)
    cut = image.crop((left, top, min(left + _CROP, image.width), min(top + _CROP, image.height)))
    return np.asarray(cut.convert("RGB"), dtype=np.float32) / 255


def _luminance(pixels: np.ndarray) -> np.ndarray:
    return pixels @ np.array([0.299, 0.587, 0.114], dtype=np.float32)


def _colours(pixels: np.ndarray) -> tuple[float, float, float]:
    """Colourfulness, saturation and warmth."""
    red, green, blue = pixels[..., 0], pixels[..., 1], pixels[..., 2]
    red_green, yellow_blue = red - green, (red + green) / 2 - blue
    spread = np.hypot(red_green.std(), yellow_blue.std())
    strength = np.hypot(red_green.mean(), yellow_blue.mean())
    saturation = (pixels.max(axis=2) - pixels.min(axis=2)).mean()
    return spread + 0.3 * strength, saturation, red.mean() - blue.mean()


def _laplacian(gray: np.ndarray) -> np.ndarray:
    if min(gray.shape) < 3:
        return np.zeros(1, dtype=np.float32)
    inner = gray[1:-1, 1:-1]
    return gray[:-2, 1:-1] + gray[2:, 1:-1] + gray[1:-1, :-2] + gray[1:-1, 2:] - 4 * inner


def _noise(gray: np.ndarray) -> float:
    """The difference of two Laplacians is blind to edges that are straight; its response to grain
    of spread 1 has the spread 6, and the median of its size is 0.6745 of that."""
    if min(gray.shape) < 3:
        return 0.0
    rows = gray[:-2] - 2 * gray[1:-1] + gray[2:]
    both = rows[:, :-2] - 2 * rows[:, 1:-1] + rows[:, 2:]
    return float(np.median(np.abs(both)) / (6 * 0.6745))


def _blockiness(gray: np.ndarray) -> float:
    """0 where steps at every eighth pixel are as large as elsewhere; at most 1."""
    shares: list[float] = []
    for steps in (np.abs(np.diff(gray, axis=1)).mean(axis=0), np.abs(np.diff(gray.T)).mean(axis=0)):
        border = np.arange(len(steps)) % _BLOCK == _BLOCK - 1
        if border.any() and not border.all():
            at, elsewhere = float(steps[border].mean()), float(steps[~border].mean())
            shares.append((at - elsewhere) / (at + elsewhere + 1e-4))
    return float(np.mean(shares)) if shares else 0.0
