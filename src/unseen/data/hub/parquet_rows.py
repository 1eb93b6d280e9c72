"""Parquet files as the Hub writes them: columns of values at once, images as a stream."""

import json
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unseen.errors import DataError, nearest
from unseen.optional import require

BATCH = 32
WINDOW = 4
"""Batches kept, so that threads that lag behind find their image."""
BUFFER = 2**20


class Shard:
    """One Parquet file. Rows are asked for nearly in order: memory is that of a few row groups."""

    def __init__(self, file: Path, name: str) -> None:
        self.name = name
        self.path = file
        self._parquet = require("pyarrow.parquet", "hub")
        self._lock = threading.Lock()
        self._window: deque[list[Any]] = deque(maxlen=WINDOW)
        self._end = 0
        self._stream: Iterator[list[Any]] | None = None
        try:
            with self._opened() as opened:
                self.count = int(opened.metadata.num_rows)
                self.columns = [str(column) for column in opened.schema_arrow.names]
                self.features = _features(opened.schema_arrow.metadata)
        except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
            raise self._damaged(error) from error
        state = file.stat()
        self.state = f"{state.st_size} {state.st_mtime_ns}"

    def values(self, column: str, setting: str) -> list[Any]:
        """A whole column, or one field of it: `image.path`."""
        self.check_column(column.partition(".")[0], setting)
        try:
            with self._opened() as opened:
                table = opened.read(columns=[column])
        except (OSError, ValueError) as error:
            raise self._damaged(error) from error
        found = table.column(0).to_pylist()
        field = column.partition(".")[2]
        return [None if value is None else value[field] for value in found] if field else found

    def check_column(self, column: str, setting: str) -> None:
        if column not in self.columns:
            raise DataError(
                f"{self.name} has no column '{column}'{nearest(column, self.columns)} "
                f"(found: {', '.join(self.columns)}); set data.{setting}"
            )

    def class_names(self, column: str) -> tuple[str, ...] | None:
        """Names of a column of class numbers, where the file has them."""
        names = self.features.get(column, {}).get("names")
        return tuple(map(str, names)) if names else None

    def at(self, row: int, column: str) -> Any:
        """One value of a column that is too large to be read at once."""
        with self._lock:
            if self._stream is None or row < self._end - sum(map(len, self._window)):
                self._window.clear()
                self._end = 0
                self._stream = self._batches(column)
            while row >= self._end:
                batch = next(self._stream)
                self._window.append(batch)
                self._end += len(batch)
            values = [value for batch in self._window for value in batch]
            return values[row - self._end]

    def close(self) -> None:
        with self._lock:
            self._stream = None
            self._window.clear()
            self._end = 0

    def _batches(self, column: str) -> Iterator[list[Any]]:
        try:
            with self._opened() as opened:
                for batch in opened.iter_batches(batch_size=BATCH, columns=[column]):
                    yield batch.column(0).to_pylist()
        except (OSError, ValueError) as error:
            raise self._damaged(error) from error

    def _opened(self) -> Any:
        return self._parquet.ParquetFile(self.path, buffer_size=BUFFER, pre_buffer=False)

    def _damaged(self, error: Exception) -> DataError:
        return DataError(f"{self.path} is not a readable Parquet file: {error}")


class OpenShards:
    """Streams of the shards that were used last; older ones are closed."""

    def __init__(self, most: int = 2) -> None:
        self.most = most
        self._recent: OrderedDict[str, Shard] = OrderedDict()
        self._lock = threading.Lock()

    def use(self, shard: Shard) -> Shard:
        with self._lock:
            self._recent[shard.name] = shard
            self._recent.move_to_end(shard.name)
            old = self._recent.popitem(last=False)[1] if len(self._recent) > self.most else None
        if old is not None:
            old.close()
        return shard


def _features(metadata: dict[bytes, bytes] | None) -> dict[str, dict[str, Any]]:
    """What the library `datasets` notes about columns; nothing where another program wrote it."""
    try:
        noted = json.loads((metadata or {})[b"huggingface"])
        features: dict[str, Any] = noted["info"]["features"]
        return {name: feature for name, feature in features.items() if isinstance(feature, dict)}
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}
