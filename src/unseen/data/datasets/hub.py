"""Any image dataset of the Hugging Face Hub, or a folder of Parquet files in that form.

Only files are read: nothing that a repository holds is executed.
"""

import json
import re
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatch
from functools import cached_property
from glob import escape
from pathlib import Path
from typing import Annotated, Any, ClassVar, cast

import numpy as np
from pydantic import BeforeValidator

from unseen.atomic import write_json
from unseen.data.cache import cache_folder, digest, read_if_whole
from unseen.data.dataset import Dataset, place_in_parts
from unseen.data.images import file_state, read_bytes
from unseen.data.index import SPLITS, Index, LabelledImage, Split
from unseen.errors import DataError, first_few, nearest
from unseen.optional import require

BATCH = 32
"""Rows that are read at once."""
WINDOW = 4
"""Batches kept, so that threads that lag behind find their image."""
CONVERTED = "refs/convert/parquet"
_SPLIT_IN_NAME = re.compile(rf"(?:^|[/_.-])({'|'.join(SPLITS)})(?=[/_.-])")


class Shard:
    """One Parquet file: its columns, and what the library `datasets` notes about them."""

    def __init__(self, folder: Path, name: str, image_column: str) -> None:
        self.path, self.name = folder / name, name.removesuffix(".parquet")
        self.state = f"{file_state(self.path)} {image_column}"
        with self.opened() as opened:
            self.count, schema = int(opened.metadata.num_rows), opened.schema_arrow
        self.columns = [str(column) for column in schema.names]
        try:
            notes: Any = schema.metadata or {}
            self.noted: dict[str, Any] = json.loads(notes[b"huggingface"])["info"]["features"]
        except (KeyError, TypeError, ValueError):
            self.noted = {}  # another program wrote the file
        self.check_column(image_column, "image_column")

    @contextmanager
    def opened(self) -> Generator[Any]:
        parquet = require("pyarrow.parquet", "hub")
        try:
            with parquet.ParquetFile(self.path, buffer_size=2**20, pre_buffer=False) as file:
                yield file
        except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
            raise DataError(f"{self.path} is not a readable Parquet file: {error}") from error

    def check_column(self, column: str, setting: str) -> None:
        """Raise DataError where there is no such column."""
        if column not in self.columns:
            raise DataError(
                f"{self.name} has no column '{column}'{nearest(column, self.columns)} "
                f"(found: {', '.join(self.columns)}); set data.{setting}"
            )

    def values(self, column: str, field: str = "") -> list[Any]:
        """Read a whole column, or one field of it: `path` of `image`."""
        with self.opened() as opened:
            wanted = [f"{column}.{field}" if field else column]
            values: list[Any] = opened.read(columns=wanted).column(0).to_pylist()
        return [None if value is None else value[field] for value in values] if field else values

    def batches(self, column: str) -> Iterator[list[Any]]:
        """Read a column that is too large to be read at once, batch by batch."""
        with self.opened() as opened:
            for batch in opened.iter_batches(batch_size=BATCH, columns=[column]):
                yield batch.column(0).to_pylist()


def column_reader(shards: list[Shard], ends: np.ndarray, column: str) -> Callable[[int], Any]:
    """Return what gives the value at a position in one column over all shards. Rows are asked for
    nearly in order, by many threads: memory is that of a few batches and row groups."""
    lock, window = threading.Lock(), deque[list[Any]](maxlen=WINDOW)
    start, end, stream = 0, 0, iter(list[list[Any]]())

    def at(position: int) -> Any:
        """The stream begins anew, with its shard, for a position that is far away."""
        nonlocal start, end, stream
        number, row = place_in_parts(ends, position)
        with lock:
            if end == 0 or position < start or position - row > end:
                window.clear()
                start = end = position - row
                stream = (batch for shard in shards[number:] for batch in shard.batches(column))
            while position >= end:
                window.append(next(stream))
                end += len(window[-1])
                start = end - sum(map(len, window))
            return [value for batch in window for value in batch][position - start]

    return at


def download(name: str, commit: str, wanted: list[str]) -> Path:
    """Return a folder with these files of one commit. What was fetched before an interruption is
    not fetched again."""
    patterns = [*map(escape, wanted)]
    options = {"repo_type": "dataset", "revision": commit, "allow_patterns": patterns}
    problem = ""
    try:
        folder = Path(_ask(name, lambda hub: hub.snapshot_download(name, **options)))
        missing = [file for file in wanted if not (folder / file).is_file()]
    except ConnectionError as error:
        folder, missing, problem = Path(), wanted, f" ({error})"
    if missing:
        raise DataError(
            f"{len(missing)} of {len(wanted)} files of {name} did not arrive{problem}: "
            f"{first_few(missing)}; the same command continues once the Hub can be reached"
        )
    return folder


def _ask(name: str, ask: Callable[[Any], Any]) -> Any:
    """Ask the Hub. Raises ConnectionError where it does not answer."""
    hub, errors = require("huggingface_hub", "hub"), require("huggingface_hub.errors", "hub")
    try:
        return ask(hub)
    except (errors.RevisionNotFoundError, errors.RepositoryNotFoundError) as error:  # or gated
        raise DataError(
            f"there is no folder {name}, and no dataset of that name on the Hub, or not at this "
            "data.revision, or for accounts only that accepted its terms on its page (then run "
            "`hf auth login`); expected a folder of Parquet files, or owner/name"
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
        labels, classes = self._names_of(self.config.label_column, "label_column")
        domains, _ = self._names_of(self.config.domain_column, "domain_column")
        # by the name of the file, where there is more than one kind; else drawn, as is validation
        # where only training images are given
        matches = [_SPLIT_IN_NAME.search(f"{shard.name.lower()}.") for shard in self._shards]
        kinds = [SPLITS[match[1]] if match else None for match in matches]
        given = len(set(kinds)) > 1 and None not in kinds
        names: list[str] = []
        splits: list[Split | None] = []
        for shard, kind in zip(self._shards, kinds, strict=True):
            names += [f"{shard.name}/{row:06d}" for row in range(shard.count)]
            splits += [kind if given and kind != Split.TRAIN else None] * shard.count
        rows = zip(names, labels, domains, splits, strict=True)
        used = set(labels)
        classes = [name for name in classes if name in used]
        index = self.index_of([LabelledImage(*row) for row in rows], classes)
        return replace(index, remarks=tuple(index.missing_classes()))

    def signature(self, position: int) -> str:
        shard = self._shards[place_in_parts(self._ends, position)[0]]
        path = self._paths[position]
        return shard.state if path is None else f"{shard.state} {file_state(path)}"

    def content(self, position: int) -> bytes:
        name, path = self.index().names[position], self._paths[position]
        data = _bytes_in(self._image_at(position)) if path is None else read_bytes(path, name)
        if data is None:
            raise DataError(f"{name} has no image in the column '{self.config.image_column}'")
        return data

    @cached_property
    def _is_local(self) -> bool:
        return self.root is not None and self.root.is_dir()

    @cached_property
    def _remote(self) -> dict[str, Any]:
        """The files of the dataset on the Hub, and their commit; those that were seen last, without
        a connection."""
        name = str(self.config.root)
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
            raise DataError(
                f"there is no folder {name}; expected a folder of Parquet files, or the name of a "
                "dataset on the Hub as owner/name"
            )
        revision = self.config.revision
        remembered = cache_folder() / "hub" / f"{digest([name, revision])[:32]}.json"
        try:
            info = _ask(name, lambda hub: hub.HfApi().dataset_info(name, revision=revision))
        except ConnectionError as error:
            if found := read_if_whole(remembered):
                return found
            raise DataError(
                f"the Hub cannot be reached ({error}), and {name} is not here yet; connect this "
                "machine once, or copy the Parquet files and set data.root to their folder"
            ) from error
        files = [str(file.rfilename) for file in info.siblings or ()]
        found = {"commit": str(info.sha), "files": files}
        write_json(remembered, found)
        return found

    @cached_property
    def _folder(self) -> Path:
        if self.root is not None and self._is_local:
            return self.root
        wanted = [file for file in self._remote["files"] if fnmatch(file, self.config.files)]
        if not wanted:
            raise DataError(
                f"{self.config.root} has no files that match {self.config.files} at the revision "
                f"{self.config.revision} (found: {first_few(sorted(self._remote['files']))}); the "
                f"Hub's own conversion of many datasets is at data.revision={CONVERTED}"
            )
        return download(str(self.config.root), self._remote["commit"], sorted(wanted))

    @cached_property
    def _shards(self) -> list[Shard]:
        folder, pattern = self._folder, self.config.files
        there = (file.relative_to(folder).as_posix() for file in folder.rglob("*.parquet"))
        names = sorted(name for name in there if fnmatch(name, pattern))
        if not names:
            raise DataError(f"no files that match {pattern} in {folder}")
        shards = (Shard(folder, name, self.config.image_column) for name in names)
        return [shard for shard in shards if shard.count]

    @cached_property
    def _ends(self) -> np.ndarray:
        return np.cumsum([shard.count for shard in self._shards])

    @cached_property
    def _image_at(self) -> Callable[[int], Any]:
        return column_reader(self._shards, self._ends, self.config.image_column)

    @cached_property
    def _paths(self) -> list[Path | None]:
        """The files of the images that are not in the Parquet files themselves, relative to the
        folder of the dataset or to that of the Parquet file."""
        paths: list[tuple[Path, str] | None] = []
        for shard, end in zip(self._shards, self._ends, strict=True):
            first = self._image_at(int(end) - shard.count)
            if _bytes_in(first) is not None:
                paths += [None] * shard.count
                continue
            for value in shard.values(self.config.image_column, "path" * isinstance(first, dict)):
                path = Path(str(value))
                if ".." in path.parts or path.is_absolute():
                    raise DataError(f"{shard.name} names {path}, which leads out of {self._folder}")
                paths.append((shard.path.parent / path, str(value)))
        wanted = [path[1] for path in paths if path]
        if wanted and not self._is_local:  # more files of the same commit
            download(str(self.config.root), self._remote["commit"], wanted)
        return [p and (p[0] if p[0].is_file() else self._folder / p[1]) for p in paths]

    def _names_of(self, column: str, setting: str) -> tuple[list[str], list[str]]:
        """Return the column of all shards as names, and all names in order: that of the file, if
        it is noted there."""
        values: list[Any] = []
        noted = set[tuple[str, ...] | None]()
        for shard in self._shards:
            shard.check_column(column, setting)
            values += shard.values(column)
            names = shard.noted.get(column, {}).get("names")
            noted.add(tuple(map(str, names)) if names else None)
        if len(noted) > 1:
            raise DataError(
                f"the files disagree on the names of '{column}'; choose with data.files"
            )
        if absent := sum(value is None or value == -1 for value in values):
            raise DataError(
                f"{absent} of {len(values)} rows have no {column}; leave them out first"
            )
        names = noted.pop() if noted else None
        if names is None:
            in_order = sorted(set(values), key=lambda value: (isinstance(value, str), value))
            return [str(value) for value in values], [str(value) for value in in_order]
        strange = sorted({str(v) for v in values if not (type(v) is int and 0 <= v < len(names))})
        if strange:
            raise DataError(f"'{column}' holds values without a name: {first_few(strange)}")
        return [names[value] for value in values], list(names)


def _bytes_in(value: Any) -> bytes | None:
    """Return the bytes of an image as the Hub stores it ({bytes, path}), or of a plain column."""
    data = cast(dict[str, Any], value).get("bytes") if isinstance(value, dict) else value
    return data if isinstance(data, bytes) else None
