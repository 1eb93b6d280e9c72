"""What one client may ask of the service, and all of them together: each is an option of
`unseen serve`."""

from dataclasses import dataclass, field, fields
from typing import Any

from unseen.errors import SettingsError


def _limit(default: float, about: str) -> Any:
    return field(default=default, metadata={"help": about})


@dataclass(frozen=True)
class Limits:
    """Bounds of one request, of the queue and of a batch."""

    max_bytes: int = _limit(20_000_000, "largest body of a request")
    max_pixels: int = _limit(25_000_000, "most pixels of an image")
    max_images: int = _limit(64, "most images in a request")
    max_batch: int = _limit(32, "most images that the model predicts at a time")
    queue: int = _limit(256, "most images that wait for a prediction; beyond: 503")
    read_seconds: float = _limit(30.0, "time for a client to send a request")
    window: int = _limit(500, "latest images to compare with validation images; 0: none")
    keep_images: int = _limit(1000, "with --keep: how many of the latest images")
    keep_bytes: int = _limit(1_000_000_000, "with --keep: how much space they may take")

    def __post_init__(self) -> None:
        for each in fields(self):
            value, option = getattr(self, each.name), f"--{each.name.replace('_', '-')}"
            may_be_zero = each.name == "window"
            if not (value > 0 or (may_be_zero and value == 0)):
                least = "0 or more" if may_be_zero else "above 0"
                raise SettingsError(f"{option}: should be {least}, got {value}")
        if self.max_images > self.queue:
            raise SettingsError(
                f"a request may have {self.max_images} images (--max-images), but the queue takes "
                f"{self.queue} (--queue): make the queue at least as long"
            )
