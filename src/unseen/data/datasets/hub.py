"""Any image dataset of the Hugging Face Hub, or a folder of Parquet files in that form.

Only files are read: nothing that a repository holds is executed.
"""

import hashlib
import json
import re
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
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
from unseen.data.dataset import Dataset, place_in_parts
from unseen.data.images import file_state, open_image, read_bytes
from unseen.data.index import SPLITS, Index, LabelledImage, Split
from unseen.errors import DataError, first_few, nearest
from unseen.optional import require

BATCH = 32
"""Rows that are read at once."""
WINDOW = 4
"""Batches kept, so that threads that lag behind find their image."""
BUFFER = 2**20
CONVERTED = "refs/convert/parquet"
_SPLIT_IN_NAME = re.compile(rf"(?:^|[/_.-])({'|'.join(SPLITS)})(?=[/_.-])")


class Shard:
    """One Parquet file: its columns, and what the library `datasets` notes about them."""

    def __init__(self, file: Path, name: str) -> None:
        self.path, self.name = file, name
        self._parquet = require("pyarrow.parquet", "hub")
        self.state = file_state(file)
        with self._opened() as opened:
            self.count, schema = int(opened.metadata.num_rows), opened.schema_arrow
        self.columns = [str(column) for column in schema.names]
        try:
            notes: Any = schema.metadata or {}
            noted = json.loads(notes[b"huggingface"])["info"]["features"]
            self._noted = {name: dict(feature) for name, feature in noted.items()}
        except (KeyError, TypeError, ValueError, AttributeError):
            self._noted = {}  # another program wrote the file

    def values(self, column: str, setting: str) -> list[Any]:
        """Read a whole column, or one field of it: `image.path`."""
        name, _, field = column.partition(".")
        self.check_column(name, setting)
        with self._opened() as opened:
            values: list[Any] = opened.read(columns=[column]).column(0).to_pylist()
        return [None if value is None else value[field] for value in values] if field else values

    def check_column(self, column: str, setting: str) -> None:
        """Raise DataError where there is no such column."""
        if column not in self.columns:
            raise DataError(
                f"{self.name} has no column '{column}'{nearest(column, self.columns)} "
                f"(found: {', '.join(self.columns)}); set data.{setting}"
            )

    def class_names(self, column: str) -> tuple[str, ...] | None:
        """Return the names of a column of class numbers, where the file has them."""
        names = self._noted.get(column, {}).get("names")
        return tuple(map(str, names)) if names else None

    def batches(self, column: str) -> Iterator[list[Any]]:
        """Read a column that is too large to be read at once, batch by batch."""
        with self._opened() as opened:
            for batch in opened.iter_batches(batch_size=BATCH, columns=[column]):
                yield batch.column(0).to_pylist()

    @contextmanager
    def _opened(self) -> Generator[Any]:
        try:
            with self._parquet.ParquetFile(self.path, buffer_size=BUFFER, pre_buffer=False) as file:
                yield file
        except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
            raise DataError(f"{self.path} is not a readable Parquet file: {error}") from error


class ColumnReader:
    """One column over all shards. Rows are asked for nearly in order, by many threads: memory is
    that of a few batches and row groups."""

    def __init__(self, shards: list[Shard], column: str) -> None:
        self._shards, self._column = shards, column
        self._ends = np.cumsum([shard.count for shard in shards])
        self._lock = threading.Lock()
        self._window: deque[list[Any]] = deque(maxlen=WINDOW)
        self._start = self._end = 0
        self._stream: Iterator[list[Any]] | None = None

    def at(self, position: int) -> Any:
        """Return one value. The stream begins anew, with its shard, for one that is far away."""
        number, row = place_in_parts(self._ends, position)
        with self._lock:
            first = position - row
            if self._stream is None or position < self._start or first > self._end:
                self._window.clear()
                self._start = self._end = first
                shards = self._shards[number:]
                self._stream = (batch for s in shards for batch in s.batches(self._column))
            while position >= self._end:
                self._window.append(next(self._stream))
                self._end += len(self._window[-1])
                self._start = self._end - sum(map(len, self._window))
            values = [value for batch in self._window for value in batch]
            return values[position - self._start]


def fetch(name: str, revision: str, pattern: str) -> Path:
    """Return a folder with the files of one commit that match. What was fetched before an
    interruption is not fetched again."""
    listing = _listing(name, revision)
    wanted = matching(listing["files"], pattern)
    if not wanted:
        raise DataError(
            f"{name} has no files that match {pattern} at the revision {revision} (found: "
            f"{first_few(sorted(listing['files']))}); the Hub's own conversion of many datasets is "
            f"at data.revision={CONVERTED}"
        )
    return _download(name, listing["commit"], wanted)


def matching(files: Iterable[str], pattern: str) -> list[str]:
    """Return the names that match a pattern, in order."""
    return sorted(file for file in files if fnmatch(file, pattern))


def _listing(name: str, revision: str) -> dict[str, Any]:
    """Ask for the commit and the names of all files; what was seen last, without a connection."""
    key = hashlib.sha256(f"{name}\0{revision}".encode()).hexdigest()[:32]
    remembered = cache_folder() / "hub" / f"{key}.json"
    try:
        info = _ask(name, lambda hub: hub.HfApi().dataset_info(name, revision=revision))
    except ConnectionError as error:
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
    patterns = [*map(escape, wanted)]
    options = {"repo_type": "dataset", "revision": commit, "allow_patterns": patterns}
    try:
        folder = Path(_ask(name, lambda hub: hub.snapshot_download(name, **options)))
    except ConnectionError as error:
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


def _ask(name: str, ask: Callable[[Any], Any]) -> Any:
    """Ask the Hub. Raises ConnectionError where it does not answer."""
    hub, errors = require("huggingface_hub", "hub"), require("huggingface_hub.errors", "hub")
    try:
        return ask(hub)
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
        raise ConnectionError(str(error) or type(error).__name__) from error


def _folder_or_name(value: Any) -> Any:
    """Return a folder by its full path, however it is spelled; a repository's name as it is."""
    if value is None:
        return None
    folder = Path(value).expanduser()
    return str(folder.resolve()) if folder.exists() else str(value)


class Hub(Dataset):
    """An image is bytes in the file, or a path beside it."""

    name_as_root: ClassVar[bool] = True

    class Config(Dataset.Config):
        root: Annotated[str | None, BeforeValidator(_folder_or_name)] = None  # pyright: ignore[reportIncompatibleVariableOverride]
        """A repository `owner/name`, or a folder of Parquet files."""
        image_column: str = "image"
        """Column with the images: bytes, paths, or both as the Hub stores them."""
        label_column: str = "label"
        """Column with the classes, as names or numbers."""
        domain_column: str = "domain"
        """Column with the domains, as names or numbers."""
        files: str = "*.parquet"
        """Pattern of the files to read, for example `photos/*.parquet`; `*` crosses folders."""
        revision: str = "main"
        """Branch, tag or commit on the Hub; a commit never changes."""

    config: Config

    def build_index(self) -> Index:
        shards = self._shards
        labels, classes = self._names_of(self.config.label_column, "label_column")
        domains, _ = self._names_of(self.config.domain_column, "domain_column")
        names = [f"{shard.name}/{row:06d}" for shard in shards for row in range(shard.count)]
        splits = [split for shard in self._splits() for split in shard]
        rows = zip(names, labels, domains, splits, strict=True)
        used = set(labels)
        classes = [name for name in classes if name in used]
        index = self.index_of([LabelledImage(*row) for row in rows], classes)
        return replace(index, remarks=tuple(index.missing_classes()))

    def decode(self, content: bytes, position: int, side: int | None = None) -> Image.Image:
        return open_image(content, self.index().names[position], side=side)

    def signature(self, position: int) -> str:
        shard = self._shards[place_in_parts(self._ends, position)[0]]
        path = self._paths[position]
        return (
            f"{shard.state} {self.config.image_column} {'' if path is None else file_state(path)}"
        )

    def content(self, position: int) -> bytes:
        name, path = self.index().names[position], self._paths[position]
        if path is not None:
            return read_bytes(path, name)
        data = _bytes_in(self._images.at(position))
        if data is None:
            raise DataError(f"{name} has no image in the column '{self.config.image_column}'")
        return data

    @property
    def _is_local(self) -> bool:
        return self.root is not None and self.root.is_dir()

    @cached_property
    def _folder(self) -> Path:
        if self.root is not None and self._is_local:
            return self.root
        name = str(self.config.root)
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
            raise DataError(
                f"there is no folder {name}; expected a folder of Parquet files, or the name of a "
                "dataset on the Hub as owner/name"
            )
        return fetch(name, self.config.revision, self.config.files)

    @cached_property
    def _shards(self) -> list[Shard]:
        there = (file.relative_to(self._folder) for file in self._folder.rglob("*.parquet"))
        names = matching((file.as_posix() for file in there), self.config.files)
        if not names:
            raise DataError(f"no files that match {self.config.files} in {self._folder}")
        shards = [Shard(self._folder / name, name.removesuffix(".parquet")) for name in names]
        for shard in shards:
            shard.check_column(self.config.image_column, "image_column")
        return [shard for shard in shards if shard.count]

    @cached_property
    def _ends(self) -> np.ndarray:
        return np.cumsum([shard.count for shard in self._shards])

    @cached_property
    def _images(self) -> ColumnReader:
        return ColumnReader(self._shards, self.config.image_column)

    @cached_property
    def _paths(self) -> list[Path | None]:
        """The files of the images that are not in the Parquet files themselves."""
        column = self.config.image_column
        paths: list[tuple[Shard, str | None]] = []
        for shard, end in zip(self._shards, self._ends, strict=True):
            first = self._images.at(int(end) - shard.count)
            if _bytes_in(first) is not None:
                paths += [(shard, None)] * shard.count
            else:
                field = f"{column}.path" if isinstance(first, dict) else column
                paths += [(shard, str(path)) for path in shard.values(field, "image_column")]
        wanted = [path for _, path in paths if path is not None]
        if wanted and not self._is_local:  # more files of the same commit
            name, revision = str(self.config.root), self.config.revision
            _download(name, _listing(name, revision)["commit"], wanted)
        return [None if path is None else self._inside(shard, path) for shard, path in paths]

    def _inside(self, shard: Shard, path: str) -> Path:
        """Find a path relative to the folder of the dataset, or to that of the Parquet file."""
        if ".." in Path(path).parts or Path(path).is_absolute():
            raise DataError(f"{shard.name} names {path}, which leads out of {self._folder}")
        beside = shard.path.parent / path
        return beside if beside.is_file() else self._folder / path

    def _names_of(self, column: str, setting: str) -> tuple[list[str], list[str]]:
        """Return the column of all shards as names, and all names in order: that of the file, if
        it is noted there."""
        values = [value for shard in self._shards for value in shard.values(column, setting)]
        noted = {shard.class_names(column) for shard in self._shards}
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
            in_order = sorted(set(values), key=lambda value: (isinstance(value, str), value))
            return [str(value) for value in values], [str(value) for value in in_order]
        strange = sorted({str(v) for v in values if not (type(v) is int and 0 <= v < len(names))})
        if strange:
            raise DataError(f"'{column}' holds values without a name: {first_few(strange)}")
        return [names[value] for value in values], list(names)

    def _splits(self) -> list[list[Split | None]]:
        """Return the split of each image, by the name of its file, where there is more than one
        kind; else it is drawn, as is validation where only training images are given."""
        matches = [_SPLIT_IN_NAME.search(f"{shard.name.lower()}.") for shard in self._shards]
        kinds = [SPLITS[match[1]] if match else None for match in matches]
        given = len(set(kinds)) > 1 and None not in kinds
        splits = [kind if given and kind != Split.TRAIN else None for kind in kinds]
        return [[split] * s.count for split, s in zip(splits, self._shards, strict=True)]


def _bytes_in(value: Any) -> bytes | None:
    """Return the bytes of an image as the Hub stores it ({bytes, path}), or of a plain column."""
    data = cast(dict[str, Any], value).get("bytes") if isinstance(value, dict) else value
    return data if isinstance(data, bytes) else None
