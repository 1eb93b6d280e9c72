"""Against a server on this machine that breaks off, lies about lengths and sends wrong bytes."""

import errno
import gzip
import hashlib
import io
import lzma
import os
import shutil
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.commands import commands_in
from tests.data.datasets.idx_files import idx

from unseen.data import downloads
from unseen.data.downloads import Download, transfer
from unseen.errors import DataError
from unseen.settings import catalog

CONTENT = np.random.default_rng(0).bytes(700_000)


class Server:
    """Sends `files`; each request takes the next of `faults`, or none."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {"/file.bin": CONTENT}
        self.faults: list[str] = []
        self.starts: list[int] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer._answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        fault = self.faults.pop(0) if self.faults else ""
        data = self.files.get(request.path)
        if data is None or fault == "gone":
            request.send_error(404)
            return
        wanted = request.headers.get("Range", "bytes=0-")
        start = int(wanted.removeprefix("bytes=").partition("-")[0])
        self.starts.append(start)
        if start and start >= len(data):
            request.send_response(416)
            request.send_header("Content-Range", f"bytes */{len(data)}")
            request.end_headers()
            return
        if fault == "no ranges":
            start = 0
        if fault == "wrong bytes":
            data = bytes(len(data))
        rest = data[start:]
        announced = {"announces more": len(rest) + 99, "announces less": len(rest) - 99}
        request.send_response(206 if start else 200)
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        if fault != "no length":
            request.send_header("Content-Length", str(announced.get(fault, len(rest))))
        request.end_headers()
        request.wfile.write(rest[: 300_000 if fault == "breaks off" else None])


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
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


def test_what_breaks_off_is_continued(server: Server, tmp_path: Path) -> None:
    server.faults = ["breaks off", "breaks off"]
    assert get(server, tmp_path).read_bytes() == CONTENT
    assert server.starts == [0, 300_000, 600_000]


@pytest.mark.parametrize(
    ("there", "checksum", "starts"),
    [
        (CONTENT[:1000], True, [1000]),
        (CONTENT, True, [len(CONTENT)]),
        (CONTENT + CONTENT, False, [2 * len(CONTENT), 0]),
    ],
)
def test_what_an_interrupted_download_left_is_continued_later(
    server: Server, tmp_path: Path, there: bytes, checksum: bool, starts: list[int]
) -> None:
    """In part, in full, or longer than the file."""
    part = tmp_path / "sub" / "file.bin.part"
    part.parent.mkdir()
    part.write_bytes(there)
    options = {} if checksum else {"checksum": ""}
    assert get(server, tmp_path, **options).read_bytes() == CONTENT
    assert server.starts == starts


def test_a_server_without_ranges_sends_all_of_it_again(server: Server, tmp_path: Path) -> None:
    server.faults = ["breaks off", "no ranges"]
    assert get(server, tmp_path).read_bytes() == CONTENT


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


def test_a_length_that_never_comes(server: Server, tmp_path: Path) -> None:
    """The last bytes are asked for again; there are none, and what is there turns out right."""
    server.faults = ["announces more"]
    assert get(server, tmp_path).read_bytes() == CONTENT
    server.faults = ["announces more"]
    server.files["/file.bin"] = CONTENT[:-10]
    with pytest.raises(DataError, match="sent another file than the published one"):
        get(server, tmp_path / "again")


def test_without_a_length_or_a_checksum(server: Server, tmp_path: Path) -> None:
    server.faults = ["no length"]
    assert get(server, tmp_path, checksum="").read_bytes() == CONTENT
    server.files["/file.bin"] = b""
    with pytest.raises(DataError, match="it is empty"):
        get(server, tmp_path / "empty", checksum="")


def test_clear_words_without_a_network(server: Server, tmp_path: Path) -> None:
    server.faults = ["gone"]
    with pytest.raises(DataError, match=r"answers 404 .*the file may have moved"):
        get(server, tmp_path)
    wanted = download(server)
    server.stop()
    with pytest.raises(DataError, match=r"cannot be reached .*Is this machine connected\?"):
        transfer(wanted, tmp_path, lambda *_: None, pause=0)


def test_a_disk_without_room(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"needs 1000000\.0 GB and .* left; choose another --root"):
        get(server, tmp_path, about_bytes=10**15)


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


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_archives(
    server: Server, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = Download(f"{server.address}/file", f"file.{kind}", unpack_to="inner")
    monkeypatch.setitem(downloads.DOWNLOADS, "mnist", (wanted,))
    server.files["/file"] = archive_of(kind)

    def fetch() -> Path:
        return downloads.fetch_dataset("mnist", tmp_path, lambda *_: None)

    assert (fetch() / "inner/images/a.txt").read_text() == "content"
    assert not (tmp_path / f"file.{kind}").exists()
    fetch()
    assert server.starts == [0]
    (tmp_path / f"file.{kind}.unpacked").unlink()
    server.files["/file"] = server.files["/file"][:-30]
    with pytest.raises(DataError, match=r"(?s)could not be unpacked .* and was removed; try again"):
        fetch()
    for name in ("../outside.txt", "/outside.txt"):
        server.files["/file"] = archive_of(kind, name)
        with suppress(DataError):  # refused, or written below the folder
            fetch()
        (tmp_path / f"file.{kind}.unpacked").unlink(missing_ok=True)
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


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_a_disk_that_is_full_while_unpacking_costs_no_archive(
    server: Server, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FMoW's has 54 GB: it is not fetched twice."""

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    wanted = Download(f"{server.address}/file", f"file.{kind}", unpack_to="")
    monkeypatch.setitem(downloads.DOWNLOADS, "mnist", (wanted,))
    server.files["/file"] = archive_of(kind)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copyfileobj", full)
        patched.setattr(tarfile, "copyfileobj", full)
        with pytest.raises(DataError, match=r"No space left .*file.* is whole and stays"):
            downloads.fetch_dataset("mnist", tmp_path, lambda *_: None)
    assert (tmp_path / f"file.{kind}").read_bytes() == server.files["/file"]
    downloads.fetch_dataset("mnist", tmp_path, lambda *_: None)
    assert (tmp_path / "images/a.txt").read_text() == "content"
    assert server.starts == [0]


def test_the_command(
    server: Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fetched to the cache, prepared and remembered; a set that cannot be fetched says so."""
    files: list[Download] = []
    for part, n in (("train", 30), ("t10k", 10)):
        for kind, values in (
            ("images-idx3", np.ones((n, 8, 8))),
            ("labels-idx1", np.arange(n) % 10),
        ):
            name = f"{part}-{kind}-ubyte"
            server.files[f"/{name}"] = idx(values.astype(np.uint8))
            checksum = hashlib.md5(server.files[f"/{name}"]).hexdigest()
            files.append(Download(f"{server.address}/{name}", name, f"md5:{checksum}"))
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
