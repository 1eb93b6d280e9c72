"""What a new user does first: the commands of the page about the fourth hospital, one after the
other, in a folder of her own; and the notebooks of the tutorials, from top to bottom."""

import csv
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from tests.docs.markdown_files import ROOT, blocks

PROGRAMS = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
BOOKS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))
SMALL = (
    "network.name=small_cnn network.pretrained=false network.image_size=16 optimizer.lr=3e-3 "
    "augment.flip=0 images_per_domain=8 evaluate_every=30"
)
COMMANDS = [
    line
    for block in blocks(ROOT / "docs/fourth-hospital.md", "sh")
    for line in block.strip().splitlines()
]


def command(beginning: str) -> str:
    """The one that begins like this, with settings under which it takes seconds."""
    (found,) = (line for line in COMMANDS if line.startswith(beginning))
    if found.split()[1] in {"train", "compare"}:
        return f"{found} {SMALL} steps=60"
    return f"{found} {SMALL}" if found.startswith("unseen auto") else found


class User:
    """Types commands into a shell, in a folder of her own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        own = {"UNSEEN_CACHE": str(home / "cache"), "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
        self.environment = os.environ | own | {"PATH": PROGRAMS}

    def types(self, line: str) -> str:
        where = {"cwd": self.home, "env": self.environment}
        program = ["bash", "-c", line]
        done = subprocess.run(program, **where, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> User:
    """With every sixth image: the commands are tested, not their accuracy."""
    user = User(tmp_path_factory.mktemp("user"))
    shutil.copytree(ROOT / "examples", user.home / "examples")
    user.types(command("python examples/four_hospitals.py"))
    for number, file in enumerate(sorted((user.home / "scans").rglob("*.png"))):
        if number % 6:
            file.unlink()
    return user


def test_from_folders_to_a_model_an_answer_and_a_service(user: User) -> None:
    assert "west has no labels" in user.types(command("unseen prepare") + " --size 16")
    printed = user.types(command("unseen auto").replace("--minutes 20", "--minutes 0.1"))
    west = sorted((user.home / "scans/west").glob("*.png"))
    assert "At a new place expect" in printed
    assert f"On the {len(west)} new images expect" in printed
    assert (user.home / "best/auto.html").is_file()
    user.types(command("unseen forecast best"))
    assert "<html" in (user.home / "forecast.html").read_text(encoding="utf-8")
    user.types(command("unseen predict best"))
    assert len(list((user.home / "looked_at").glob("*.png"))) == len(west)
    new = user.home / "new_scans/west/3"
    new.mkdir(parents=True)
    shutil.copy(west[0], new)
    user.types(command("unseen evaluate"))
    pytest.importorskip("onnxruntime")
    user.types(command("unseen export"))
    user.types(command("unseen predict hospital"))
    with (user.home / "predictions.csv").open(encoding="utf-8") as answers:
        assert len(list(csv.DictReader(answers))) == len(west)
    watch_the_service(user, west[0])


def watch_the_service(user: User, scan: Path) -> None:
    pytest.importorskip("starlette")
    words = shlex.split(command("unseen serve").replace("--port 8000", "--port 0"))
    with subprocess.Popen(
        words, cwd=user.home, env=user.environment, stderr=subprocess.PIPE, text=True
    ) as service:
        try:
            assert service.stderr is not None
            said = (re.search(r"http://127\.0\.0\.1:\d+", line) for line in service.stderr)
            address = next(found[0] for found in said if found)
            if shutil.which("curl"):
                asked = command("curl -F").replace("http://127.0.0.1:8000", address)
                asked = asked.replace("scans/west/0000.png", str(scan))
                answer = json.loads(user.types(asked.replace("curl ", "curl -sS ")))
                assert len(answer["images"]) == 1
            assert command("curl http").endswith("/drift")
            with urllib.request.urlopen(f"{address}/drift") as drift:
                assert json.load(drift)
        finally:
            service.send_signal(signal.SIGTERM)
        assert service.wait(timeout=60) == 0


@pytest.mark.slow
def test_the_same_by_hand(user: User) -> None:
    assert "dmg" in user.types(command("unseen compare").replace("--seeds 0,1", "--seeds 0"))
    results = [json.loads(f.read_text()) for f in user.home.glob("comparison/*/result.json")]
    left_out = {domain for each in results for domain in each["unseen_domains"]}
    assert left_out == {"north", "south", "east"}
    user.types(command("unseen report"))
    assert (user.home / "comparison/report/report.html").is_file()
    user.types(command("unseen train folder/dmg"))
    user.types(command("unseen forecast deployed"))
    user.types(command("unseen train folder/aggregate"))
    assert "Best guess" in user.types(command("unseen forecast adapted"))


@pytest.mark.parametrize("file", BOOKS, ids=lambda file: file.stem)
@pytest.mark.filterwarnings("default")
def test_a_tutorial_runs(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a fifth of the steps. It is stored without outputs, and its links lead somewhere."""
    nbformat, nbclient = map(pytest.importorskip, ("nbformat", "nbclient"))
    book = nbformat.read(file, as_version=4)
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in book.cells)
    text = "".join(cell.source for cell in book.cells if cell.cell_type == "markdown")
    links = re.findall(r"\]\(([^)#]+)", text)
    assert [link for link in links if not (file.parent / link).exists()] == []
    for cell in book.cells:
        cell.source = re.sub(r"(steps\"?[=:] ?)100", r"\g<1>20", cell.source)
    monkeypatch.setenv("PATH", PROGRAMS)
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(book, timeout=600, kernel_name="python3", resources=where).execute()
    outputs = [each for cell in book.cells for each in cell.get("outputs", ())]
    printed = [each["text"] for each in outputs if each["output_type"] == "stream"]
    assert not re.search(r"\x1b|\r|Warning", "".join(printed)), "progress is lines of text"
    shown = {kind for each in outputs for kind in each.get("data", ())}
    assert shown & {"text/html", "image/svg+xml", "text/plain"}
