"""Any image dataset of the Hugging Face Hub, or a folder of Parquet files in that form."""

import hashlib
import json
import re
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from functools import cached_property
from glob import escape
from pathlib import Path
from typing import Annotated, Any, ClassVar, cast

import numpy as np
from PIL import Image
from pydantic import BeforeValidator

from unseen.atomic import write_json
from unseen.data.cache import cache_folder, read_if_whole
from unseen.data.dataset import Dataset, Index, LabelledImage, Split, held_out
from unseen.data.files import first_few, missing_classes
from unseen.data.images import open_image
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


CONVERTED = "refs/convert/parquet"


def fetch(name: str, revision: str, pattern: str) -> Path:
    """A folder with the files of one commit that match. Only files are read: nothing that the
    repository holds is executed. What was fetched before an interruption is not fetched again."""
    listing = _listing(name, revision)
    wanted = matching(listing["files"], pattern)
    if not wanted:
        raise DataError(
            f"{name} has no files that match {pattern} at the revision {revision} (found: "
            f"{first_few(sorted(listing['files']))}); the Hub's own conversion of many datasets is "
            f"at data.revision={CONVERTED}"
        )
    return _download(name, listing["commit"], wanted)


def fetch_more(name: str, revision: str, wanted: list[str]) -> Path:
    """The same commit with more of its files."""
    return _download(name, _listing(name, revision)["commit"], wanted)


def matching(files: Iterable[str], pattern: str) -> list[str]:
    return sorted(file for file in files if fnmatch(file, pattern))


def _listing(name: str, revision: str) -> dict[str, Any]:
    """Commit and names of all files; what was seen last, while the Hub cannot be reached."""
    hub = require("huggingface_hub", "hub")
    key = hashlib.sha256(f"{name}\0{revision}".encode()).hexdigest()[:32]
    remembered = cache_folder() / "hub" / f"{key}.json"
    try:
        info = _asked(name, lambda: hub.HfApi().dataset_info(name, revision=revision))
    except _NotReachedError as error:
        if listing := read_if_whole(remembered):
            return listing
        raise DataError(
            f"the Hub cannot be reached ({error}), and {name} is not here yet; connect this "
            "machine once, or copy the Parquet files and set data.root to their folder"
        ) from error
    files = [str(file.rfilename) for file in info.siblings or ()]
    listing = {"commit": str(info.sha), "files": files}
    write_json(remembered, listing)
    return listing


def _download(name: str, commit: str, wanted: list[str]) -> Path:
    hub = require("huggingface_hub", "hub")

    def download() -> str:
        return hub.snapshot_download(
            name, repo_type="dataset", revision=commit, allow_patterns=[*map(escape, wanted)]
        )

    try:
        folder = Path(_asked(name, download))
    except _NotReachedError as error:
        raise DataError(
            f"{name} did not arrive ({error}); the same command continues where it stopped"
        ) from error
    missing = [file for file in wanted if not (folder / file).is_file()]
    if missing:
        raise DataError(
            f"{len(missing)} of {len(wanted)} files of {name} are not here yet: "
            f"{first_few(missing)}; the same command fetches them once the Hub can be reached"
        )
    return folder


class _NotReachedError(Exception):
    pass


def _asked(name: str, ask: Callable[[], Any]) -> Any:
    errors = require("huggingface_hub.errors", "hub")
    try:
        return ask()
    except errors.GatedRepoError as error:
        raise DataError(
            f"{name} asks for an account that accepted its terms: do so on its page, then "
            "run `hf auth login`"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise DataError(f"{name} has no such revision; check data.revision") from error
    except errors.RepositoryNotFoundError as error:
        raise DataError(
            f"there is no folder {name}, and no dataset of that name on the Hub; expected a folder "
            "of Parquet files, or owner/name"
        ) from error
    except Exception as error:  # those of whichever HTTP client the library uses
        raise _NotReachedError(str(error) or type(error).__name__) from error


SPLITS = {
    "train": Split.TRAIN,
    "validation": Split.VALIDATION,
    "valid": Split.VALIDATION,
    "val": Split.VALIDATION,
    "dev": Split.VALIDATION,
    "test": Split.TEST,
}
_SPLIT_IN_NAME = re.compile(rf"(?:^|[/_.-])({'|'.join(SPLITS)})(?=[/_.-])")


def _folder_or_name(value: Any) -> Any:
    """A folder by its full path, however it is spelled; the name of a repository as it is."""
    if value is None:
        return None
    folder = Path(value).expanduser()
    return str(folder.resolve()) if folder.exists() else str(value)


class Hub(Dataset):
    """An image is bytes in the file, or a path beside it. Parquet is data: nothing is executed."""

    name_as_root: ClassVar[bool] = True

    class Config(Dataset.Config):
        root: Annotated[str | None, BeforeValidator(_folder_or_name)] = None  # pyright: ignore[reportIncompatibleVariableOverride]
        """A repository `owner/name`, or a folder of Parquet files."""
        image_column: str = "image"
        """Column with the images: bytes, paths, or both as the Hub stores them."""
        label_column: str = "label"
        """Column with the classes: names, or numbers."""
        domain_column: str = "domain"
        """Column with the domains: names, or numbers."""
        files: str = "*.parquet"
        """Pattern of the files to read, for example `photos/*.parquet`; `*` crosses folders."""
        revision: str = "main"
        """Branch, tag or commit on the Hub; a commit never changes."""

    def __init__(self, config: Config, root: Path | None) -> None:
        super().__init__(config, root)
        self.options = config
        self._open = OpenShards()

    def build_index(self) -> Index:
        shards = self._shards
        labels, classes = self._names_of(self.options.label_column, "label_column")
        domains, _ = self._names_of(self.options.domain_column, "domain_column")
        names = [f"{shard.name}/{row:06d}" for shard in shards for row in range(shard.count)]
        images = [LabelledImage(*row) for row in zip(names, labels, domains, strict=True)]
        splits, official = self._splits(names)
        used = set(labels)
        index = Index.of(
            images, splits, [name for name in classes if name in used], official_test=official
        )
        return replace(index, remarks=tuple(missing_classes(index)))

    def read(self, position: int) -> Image.Image:
        return open_image(self.content(position), self.index().names[position])

    def signature(self, position: int) -> str:
        shard, _ = self._place(position)
        path = self._paths[position]
        state = "" if path is None else _state(path)
        return f"{shard.state} {self.options.image_column} {state}"

    def content(self, position: int) -> bytes:
        name, path = self.index().names[position], self._paths[position]
        if path is not None:
            try:
                return path.read_bytes()
            except OSError as error:
                raise DataError(f"{name} cannot be read from {path}: {error.strerror}") from error
        shard, row = self._place(position)
        value = self._open.use(shard).at(row, self.options.image_column)
        data = _bytes_in(value)
        if data is None:
            raise DataError(f"{name} has no image in the column '{self.options.image_column}'")
        return data

    def _place(self, position: int) -> tuple[Shard, int]:
        number = int(np.searchsorted(self._starts, position, side="right")) - 1
        return self._shards[number], position - int(self._starts[number])

    @cached_property
    def _starts(self) -> np.ndarray:
        return np.cumsum([0, *(shard.count for shard in self._shards)])[:-1]

    @cached_property
    def _folder(self) -> Path:
        if self.root is not None and self.root.is_dir():
            return self.root
        name = str(self.options.root)
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
            raise DataError(
                f"there is no folder {name}; expected a folder of Parquet files, or the name of a "
                "dataset on the Hub as owner/name"
            )
        return fetch(name, self.options.revision, self.options.files)

    @cached_property
    def _shards(self) -> list[Shard]:
        there = (file.relative_to(self._folder) for file in self._folder.rglob("*.parquet"))
        names = matching((file.as_posix() for file in there), self.options.files)
        if not names:
            raise DataError(f"no files that match {self.options.files} in {self._folder}")
        shards = [Shard(self._folder / name, name.removesuffix(".parquet")) for name in names]
        for shard in shards:
            shard.check_column(self.options.image_column, "image_column")
        return [shard for shard in shards if shard.count]

    @cached_property
    def _paths(self) -> list[Path | None]:
        """Files of the images that are not in the Parquet files themselves."""
        column = self.options.image_column
        found: list[tuple[Shard, str | None]] = []
        for shard in self._shards:
            first = self._open.use(shard).at(0, column)
            if _bytes_in(first) is not None:
                found += [(shard, None)] * shard.count
            else:
                field = f"{column}.path" if isinstance(first, dict) else column
                found += [(shard, str(path)) for path in shard.values(field, "image_column")]
        wanted = [path for _, path in found if path is not None]
        if wanted and not (self.root is not None and self.root.is_dir()):
            fetch_more(str(self.options.root), self.options.revision, wanted)
        return [None if path is None else self._inside(shard, path) for shard, path in found]

    def _inside(self, shard: Shard, path: str) -> Path:
        """Relative to the folder of the dataset, or to that of the Parquet file."""
        if ".." in Path(path).parts or Path(path).is_absolute():
            raise DataError(f"{shard.name} names {path}, which leads out of {self._folder}")
        beside = shard.path.parent / path
        return beside if beside.is_file() else self._folder / path

    def _names_of(self, column: str, setting: str) -> tuple[list[str], list[str]]:
        """The column of all shards as names, and all names in order: that of the file, if noted."""
        values: list[Any] = []
        noted: set[tuple[str, ...] | None] = set()
        for shard in self._shards:
            values += shard.values(column, setting)
            noted.add(shard.class_names(column))
        if len(noted) > 1:
            raise DataError(
                f"the files disagree on the names of '{column}'; choose with data.files"
            )
        names = noted.pop() if noted else None
        absent = sum(value is None or value == -1 for value in values)
        if absent:
            raise DataError(
                f"{absent} of {len(values)} rows have no {column}; leave them out first"
            )
        if names is None:
            return [str(value) for value in values], [str(v) for v in _in_order(set(values))]
        strange = sorted({str(v) for v in values if not (type(v) is int and 0 <= v < len(names))})
        if strange:
            raise DataError(f"'{column}' holds values without a name: {first_few(strange)}")
        return [names[value] for value in values], list(names)

    def _splits(self, names: Sequence[str]) -> tuple[np.ndarray, bool]:
        """By the name of the file, where there is more than one kind; else drawn by name."""
        kinds = [_split_in(shard.name) for shard in self._shards]
        config = self.config
        if len(set(kinds)) < 2 or None in kinds:
            shares = (config.validation_share, config.test_share)
            return held_out(names, *shares, config.split_seed), False
        drawn = held_out(
            names,
            0 if Split.VALIDATION in kinds else config.validation_share,
            0 if Split.TEST in kinds else config.test_share,
            config.split_seed,
        )
        given = np.repeat([int(kind or 0) for kind in kinds], [s.count for s in self._shards])
        return np.where(given == Split.TRAIN, drawn, given), Split.TEST in kinds


def _bytes_in(value: Any) -> bytes | None:
    """Of an image as the Hub stores it ({bytes, path}), or of a plain column of bytes."""
    data = cast(dict[str, Any], value).get("bytes") if isinstance(value, dict) else value
    return data if isinstance(data, bytes) else None


def _split_in(name: str) -> Split | None:
    found = _SPLIT_IN_NAME.search(f"{name.lower()}.")
    return SPLITS[found[1]] if found else None


def _in_order(values: Iterable[Any]) -> list[Any]:
    return sorted(values, key=lambda value: (isinstance(value, str), value))


def _state(path: Path) -> str:
    try:
        state = path.stat()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    return f"{state.st_size} {state.st_mtime_ns}"
