"""A stand-in for the Hugging Face Hub on this machine, and a process that reads from it."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"
READ = """
import json, sys
from unseen.data.datasets.hub import Hub
from unseen.errors import DataError
for name in sys.argv[1:]:
    dataset = Hub(Hub.Config(name="hub", root=name), None)
    try:
        index = dataset.index()
        sizes = [len(dataset.content(position)) for position in range(len(index))]
        print(json.dumps({"classes": index.classes, "contents": sizes}))
    except DataError as error:
        print(json.dumps({"error": str(error)}))
"""


class HubServer:
    """Serves folders as datasets; `asked` lists the requests, `break_after` cuts answers off."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folders: dict[str, Path] = {}
        self.asked: list[tuple[str, str]] = []
        self.break_after: int | None = None
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                hub._answer(self)

            def do_HEAD(self) -> None:
                hub._answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def publish(self, name: str, folder: Path) -> None:
        self.folders[name] = folder

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def read(self, *names: str) -> list[dict[str, Any]]:
        """What the dataset `hub` finds there, in a process that knows no other Hub."""
        environment = os.environ | {
            "HF_ENDPOINT": f"http://127.0.0.1:{self.server.server_port}",
            "HF_HOME": str(self.home),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_ETAG_TIMEOUT": "2",
            "HF_HUB_DOWNLOAD_TIMEOUT": "2",
        }
        command = [sys.executable, "-c", READ, *names]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path.partition("?")[0]
        self.asked.append((request.command, path))
        for name, folder in self.folders.items():
            if path.startswith(f"/api/datasets/{name}"):
                return self._send_listing(request, name, folder, "/tree/" in path)
            prefix = f"/datasets/{name}/resolve/{COMMIT}/"
            if path.startswith(prefix):
                return self._send_file(request, folder / path.removeprefix(prefix))
        request.send_response(404)
        request.send_header("X-Error-Code", "RepoNotFound")
        request.send_header("Content-Length", "0")
        request.end_headers()
        return None

    def _send_listing(
        self, request: BaseHTTPRequestHandler, name: str, folder: Path, tree: bool
    ) -> None:
        files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
        names = [file.relative_to(folder).as_posix() for file in files]
        listing: Any = {"id": name, "sha": COMMIT, "siblings": [{"rfilename": n} for n in names]}
        if tree:
            listing = [
                {"type": "file", "path": n, "size": file.stat().st_size, "oid": _digest(file)}
                for n, file in zip(names, files, strict=True)
            ]
        data = json.dumps(listing).encode()
        request.send_response(200)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)

    def _send_file(self, request: BaseHTTPRequestHandler, file: Path) -> None:
        data = file.read_bytes()
        wanted = request.headers.get("Range", "bytes=0-")
        start = int(wanted.removeprefix("bytes=").partition("-")[0])
        request.send_response(206 if start else 200)
        request.send_header("ETag", f'"{_digest(file)}"')
        request.send_header("X-Repo-Commit", COMMIT)
        request.send_header("Content-Length", str(len(data) - start))
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        request.end_headers()
        if request.command == "HEAD":
            return
        rest = data[start:]
        if self.break_after is not None and len(rest) > self.break_after:
            rest = rest[: self.break_after]
            request.close_connection = True
        request.wfile.write(rest)


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.fixture
def hub_server(tmp_path: Path) -> Iterator[HubServer]:
    server = HubServer(tmp_path / "hub_home")
    yield server
    server.stop()
