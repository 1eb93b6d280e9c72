"""A digest of every image of a dataset; unchanged files are known without being read."""

import hashlib
from functools import cached_property
from itertools import chain

import numpy as np

from unseen.atomic import write_json
from unseen.data.cache import cache_folder, read_if_whole
from unseen.data.dataset import Dataset
from unseen.data.decoding import UNREADABLE, read
from unseen.data.known import digest, write_arrays
from unseen.errors import DataError

FEW = 50_000
"""Images up to which every file is looked at whenever a run starts."""


class Contents:
    """The digests of a dataset's images, as they were last time, and as they are now."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset, self.index = dataset, dataset.index()
        self.digests = np.zeros((len(self.index), 32), dtype=np.uint8)
        """Those that are known; zeros for others."""
        kind = type(dataset)
        root = dataset.root.resolve() if dataset.root else ""
        origin = digest([f"{kind.__module__}:{kind.__qualname__} {root}"])[:32]
        self._file = cache_folder() / "contents" / f"{origin}.npz"
        self._note = self._file.with_suffix(".json")
        self._marks = np.zeros(0, dtype=np.uint64)
        self._new = True

    @cached_property
    def outline(self) -> str:
        """A digest of all names."""
        return digest(self.index.names)

    def trusted(self) -> str | None:
        """Return the digest of a large dataset in which no folder has changed."""
        since = self.dataset.unchanged_since
        large = since is not None and len(self.index) > FEW
        return read_if_whole(self._note).get(str(since)) if large else None

    def last(self) -> str:
        """Return the digest of the whole dataset when it was last prepared."""
        return str(read_if_whole(self._note).get("last"))

    def look_at_files(self) -> None:
        """Look at the size and time of every file; the digests of unchanged ones are known."""
        self._marks = np.array([self._mark(n) for n in range(len(self.index))], dtype=np.uint64)
        try:
            with np.load(self._file, allow_pickle=False) as arrays:
                marks, digests = arrays["marks"], arrays["digests"]
        except (OSError, ValueError, KeyError):
            return
        places = np.searchsorted(marks, self._marks).clip(max=len(marks) - 1)
        known = marks[places] == self._marks
        self.digests[known] = digests[places[known]]
        self._new = not known.all()

    def _mark(self, position: int) -> int:
        try:
            state = self.dataset.signature(position)
        except DataError as error:
            state = str(error)
        text = f"{self.index.names[position]}\0{state}".encode(errors="surrogateescape")
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")

    def unknown(self) -> np.ndarray:
        """Return the positions of images whose digest is not known."""
        return np.flatnonzero(~self.digests.any(axis=1))

    def digest_one(self, position: int) -> None:
        """Read an image for its digest alone."""
        self.digests[position] = np.frombuffer(read(self.dataset, position)[0], np.uint8)

    def state(self) -> str:
        """Return a text that changes when an image may have changed."""
        return (
            hashlib.sha256(self._marks.tobytes()).hexdigest() if len(self._marks) else self.last()
        )

    def digest(self) -> str:
        """Return the digest of all names and images, and of how they are read."""
        texts = ["unreadable" if d == UNREADABLE else d.hex() for d in map(bytes, self.digests)]
        whole = digest(chain(*zip(self.index.names, texts, strict=True)))
        window = self.dataset.window
        return whole if window is None else digest([whole, f"window {window}"])

    def remember(self, content: str) -> None:
        """Keep what is known now, for the next time."""
        if not len(self._marks) or len(self.unknown()):
            return
        if self._new:
            order = np.argsort(self._marks, kind="stable")
            arrays = {"marks": self._marks[order], "digests": self.digests[order]}
            write_arrays(self._file, arrays)
        note = {"last": content, str(self.dataset.unchanged_since): content}
        if note != read_if_whole(self._note):
            write_json(self._note, note)
