"""Servers on this machine that send files: one that lies and breaks off, and one like the Hugging
Face Hub."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

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
Request = BaseHTTPRequestHandler


class Server:
    """Sends `files`; each request takes the next of `faults`, or none."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.faults: list[str] = []
        self.starts: list[int] = []
        answer: Callable[[Request], None] = self.answer

        class Handler(Request):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                answer(self)

            do_HEAD = do_GET

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def answer(self, request: Request) -> None:
        fault = self.faults.pop(0) if self.faults else ""
        data = self.files.get(request.path)
        if data is None or fault == "gone":
            request.send_error(404)
        else:
            self.send(request, data, fault)

    def send(
        self,
        request: Request,
        data: bytes,
        fault: str = "",
        most: int | None = None,
        **headers: str,
    ) -> None:
        """Send a file from where it is asked for, no more than `most` bytes of it."""
        wanted = request.headers.get("Range", "bytes=0-")
        start = int(wanted.removeprefix("bytes=").partition("-")[0])
        self.starts.append(start)
        if start and start >= len(data):
            request.send_response(416)
            request.send_header("Content-Range", f"bytes */{len(data)}")
            request.end_headers()
            return
        start = 0 if fault == "no ranges" else start
        rest = bytes(len(data) - start) if fault == "wrong bytes" else data[start:]
        announced = {"announces more": len(rest) + 99, "announces less": len(rest) - 99}
        request.send_response(206 if start else 200)
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        if fault != "no length":
            request.send_header("Content-Length", str(announced.get(fault, len(rest))))
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        most = 300_000 if fault == "breaks off" else most
        if request.command == "GET":
            request.wfile.write(rest[:most])
            request.close_connection |= most is not None and len(rest) > most


class HubServer(Server):
    """Serves `folders` as datasets; `asked` lists the requests, `most` cuts answers off."""

    def __init__(self, home: Path) -> None:
        super().__init__()
        self.home, self.folders = home, dict[str, Path]()
        self.asked: list[tuple[str, str]] = []
        self.most: int | None = None

    def read(self, *names: str) -> list[dict[str, Any]]:
        """What the dataset `hub` finds there, in a process that knows no other Hub."""
        environment = os.environ | {
            "HF_ENDPOINT": self.address,
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

    def answer(self, request: Request) -> None:
        path = request.path.partition("?")[0]
        self.asked.append((request.command, path))
        for name, folder in self.folders.items():
            start = f"/datasets/{name}/resolve/{COMMIT}/"
            if path.startswith(f"/api/datasets/{name}"):
                data = json.dumps(self._listing(name, folder, "/tree/" in path)).encode()
                return self.send(request, data, Content_Type="application/json")
            if path.startswith(start):
                file = folder / path.removeprefix(start)
                about = {"ETag": f'"{_digest(file)}"', "X_Repo_Commit": COMMIT}
                return self.send(request, file.read_bytes(), most=self.most, **about)
        request.send_response(404)
        request.send_header("X-Error-Code", "RepoNotFound")
        request.send_header("Content-Length", "0")
        request.end_headers()
        return None

    def _listing(self, name: str, folder: Path, tree: bool) -> Any:
        files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
        names = [file.relative_to(folder).as_posix() for file in files]
        if not tree:
            return {"id": name, "sha": COMMIT, "siblings": [{"rfilename": n} for n in names]}
        return [
            {"type": "file", "path": n, "size": file.stat().st_size, "oid": _digest(file)}
            for n, file in zip(names, files, strict=True)
        ]


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
