"""One file from a public address: continued where it broke off, and checked when it is whole."""

import hashlib
import http.client
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from unseen.errors import DataError

Report = Callable[[str, int, int], None]
"""Gets what is being done, how many bytes are there, and how many there will be (0: unknown)."""

CHUNK = 2**18
TIMEOUT = 60
TRIES = 4
_BROKEN = (OSError, http.client.HTTPException)  # connections that fail, stall or break off


class Download(NamedTuple):
    """A file, or an archive that is unpacked."""

    address: str
    file: str
    """Where it goes below the root of the dataset."""
    checksum: str = ""
    """`md5:…` or `sha256:…`; empty where none is published."""
    about_bytes: int = 0
    """For the bar and for the room on the disk; 0 where it is small or not known."""
    unpack_to: str | None = None
    """A folder below the root, for archives."""


def transfer(download: Download, root: Path, report: Report, pause: float = 2.0) -> Path:
    """The file, whole and checked. A partial one beside it is continued; after a few tries
    without a byte, or with wrong bytes, it stops with what to do."""
    final = root / download.file
    partial = final.with_name(f"{final.name}.part")
    if final.is_file():
        return final
    _make_room(final.parent, download)
    tries = 0
    while True:
        before = _size(partial)
        try:
            _receive(download, partial, report)
            break
        except urllib.error.HTTPError as error:
            raise _refused(download, error) from error
        except _BROKEN as error:
            tries = 1 if _size(partial) > before else tries + 1
            if tries >= TRIES:
                raise _not_reached(download, partial, error) from error
            time.sleep(pause * tries)
    _check(download, partial)
    partial.replace(final)
    return final


def _receive(download: Download, partial: Path, report: Report) -> None:
    """What is missing of the file. Raises one of the above when the connection breaks off."""
    start = _size(partial)
    request = urllib.request.Request(download.address, headers={"User-Agent": "unseen"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not start:
            raise
        if error.headers.get("Content-Range", "").endswith(f"/{start}"):
            return  # all of it is there already
        partial.unlink()
        raise OSError("what had arrived earlier is no part of it") from error
    with answer:
        if start and not _continues(answer, start):
            start = 0  # this server sends all of it again
        total = start + int(answer.headers.get("Content-Length") or 0)
        with partial.open("ab" if start else "wb") as stream:
            while chunk := answer.read(CHUNK):
                stream.write(chunk)
                start += len(chunk)
                report(f"fetching {download.file}", start, total or download.about_bytes)
    if start < total:  # the connection ended early
        raise OSError(f"it ended after {start:,} of {total:,} bytes")


def _continues(answer: Any, start: int) -> bool:
    return answer.status == 206 and answer.headers.get("Content-Range", "").startswith(
        f"bytes {start}-"
    )


def _check(download: Download, partial: Path) -> None:
    """Wrong bytes are removed, so that the next try starts anew."""
    size = _size(partial)
    problem = ""
    if size == 0:
        problem = "it is empty"
    elif download.checksum:
        kind, _, expected = download.checksum.partition(":")
        with partial.open("rb") as stream:
            found = hashlib.file_digest(stream, kind).hexdigest()
        if found != expected:
            problem = f"its {kind} is {found}; {expected} is published"
    if problem:
        partial.unlink()
        raise DataError(
            f"{download.address} sent another file than the published one: {problem}. It was "
            "removed; try again, or fetch it yourself and use --root"
        )


def _size(file: Path) -> int:
    return file.stat().st_size if file.is_file() else 0


def _make_room(folder: Path, download: Download) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise DataError(f"{folder} cannot be written ({error}); choose another --root") from error
    needed = download.about_bytes * (2 if download.unpack_to is not None else 1)
    if needed > free:
        raise DataError(
            f"{download.file} needs {needed / 1e9:.1f} GB and {folder} has {free / 1e9:.1f} GB "
            "left; choose another --root"
        )


def _refused(download: Download, error: urllib.error.HTTPError) -> DataError:
    return DataError(
        f"{download.address} answers {error.code} ({error.reason}): the file may have moved. "
        "Fetch the dataset yourself and use --root"
    )


def _not_reached(download: Download, partial: Path, error: Exception) -> DataError:
    reason = getattr(error, "reason", None) or error
    kept = f"; the {_size(partial):,} bytes that arrived are kept" if _size(partial) else ""
    return DataError(
        f"{download.address} cannot be reached ({reason}){kept}. Is this machine connected? The "
        "same command continues; or fetch the dataset elsewhere and use --root"
    )
