"""A dataset from its public addresses: every file fetched, checked and unpacked, once."""

import shutil
import tarfile
import zipfile
import zlib
from pathlib import Path

from unseen.data.cache import cache_folder
from unseen.data.dataset import Dataset
from unseen.data.downloads.addresses import DOWNLOADS
from unseen.data.downloads.transfer import Report, transfer
from unseen.errors import DataError


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
