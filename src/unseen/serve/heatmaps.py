"""Pictures of where a model looked: an image, and beside it what its class was told by."""

import io

import numpy as np
from PIL import Image

from unseen.reports.figures.grids import overlay
from unseen.serve.predictor import Predictor


def parts(model: Predictor) -> list[str]:
    """Return what stands beside each other: with masks, each training domain looks for itself."""
    return ["image", "answer", *(model.domains if model.has_opinions else ())]


def draw_heatmaps(model: Predictor, pixels: np.ndarray) -> bytes:
    """Return a PNG of an image, prepared as uint8 `[size, size, 3]`, and its heatmaps."""
    (maps,) = model.heatmaps(pixels[None])
    strip = np.concatenate([pixels, *(overlay(pixels, heat) for heat in maps)], axis=1)
    file = io.BytesIO()
    Image.fromarray(strip).save(file, "png")
    return file.getvalue()
