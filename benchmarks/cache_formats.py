"""Which form should a compact cache have? Size, decoding speed and loss of each candidate.

python benchmarks/cache_formats.py [size] [images]: on PACS below $UNSEEN_DATA, else on digits.
The choice: JPEG 95 with full colour, which is 6 to 8 times smaller than raw and hardly lossy, read
by Pillow (torchvision's decoder is quicker, but deprecated since 0.29).
"""

import io
import os
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table
from torchvision.io import decode_jpeg

from unseen.data.dataset import open_dataset
from unseen.data.images import to_square
from unseen.settings.experiment import DataSettings

Encode = Callable[[np.ndarray], bytes]
Decode = Callable[[bytes], np.ndarray]


def with_pillow(kind: str, **options: object) -> Encode:
    def encode(pixels: np.ndarray) -> bytes:
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, kind, **options)
        return buffer.getvalue()

    return encode


def by_pillow(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)))


def by_torchvision(data: bytes) -> np.ndarray:
    encoded = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    warnings.simplefilter("ignore", DeprecationWarning)
    return np.moveaxis(np.asarray(decode_jpeg(encoded)), 0, -1)


JPEG_444 = with_pillow("JPEG", quality=95, subsampling=0)
CANDIDATES: dict[str, tuple[Encode, Decode]] = {
    "raw": (np.ndarray.tobytes, lambda data: np.frombuffer(data, np.uint8).copy()),
    "JPEG 95 4:4:4, Pillow": (JPEG_444, by_pillow),
    "JPEG 95 4:4:4, torchvision": (JPEG_444, by_torchvision),
    "JPEG 95 4:2:0, Pillow": (with_pillow("JPEG", quality=95, subsampling=2), by_pillow),
    "JPEG 90 4:4:4, Pillow": (with_pillow("JPEG", quality=90, subsampling=0), by_pillow),
    "WebP 95, Pillow": (with_pillow("WEBP", quality=95), by_pillow),
    "PNG, Pillow": (with_pillow("PNG", compress_level=6), by_pillow),
}


def sample(size: int, number: int) -> list[np.ndarray]:
    name = "pacs" if "UNSEEN_DATA" in os.environ else "digits"
    dataset = open_dataset(DataSettings(name=name))
    positions = np.linspace(0, len(dataset.index()) - 1, number).astype(int)
    return [to_square(dataset.read(int(position)), size) for position in positions]


def main() -> None:
    size, number = (int(text) for text in (*sys.argv[1:], "128", "1000")[:2])
    images = sample(size, number)
    table = Table("form", "bytes per image", "images/s", "PSNR dB", title=f"{number} at {size} px")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, (encode, decode) in CANDIDATES.items():
            encoded = [encode(pixels) for pixels in images]
            start = time.perf_counter()
            decoded = list(pool.map(decode, encoded))
            speed = number / (time.perf_counter() - start)
            error = np.mean(
                [
                    np.mean((a.reshape(b.shape).astype(float) - b) ** 2)
                    for a, b in zip(decoded, images, strict=True)
                ]
            )
            quality = "exact" if error == 0 else f"{10 * np.log10(255**2 / error):.1f}"
            mean_size = sum(map(len, encoded)) / number
            table.add_row(name, f"{mean_size:,.0f}", f"{speed:,.0f}", quality)
    Console().print(table)


if __name__ == "__main__":
    main()
