"""Files of a dataset on the Hugging Face Hub, on this machine: all of them, or an error."""

import hashlib
from collections.abc import Callable, Iterable
from fnmatch import fnmatch
from glob import escape
from pathlib import Path
from typing import Any

from unseen.atomic import write_json
from unseen.data.cache import cache_folder, read_if_whole
from unseen.data.files import first_few
from unseen.errors import DataError
from unseen.optional import require

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
