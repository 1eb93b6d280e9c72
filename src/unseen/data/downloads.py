"""A dataset from its public addresses: every file fetched, checked and unpacked, once."""

import hashlib
import http.client
import lzma
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from unseen.data.cache import cache_folder, writing_to
from unseen.data.dataset import FOLDERS
from unseen.data.decoding import ProgressCallback
from unseen.errors import DataError

CHUNK = 2**18
TIMEOUT = 60
TRIES = 4
MOST_TIMES = 20
"""An archive of pictures holds no more than so many times its own bytes."""

Member = TypeVar("Member", zipfile.ZipInfo, tarfile.TarInfo)


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


def transfer(download: Download, root: Path, report: ProgressCallback, pause: float = 2.0) -> Path:
    """Return the file, whole and checked. A partial one beside it is continued; after a few tries
    without a byte, or with wrong bytes, it stops with what to do."""
    final = root / download.file
    partial = final.with_name(f"{final.name}.part")
    if final.is_file():
        return final
    needed = download.about_bytes * (2 if download.unpack_to is not None else 1)
    with writing_to(final.parent, needed, download.file, "choose another --root"):
        partial.touch()
    tries, complete = 0, False
    while not complete:
        before = partial.stat().st_size
        try:
            complete = _receive(download, partial, report)
        except urllib.error.HTTPError as error:
            raise DataError(
                f"{download.address} answers {error.code} ({error.reason}): the file may have "
                "moved. Fetch the dataset yourself and use --root"
            ) from error
        except (OSError, http.client.HTTPException) as error:  # it fails, stalls or breaks off
            arrived = partial.stat().st_size
            tries = 1 if arrived > before else tries + 1
            if tries >= TRIES:
                raise DataError(
                    f"{download.address} cannot be reached ({getattr(error, 'reason', error)}); "
                    f"the {arrived:,} bytes that arrived are kept. Is this machine connected? The "
                    "same command continues; or fetch the dataset elsewhere and use --root"
                ) from error
            time.sleep(pause * tries)
    _check(download, partial)
    partial.replace(final)
    return final


def _receive(download: Download, partial: Path, report: ProgressCallback) -> bool:
    """Receive what is missing of the file. Raises OSError when the connection breaks off."""
    start = partial.stat().st_size
    headers = {"User-Agent": "unseen"} | ({"Range": f"bytes={start}-"} if start else {})
    request = urllib.request.Request(download.address, headers=headers)
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not start:
            raise
        if error.headers.get("Content-Range", "").endswith(f"/{start}"):
            return True  # all of it is there already
        partial.write_bytes(b"")
        raise OSError("what had arrived earlier is no part of it") from error
    with answer:
        continues = answer.headers.get("Content-Range", "").startswith(f"bytes {start}-")
        if answer.status != 206 or not continues:
            start = 0  # this server sends all of it, maybe again
        total = start + int(answer.headers.get("Content-Length") or 0)
        doing = f"fetching {download.file}"
        doing += "" if download.checksum else " (no checksum is published)"
        with partial.open("ab" if start else "wb") as stream:
            while chunk := answer.read(CHUNK):
                stream.write(chunk)
                start += len(chunk)
                report(doing, start, total or download.about_bytes)
    if start < total:  # the connection ended early
        raise OSError(f"it ended after {start:,} of {total:,} bytes")
    return True


def _check(download: Download, partial: Path) -> None:
    """Remove wrong bytes, so that the next try starts anew."""
    kind, _, expected = download.checksum.partition(":")
    with partial.open("rb") as stream:
        digest = hashlib.file_digest(stream, kind).hexdigest() if kind else ""
    if digest != expected or not partial.stat().st_size:
        problem = f"its {kind} is {digest}; {expected} is published" if kind else "it is empty"
        partial.unlink()
        raise DataError(
            f"{download.address} sent another file than the published one: {problem}. It was "
            "removed; try again, or fetch it yourself and use --root"
        )


def _with_md5(site: str, folder: str, checksums: str) -> tuple[Download, ...]:
    """Declare files of a site with their MD5 checksums, and the folder that they go to."""
    words = checksums.split()
    return tuple(
        Download(f"{site}/{file}", f"{folder}{file}", f"md5:{checksum}")
        for file, checksum in zip(words[::2], words[1::2], strict=True)
    )


def _mnist(folder: str = "") -> tuple[Download, ...]:
    checksums = """
        train-images-idx3-ubyte.gz f68b3c2dcbeaaa9fbdd348bbdeb94873
        train-labels-idx1-ubyte.gz d53e105ee54ea40749a09fcbcd1e9432
        t10k-images-idx3-ubyte.gz 9fb629c4189551a2d022fa330f9573f3
        t10k-labels-idx1-ubyte.gz ec29112dd5afa0611ce80d1b7f02629c"""
    return _with_md5("https://ossci-datasets.s3.amazonaws.com/mnist", folder, checksums)


def _domainnet() -> tuple[Download, ...]:
    site, files = "http://csr.bu.edu/ftp/visda/2019/multi-source", list[Download]()
    archives = "groundtruth/clipart infograph groundtruth/painting quickdraw real sketch"
    for archive in archives.split():
        domain = archive.rpartition("/")[2]
        lists = (f"{domain}_train.txt", f"{domain}_test.txt")
        files += [Download(f"{site}/domainnet/txt/{file}", file) for file in lists]
        files.append(Download(f"{site}/{archive}.zip", f"{domain}.zip", unpack_to=""))
    return tuple(files)


def _wilds(bundle: str, name: str, size: int) -> tuple[Download, ...]:
    address = f"https://worksheets.codalab.org/rest/bundles/{bundle}/contents/blob/"
    return (Download(address, f"{name}.tar.gz", about_bytes=size, unpack_to=""),)


_BSDS500 = Download(
    "http://www.eecs.berkeley.edu/Research/Projects/CS/vision/grouping/BSR/BSR_bsds500.tgz",
    "BSR_bsds500.tgz",
    about_bytes=70_763_455,
    unpack_to="",
)
_USPS = _with_md5(
    "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass",
    "USPS/",
    "usps.bz2 ec16c51db3855ca6c91edd34d0e9b197 usps.t.bz2 8ea070ee2aca1ac39742fdd1ef5ed118",
)
_SVHN = _with_md5(
    "http://ufldl.stanford.edu/housenumbers",
    "SVHN/",
    """train_32x32.mat e26dedcc434d2e4c54c9b2d4a06d8373
    test_32x32.mat eb5a983be6a315427106f1b164d9cef3""",
)

DOWNLOADS: dict[str, tuple[Download, ...]] = {
    **dict.fromkeys(("mnist", "rotated_mnist", "colored_mnist"), _mnist()),
    "mnist_m": (*_mnist("MNIST/"), _BSDS500),
    "digits_5": (*_mnist("MNIST/"), _BSDS500, *_USPS, *_SVHN),
    "domainnet": _domainnet(),
    "camelyon17": _wilds("0xe45e15f39fb54e9d9e919556af67aabe", "camelyon17", 10_658_709_504),
    "iwildcam": _wilds("0x6313da2b204647e79a14b468131fcd64", "iwildcam", 11_957_420_032),
    "fmow": _wilds("0xaec91eb7c9d548ebb15e1b5e60f966ab", "fmow", 53_893_324_800),
}


def fetch_dataset(name: str, root: Path | None, report: ProgressCallback) -> Path:
    """Return the folder with the dataset, `root` or one in the cache. What is there stays."""
    downloads = DOWNLOADS.get(name)
    if not downloads:
        raise DataError(
            f"{name} cannot be fetched without an account or a click; get it yourself (docs/data.md"
            f" says where), then run `unseen prepare {name} --root DIR`. "
            f"Can be fetched: {', '.join(sorted(DOWNLOADS))}"
        )
    # datasets that look for several folders below one have a folder of their own in the cache
    below = name if FOLDERS[name] == "." else FOLDERS[name]
    folder = root.expanduser() if root else cache_folder() / "datasets" / below
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


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive; nothing is written outside of the folder, whatever the archive says. A
    damaged one is removed; one that only the disk has no room for is kept."""
    most = MOST_TIMES * archive.stat().st_size
    otherwise = f"{archive} is whole and stays; make room, and the same command continues"
    with writing_to(folder, 0, archive.name, otherwise):
        try:
            if zipfile.is_zipfile(archive):
                with zipfile.ZipFile(archive) as opened:  # it leaves out roots and '..' in names
                    opened.extractall(folder, _no_more_than(most, opened.infolist()))
            else:
                with tarfile.open(archive) as opened:
                    opened.extractall(folder, _no_more_than(most, opened), filter="data")
                    while opened.fileobj and opened.fileobj.read(CHUNK):
                        pass  # the check of all bytes is at the very end
        except _DAMAGED as error:
            if isinstance(error, OSError) and error.errno is not None:  # the disk's, no decoder's
                raise
            archive.unlink()
            raise DataError(
                f"{archive} could not be unpacked ({error}) and was removed; try again"
            ) from error


_DAMAGED = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError),
    *(RuntimeError, ValueError),  # a way of packing that is not known, such as a password
)


def _no_more_than(most: int, members: Iterable[Member]) -> Iterator[Member]:
    """Yield the members of an archive; refuse it when they are larger together."""
    for member in members:
        most -= member.file_size if isinstance(member, zipfile.ZipInfo) else member.size
        if most < 0:
            raise ValueError(f"it holds more than {MOST_TIMES} times its own bytes")
        yield member
