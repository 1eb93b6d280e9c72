"""What tiny commands pass: files and functions of the package, and those of one training step.

Each command runs in a process of its own with the package of the tree that is asked about.
"""

import inspect
import json
import os
import runpy
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tests.house import HERE, code_lines
from tests.tiny import TINY, save_trunk

STEP = "one training step of DMG"
COMMANDS = {  # each in a process of its own, in this order: predictions use the run of the first
    "train digits/dmg": "train digits/dmg {tiny}",
    "compare digits": "compare digits --methods aggregate,dmg --unseen plain --workers 0 {tiny}",
    "predict of one image": "predict {run} {image}",
    "stacked sweep": "sweep {sweep} --workers 0",
}


def trace(root: Path) -> dict[str, str]:
    """Files and functions that tiny commands pass, and the files of one training step."""
    found = dict[str, str]()
    with tempfile.TemporaryDirectory() as name:
        words = _prepare(Path(name))
        for command, pattern in COMMANDS.items():
            words["run"] = next(Path(name).glob("runs/*-dmg-*"), "")
            files, functions, step = _passed_by(root, Path(name), pattern.format(**words))
            found[f"{command}: files / functions"] = f"{len(files)} / {functions}"
            if step:
                size = sum(len(Path(file).read_text().splitlines()) for file in step)
                code = sum(code_lines(Path(file)) for file in step)
                found[f"{STEP}: files / lines (code)"] = f"{len(step)} / {size} ({code})"
    return found


def _prepare(folder: Path) -> dict[str, Any]:
    """The words that the commands are filled in with: settings, an image, a sweep."""
    from PIL import Image

    tiny = TINY | {"steps": 12} | dict.fromkeys(("evaluate_every", "checkpoint_every"), 12)
    tiny["log_every"] = 12
    Image.new("RGB", (32, 32)).save(folder / "image.png")
    save_trunk(folder / "trunk.safetensors")
    frozen = {
        "network.freeze_until": "fc1",
        "network.pretrained": str(folder / "trunk.safetensors"),
    }
    settings = {k: v for k, v in tiny.items() if k != "data.unseen_domain"} | frozen
    sweep = {"datasets": "digits", "methods": "aggregate", "unseen": "plain", "seeds": [0, 1, 2]}
    (folder / "heads.yaml").write_text(json.dumps(sweep | {"settings": settings}))
    words = " ".join(f"{key}={value}" for key, value in tiny.items())
    return {"tiny": words, "image": folder / "image.png", "sweep": folder / "heads.yaml"}


def _passed_by(root: Path, folder: Path, words: str) -> tuple[list[str], int, list[str]]:
    """Run a command of a tree in a process of its own, and count there."""
    answer = folder / "passed.json"
    chosen = {"PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": "1"}
    chosen |= {"UNSEEN_CACHE": str(folder / "cache")}
    runs = [] if words.startswith("predict") else ["--runs", str(folder / "runs")]
    call = [sys.executable, "-m", "tests.house_trace", str(answer), *words.split(), *runs]
    ran = subprocess.run(
        call, cwd=HERE, env=os.environ | chosen, capture_output=True, text=True, check=False
    )
    if ran.returncode:
        sys.exit(f"unseen {words}\n{ran.stdout}{ran.stderr}")
    return json.loads(answer.read_text())


class Tracer:
    """Notes the functions of the package that are called, in all threads."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.called = dict[int, CodeType]()
        self.losses = 0
        self.in_step = dict[int, CodeType]()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(self.package):
            return
        if not code.co_flags & inspect.CO_OPTIMIZED:  # the body of a module or class
            return
        self.called[id(code)] = code
        if code.co_name == "loss" and Path(code.co_filename).stem == "dmg":
            self.losses += 1
        if 3 <= self.losses < 8:  # far from the first and the last step
            self.in_step[id(code)] = code


def _count_passed(answer: Path, words: list[str]) -> None:
    """Run a command in this process, and write down what it passed."""
    import torch  # noqa: F401  before the tracer, which would slow it down

    import unseen

    tracer = Tracer(str(Path(unseen.__file__).parent))
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    sys.argv = ["unseen", *words]
    try:
        runpy.run_module("unseen", run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise
    finally:
        sys.setprofile(None)
    files, step = (
        sorted({code.co_filename for code in found.values()})
        for found in (tracer.called, tracer.in_step)
    )
    functions = [code for code in tracer.called.values() if not code.co_name.startswith("<")]
    answer.write_text(json.dumps([files, len(functions), step]))


if __name__ == "__main__":
    _count_passed(Path(sys.argv[1]), sys.argv[2:])
