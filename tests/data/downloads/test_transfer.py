"""Against a server on this machine that breaks off, lies about lengths and sends wrong bytes."""

import errno
import gzip
import hashlib
import io
import lzma
import os
import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.commands import commands_in
from tests.data.conftest import write_mnist
from tests.data.server import Server

from unseen.data import downloads
from unseen.data.downloads import Download, fetch_dataset, transfer
from unseen.errors import DataError
from unseen.settings import catalog

CONTENT = np.random.default_rng(0).bytes(700_000)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    server.files["/file.bin"] = CONTENT
    yield server
    server.stop()


def download(server: Server, **values: Any) -> Download:
    checksum = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
    values = {"checksum": checksum, **values}
    return Download(f"{server.address}/file.bin", "sub/file.bin", **values)


def get(server: Server, root: Path, **values: Any) -> Path:
    return transfer(download(server, **values), root, lambda *_: None, pause=0)


def test_whole_and_only_once(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    file = transfer(download(server), tmp_path, lambda *report: seen.append(report), pause=0)
    assert file == tmp_path / "sub" / "file.bin"
    assert file.read_bytes() == CONTENT
    assert [path.name for path in file.parent.iterdir()] == ["file.bin"]
    assert seen[-1] == ("fetching sub/file.bin", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert get(server, tmp_path) == file
    assert server.starts == [0]


@pytest.mark.parametrize(
    ("faults", "there", "checksum", "starts"),
    [
        (["breaks off", "breaks off"], b"", True, [0, 300_000, 600_000]),
        (["breaks off", "no ranges"], b"", True, [0, 300_000]),  # all of it is sent again
        (["announces more"], b"", True, [0, 700_000]),  # what is there turns out right
        (["no length"], b"", False, [0]),
        ([], CONTENT[:1000], True, [1000]),  # of an interrupted download
        ([], CONTENT, True, [700_000]),
        ([], CONTENT + CONTENT, False, [1_400_000, 0]),
    ],
)
def test_what_is_missing_is_fetched_in_the_end(
    server: Server, tmp_path: Path, faults: list[str], there: bytes, checksum: bool, starts: Any
) -> None:
    server.faults = faults
    part = tmp_path / "sub" / "file.bin.part"
    part.parent.mkdir()
    part.write_bytes(there)
    options = {} if checksum else {"checksum": ""}
    assert get(server, tmp_path, **options).read_bytes() == CONTENT
    assert server.starts == starts


@pytest.mark.parametrize("fault", ["wrong bytes", "announces less", "part of another file"])
def test_other_bytes_are_refused_and_removed(server: Server, tmp_path: Path, fault: str) -> None:
    server.faults = [fault]
    if fault == "part of another file":
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub" / "file.bin.part").write_bytes(bytes(1000))
    with pytest.raises(DataError, match="sent another file than the published one: its sha256 is"):
        get(server, tmp_path)
    assert list((tmp_path / "sub").iterdir()) == []
    assert get(server, tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("fault", "content", "options", "message"),
    [
        ("announces more", CONTENT[:-10], {}, "sent another file than the published one"),
        ("", b"", {"checksum": ""}, "it is empty"),
        ("gone", CONTENT, {}, r"answers 404 .*the file may have moved"),
        ("stopped", CONTENT, {}, r"cannot be reached .*Is this machine connected\?"),
        ("", CONTENT, {"about_bytes": 10**15}, r"needs 1000000\.0 GB and .*; choose another --ro"),
    ],
)
def test_what_cannot_be_fetched(
    server: Server, tmp_path: Path, fault: str, content: bytes, options: Any, message: str
) -> None:
    server.files["/file.bin"], server.faults = content, [fault]
    if fault == "stopped":
        server.stop()
    with pytest.raises(DataError, match=message):
        get(server, tmp_path, **options)


def archive_of(kind: str, name: str = "images/a.txt", content: bytes = b"content") -> bytes:
    buffer = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(name, content)
    else:
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture(params=["zip", "tar.gz"])
def archive(request: pytest.FixtureRequest, server: Server, monkeypatch: Any) -> str:
    """The name of the archive that a dataset now comes in."""
    name = f"file.{request.param}"
    wanted = Download(f"{server.address}/file", name, unpack_to="inner")
    monkeypatch.setitem(downloads.DOWNLOADS, "mnist", (wanted,))
    server.files["/file"] = archive_of(request.param)
    return name


def test_archives(server: Server, tmp_path: Path, archive: str) -> None:
    def fetch() -> Path:
        return fetch_dataset("mnist", tmp_path, lambda *_: None)

    assert (fetch() / "inner/images/a.txt").read_text() == "content"
    assert not (tmp_path / archive).exists()
    fetch()
    assert server.starts == [0]
    (tmp_path / f"{archive}.unpacked").unlink()
    server.files["/file"] = server.files["/file"][:-30]
    with pytest.raises(DataError, match=r"(?s)could not be unpacked .* and was removed; try again"):
        fetch()
    for name in ("../outside.txt", "/outside.txt"):
        server.files["/file"] = archive_of(archive.removeprefix("file."), name)
        with suppress(DataError):  # refused, or written below the folder
            fetch()
        (tmp_path / f"{archive}.unpacked").unlink(missing_ok=True)
        assert not (tmp_path / "outside.txt").exists()
        assert not Path("/outside.txt").exists()


def lzma_that_breaks_off() -> bytes:
    packed = lzma.compress(gzip.decompress(archive_of("tar.gz", content=CONTENT)))
    return packed[:400_000] + bytes(1000) + packed[401_000:]


def zip_with(place: int, value: int) -> bytes:
    """Change a field of the one file in a zip: its method (10), or its flags (8)."""
    data = bytearray(archive_of("zip"))
    entry = data.index(b"PK\x01\x02")
    data[place - 2] = data[entry + place] = value
    return bytes(data)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (lzma_that_breaks_off(), ""),
        (zip_with(10, 99), "compression"),
        (zip_with(8, 1), "password"),
        (archive_of("zip", content=bytes(10**5)), "more than 20 times its own bytes"),
        (archive_of("tar.gz", content=bytes(10**5)), "more than 20 times its own bytes"),
    ],
    ids=["damaged lzma", "unknown method", "encrypted", "zip bomb", "tar bomb"],
)
def test_archives_that_cannot_be_unpacked(tmp_path: Path, content: bytes, problem: str) -> None:
    archive = tmp_path / "images.archive"
    archive.write_bytes(content)
    with pytest.raises(DataError, match=rf"could not be unpacked \(.*{problem}.* was removed"):
        downloads._unpack(archive, tmp_path / "unpacked")
    assert not archive.exists()


def test_a_disk_that_is_full_while_unpacking_costs_no_archive(
    server: Server, tmp_path: Path, archive: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FMoW's has 54 GB: it is not fetched twice."""

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copyfileobj", full)
        patched.setattr(tarfile, "copyfileobj", full)
        with pytest.raises(DataError, match=r"No space left .*file.* is whole and stays"):
            fetch_dataset("mnist", tmp_path, lambda *_: None)
    assert (tmp_path / archive).read_bytes() == server.files["/file"]
    fetch_dataset("mnist", tmp_path, lambda *_: None)
    assert (tmp_path / "inner/images/a.txt").read_text() == "content"
    assert server.starts == [0]


def test_the_command(
    server: Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fetched to the cache, prepared and remembered; a set that cannot be fetched says so."""
    files: list[Download] = []
    for file in write_mnist(tmp_path, np.ones((40, 8, 8)), np.arange(40) % 10, 30).iterdir():
        server.files[f"/{file.name}"] = file.read_bytes()
        checksum = f"md5:{hashlib.md5(file.read_bytes()).hexdigest()}"
        files.append(Download(f"{server.address}/{file.name}", file.name, checksum))
    monkeypatch.setitem(downloads.DOWNLOADS, "mnist", tuple(files))
    run = commands_in(tmp_path, capsys, monkeypatch)
    for words in (("mnist", "--download"), ("mnist",), ("mnist", "--download")):
        answer = run("prepare", *words)
        assert "│ mnist  │     40 │" in answer.out, answer.err
    assert len(server.starts) == 4
    refused = run("prepare", "vlcs", "--download")
    assert refused.code == 2
    assert "vlcs cannot be fetched without an account or a click" in refused.err


def test_every_address_belongs_to_a_dataset() -> None:
    for name, files in downloads.DOWNLOADS.items():
        assert name in catalog.DATASETS
        assert len({file.file for file in files}) == len(files)
        for file in files:
            assert file.address.startswith(("https://", "http://"))
            kind, _, digits = file.checksum.partition(":")
            assert len(digits) == {"": 0, "md5": 32, "sha256": 64}[kind]
