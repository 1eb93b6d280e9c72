"""A dataset from its public addresses: every file fetched, checked and unpacked, once."""

import hashlib
import http.client
import shutil
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from unseen.data.cache import cache_folder
from unseen.data.dataset import Dataset
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


_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist"
_SVHN = "http://ufldl.stanford.edu/housenumbers"
_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass"
_DOMAINNET = "http://csr.bu.edu/ftp/visda/2019/multi-source"
_WILDS = "https://worksheets.codalab.org/rest/bundles"
_PHOTOGRAPHS = "http://www.eecs.berkeley.edu/Research/Projects/CS/vision/grouping/BSR"


def _mnist(folder: str = "") -> tuple[Download, ...]:
    checksums = {
        "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    }
    return tuple(
        Download(f"{_MNIST}/{file}", f"{folder}{file}", f"md5:{checksum}")
        for file, checksum in checksums.items()
    )


def _domainnet() -> tuple[Download, ...]:
    archives = (
        *("groundtruth/clipart", "infograph", "groundtruth/painting"),
        *("quickdraw", "real", "sketch"),
    )
    files: list[Download] = []
    for archive in archives:
        domain = archive.rpartition("/")[2]
        for part in ("train", "test"):
            file = f"{domain}_{part}.txt"
            files.append(Download(f"{_DOMAINNET}/domainnet/txt/{file}", file))
        files.append(Download(f"{_DOMAINNET}/{archive}.zip", f"{domain}.zip", unpack_to=""))
    return tuple(files)


def _wilds(bundle: str, name: str, size: int) -> tuple[Download, ...]:
    address = f"{_WILDS}/{bundle}/contents/blob/"
    return (Download(address, f"{name}.tar.gz", about_bytes=size, unpack_to=""),)


_USPS = (
    Download(f"{_LIBSVM}/usps.bz2", "USPS/usps.bz2", "md5:ec16c51db3855ca6c91edd34d0e9b197"),
    Download(f"{_LIBSVM}/usps.t.bz2", "USPS/usps.t.bz2", "md5:8ea070ee2aca1ac39742fdd1ef5ed118"),
)
_HOUSES = tuple(
    Download(f"{_SVHN}/{file}", f"SVHN/{file}", f"md5:{checksum}")
    for file, checksum in (
        ("train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
        ("test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),
    )
)
_BSDS500 = Download(
    f"{_PHOTOGRAPHS}/BSR_bsds500.tgz", "BSR_bsds500.tgz", about_bytes=70_763_455, unpack_to=""
)

DOWNLOADS: dict[str, tuple[Download, ...]] = {
    "mnist": _mnist(),
    "rotated_mnist": _mnist(),
    "colored_mnist": _mnist(),
    "mnist_m": (*_mnist("MNIST/"), _BSDS500),
    "digits_5": (*_mnist("MNIST/"), _BSDS500, *_USPS, *_HOUSES),
    "domainnet": _domainnet(),
    "camelyon17": _wilds("0xe45e15f39fb54e9d9e919556af67aabe", "camelyon17", 10_658_709_504),
    "iwildcam": _wilds("0x6313da2b204647e79a14b468131fcd64", "iwildcam", 11_957_420_032),
    "fmow": _wilds("0xaec91eb7c9d548ebb15e1b5e60f966ab", "fmow", 53_893_324_800),
}


def fetch_dataset(name: str, kind: type[Dataset], root: Path | None, report: Report) -> Path:
    """The folder with the dataset: `root`, or one in the cache. What is there is not fetched."""
    downloads = DOWNLOADS.get(name)
    if not downloads:
        raise DataError(
            f"{name} cannot be fetched without an account or a click; get it yourself (docs/data.md"
            f" says where), then run `unseen prepare {name} --root DIR`. "
            f"Can be fetched: {', '.join(sorted(DOWNLOADS))}"
        )
    folder = root.expanduser() if root else cache_folder() / "datasets" / _folder_name(kind, name)
    for download in downloads:
        unpacked = folder / f"{download.file}.unpacked"
        if download.unpack_to is None:
            transfer(download, folder, report)
        elif not unpacked.is_file():
            archive = transfer(download, folder, report)
            _unpack(archive, folder / download.unpack_to)
            unpacked.touch()
            archive.unlink()
    return folder


def _folder_name(kind: type[Dataset], name: str) -> str:
    """Datasets that look for several folders below one have a folder of their own here."""
    return name if kind.folder_name in {None, "."} else str(kind.folder_name)


def _unpack(archive: Path, folder: Path) -> None:
    """Nothing is written outside of the folder, whatever the archive says."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if zipfile.is_zipfile(archive):
            _unpack_zip(archive, folder)
        else:
            with tarfile.open(archive) as opened:
                opened.extractall(folder, filter="data")
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        archive.unlink()
        raise DataError(
            f"{archive} could not be unpacked ({error}) and was removed; try again"
        ) from error


def _unpack_zip(archive: Path, folder: Path) -> None:
    inside = folder.resolve()
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist():
            target = (folder / member.filename).resolve()
            if not target.is_relative_to(inside):
                raise OSError(f"{member.filename} leads out of it")
            if member.is_dir():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with opened.open(member) as source, target.open("wb") as stream:
                shutil.copyfileobj(source, stream)
