"""What the service takes at most: one request, and all of them together."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from unseen.errors import SettingsError

BODIES_HELD = 10
"""Requests of the largest size whose bodies are in memory at a time."""


@dataclass(frozen=True)
class Limits:
    """Bounds of one request, of the queue and of a batch."""

    bytes: int = 20_000_000
    """Of the body of a request."""
    pixels: int = 25_000_000
    """Of one image; decoded, it takes three bytes a pixel and more while it is prepared."""
    images: int = 64
    """In one request."""
    queue: int = 256
    """Images accepted and not yet answered."""
    batch: int = 32
    """Images that the model answers at a time."""
    wait: float = 0.005
    """Seconds that an image waits for others of its batch."""
    read_seconds: float = 30.0
    """For a client to send a request, and to take its answer."""

    def __post_init__(self) -> None:
        for name in ("bytes", "pixels", "images", "queue", "batch"):
            if getattr(self, name) < 1:
                raise SettingsError(
                    f"the limit of {name} should be 1 or more, got {getattr(self, name)}"
                )
        if not self.wait >= 0 or not self.read_seconds > 0:
            raise SettingsError("waiting times should be 0 or more, and time to read above 0")
        if self.images > self.queue:
            raise SettingsError(
                f"a request may have {self.images} images (--max-images), but the queue takes "
                f"{self.queue} (--queue): make the queue at least as long"
            )


class Refusal(Exception):
    """An answer that is not the one asked for: an HTTP status and what to do about it."""

    def __init__(self, status: int, problem: str, retry_after: int | None = None) -> None:
        super().__init__(problem)
        self.status, self.problem, self.retry_after = status, problem, retry_after


def busy(what: str) -> Refusal:
    return Refusal(503, f"the service is busy: {what}; try again in a second", retry_after=1)


class Allowance:
    """An amount that all requests share: each takes its part, and gives it back at its end."""

    def __init__(self, total: int, full: str) -> None:
        """`full` says what is the matter when nothing is left."""
        self.total, self.full = total, full
        self.taken = 0

    def check(self) -> None:
        """Refuse early where nothing is left."""
        if self.taken >= self.total:
            raise busy(self.full)

    @contextmanager
    def share(self) -> Iterator["Share"]:
        share = Share(self)
        try:
            yield share
        finally:
            self.taken -= share.amount


class Share:
    """What one request has taken."""

    def __init__(self, allowance: Allowance) -> None:
        self._allowance = allowance
        self.amount = 0

    def take(self, amount: int) -> None:
        allowance = self._allowance
        if allowance.taken + amount > allowance.total:
            raise busy(allowance.full)
        allowance.taken += amount
        self.amount += amount
