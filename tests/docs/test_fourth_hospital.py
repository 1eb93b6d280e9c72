"""The commands of the page about the fourth hospital, one after the other, in a folder of a new
user's: images, comparison, model, forecast, adaptation, exported file, service."""

import csv
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from tests.docs.markdown_files import ROOT, blocks

PAGE = ROOT / "docs/fourth-hospital.md"
SMALL = (
    "network.name=small_cnn network.pretrained=false network.image_size=16 optimizer.lr=3e-3 "
    "augment.flip=0 steps=60 images_per_domain=8 evaluate_every=30"
)
COMMANDS = [
    line for block in blocks(PAGE, "sh") for line in block.strip().splitlines() if line.strip()
]


def command(beginning: str) -> str:
    """The one that begins like this, with settings under which it takes seconds."""
    (found,) = (line for line in COMMANDS if line.startswith(beginning))
    trains = found.split()[1] in {"train", "compare", "auto"}
    small = SMALL if "auto" not in found else SMALL.replace("steps=60 ", "")
    return f"{found} {small}" if trains else found


class User:
    """Types commands into a shell, in a folder of her own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        programs = Path(sys.executable).parent
        self.environment = os.environ | {
            "UNSEEN_CACHE": str(home / "cache"),
            "OMP_NUM_THREADS": "1",
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "120",
        }

    def types(self, line: str) -> str:
        program = ["bash", "-c", line]
        done = subprocess.run(
            program,
            cwd=self.home,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> User:
    user = User(tmp_path_factory.mktemp("user"))
    shutil.copytree(ROOT / "examples", user.home / "examples")
    user.types(command("python examples/four_hospitals.py"))
    keep_some(user.home / "scans")
    return user


def keep_some(scans: Path) -> None:
    """Every sixth image: the commands are tested, not their accuracy."""
    for number, file in enumerate(sorted(scans.rglob("*.png"))):
        if number % 6:
            file.unlink()


def test_from_folders_to_a_model_an_answer_and_a_service(user: User) -> None:
    assert "west has no labels" in user.types(command("unseen prepare") + " --size 16")
    printed = user.types(command("unseen auto").replace("--minutes 20", "--minutes 0.1"))
    assert "At a new place expect" in printed
    west = sorted((user.home / "scans/west").glob("*.png"))
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


@pytest.mark.slow
def test_the_same_by_hand(user: User) -> None:
    printed = user.types(command("unseen compare").replace("--seeds 0,1", "--seeds 0"))
    assert "dmg" in printed
    results = [json.loads(f.read_text()) for f in user.home.glob("comparison/*/result.json")]
    assert {held for each in results for held in each["unseen_domains"]} == {
        "north", "south", "east",
    }  # fmt: skip
    user.types(command("unseen report"))
    assert (user.home / "comparison/report/report.html").is_file()
    user.types(command("unseen train folder/dmg"))
    user.types(command("unseen forecast deployed"))
    user.types(command("unseen train folder/aggregate"))
    assert "Best guess" in user.types(command("unseen forecast adapted"))


def watch_the_service(user: User, scan: Path) -> None:
    pytest.importorskip("starlette")
    words = shlex.split(command("unseen serve").replace("--port 8000", "--port 0"))
    with subprocess.Popen(
        words, cwd=user.home, env=user.environment, stderr=subprocess.PIPE, text=True
    ) as service:
        try:
            address = address_of(service)
            if shutil.which("curl"):
                answer = json.loads(user.types(asked("curl -F", scan, address)))
                assert len(answer["images"]) == 1
            assert command("curl http").endswith("/drift")
            with urllib.request.urlopen(f"{address}/drift") as drift:
                assert json.load(drift)
        finally:
            service.send_signal(signal.SIGTERM)
        assert service.wait(timeout=60) == 0


def address_of(service: "subprocess.Popen[str]") -> str:
    """What the service says when it has started."""
    assert service.stderr is not None
    for line in service.stderr:
        for word in line.split():
            if word.startswith("http://127.0.0.1:"):
                return word.rstrip("/.,;")
    raise AssertionError("the service said no address")


def asked(beginning: str, scan: Path, address: str) -> str:
    line = command(beginning).replace("http://127.0.0.1:8000", address)
    return line.replace("curl ", "curl -sS ").replace("scans/west/0000.png", str(scan))
