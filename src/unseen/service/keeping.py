"""Keeps images and answers in a folder, where that was asked for: the newest ones, up to a size."""

import itertools
import logging
import re
from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from unseen.atomic import atomic_file
from unseen.errors import UnseenError
from unseen.service.answers import as_json

_NAME = re.compile(r"\d{8}T\d{12}Z-\d{6}")
_ENDINGS = {"JPEG": ".jpg", "TIFF": ".tif"}
_logger = logging.getLogger("unseen.service")


class _Kept(NamedTuple):
    files: tuple[Path, ...]
    bytes: int


class Keeper:
    """Names of files are made here: time and a number. What somebody calls a file is only in the
    answer. One thread at a time writes."""

    def __init__(self, folder: Path, most_images: int, most_bytes: int) -> None:
        self._folder, self._most_images, self._most_bytes = folder, most_images, most_bytes
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            before = sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.stem))
        except OSError as error:
            raise UnseenError(f"images cannot be kept in {folder}: {error.strerror}") from error
        self._kept: deque[_Kept] = deque()
        for _, files in itertools.groupby(before, key=lambda path: path.stem):
            self._remember(tuple(files))
        self._numbers = itertools.count(1)
        self._trim()

    def keep(self, data: bytes, kind: str, answer: dict[str, Any]) -> None:
        """A full disk stops no answer."""
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
        stem = f"{now}-{next(self._numbers) % 1_000_000:06d}"
        image = self._folder / f"{stem}{_ENDINGS.get(kind, f'.{kind.lower()}')}"
        text = self._folder / f"{stem}.json"
        try:
            for path, content in ((image, data), (text, as_json(answer))):
                with atomic_file(path) as temporary:
                    temporary.write_bytes(content)
            self._remember((image, text))
            self._trim()
        except OSError as error:
            _logger.warning("an image was not kept in %s: %s", self._folder, error)

    def _remember(self, files: tuple[Path, ...]) -> None:
        self._kept.append(_Kept(files, sum(path.stat().st_size for path in files)))

    def _trim(self) -> None:
        """The oldest go first."""
        total = sum(each.bytes for each in self._kept)
        while len(self._kept) > self._most_images or (self._kept and total > self._most_bytes):
            oldest = self._kept.popleft()
            total -= oldest.bytes
            for path in oldest.files:
                path.unlink(missing_ok=True)
