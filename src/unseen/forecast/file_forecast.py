"""A forecast for image files: what terminal, web page and JSON show. No torch."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unseen.forecast.forecast import Forecast


class Strange(NamedTuple):
    """An image far from all validation images."""

    file: Path
    answer: str
    confidence: float
    """Not calibrated."""
    distance: float
    """To the nearest validation images, as a multiple of what is usual among these."""
    thumbnail: np.ndarray
    """uint8 `[side, side, 3]`."""


class FileForecast(NamedTuple):
    forecast: Forecast
    model: str
    files: tuple[Path, ...]
    """Those that the forecast is about."""
    problems: tuple[str, ...]
    """Of files that cannot be read."""
    strangest: tuple[Strange, ...]

    def as_json(self) -> dict[str, Any]:
        strangest = [
            {
                "file": str(each.file),
                "answer": each.answer,
                "confidence": each.confidence,
                "distance": each.distance,
            }
            for each in self.strangest
        ]
        return {
            "model": self.model,
            **self.forecast.as_json(),
            "strangest": strangest,
            "problems": list(self.problems),
        }
