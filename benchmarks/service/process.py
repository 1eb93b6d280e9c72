"""`unseen serve` in a process of its own, and the models that are served."""

import contextlib
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.workload import CLASSES, DOMAINS, settings
from unseen.data.batch import Task
from unseen.forecast.profile import STATISTICS, Profile
from unseen.serve.export import export
from unseen.serve.model import Model
from unseen.training.build import build_method

SIZE = 32


class Running(NamedTuple):
    address: str
    process: subprocess.Popen[str]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def read(self, path: str) -> str:
        with urllib.request.urlopen(self.address + path, timeout=60) as answer:
            return answer.read().decode()

    def resident_bytes(self) -> int:
        found = re.search(r"^process_resident_memory_bytes (\S+)$", self.read("/metrics"), re.M)
        assert found
        return int(float(found[1]))


def running(model: Path, *options: str) -> contextlib.AbstractContextManager[Running]:
    """The service, on a free port."""
    return _started("unseen", "serve", str(model), "--port", "0", *options)


def running_bare(model: Path) -> contextlib.AbstractContextManager[Running]:
    """What one would write oneself."""
    return _started("benchmarks.service.bare", str(model))


@contextlib.contextmanager
def _started(module: str, *words: str) -> Iterator[Running]:
    """Ended with SIGTERM where nobody else has ended it."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *words], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        said = ""
        while (line := process.stderr.readline()) and " at http://" not in line:
            said += line
        found = re.search(r" at (http://\S+)$", line.strip())
        assert found, said
        yield Running(found[1], process)
    finally:
        process.terminate()
        process.wait()
        process.stderr.close()


def _profile(images: int) -> Profile:
    """Made-up outputs for validation images: with them, every answer has an outlier score."""
    draws = np.random.default_rng(0)
    rows = np.arange(images)
    return Profile(
        tuple(CLASSES),
        tuple(DOMAINS),
        domain=rows % len(DOMAINS),
        label=rows % len(CLASSES),
        scores=draws.normal(size=(images, len(CLASSES))).astype(np.float32),
        disagreement=draws.uniform(0, 0.2, images).astype(np.float32),
        described=rows,
        statistics=draws.normal(size=(images, len(STATISTICS))).astype(np.float32),
        features=None,
    )


class ServedModels(NamedTuple):
    """The same weights as a folder for torch and as a file for onnxruntime."""

    folder: Path
    onnx: Path


def make_models(home: Path) -> ServedModels:
    """Random weights: how long an answer takes does not depend on them."""
    experiment = settings({"name": "digits"}, "dmg", "small_cnn", SIZE)
    model = Model(build_method(experiment, Task(CLASSES, DOMAINS)), experiment, "", "cpu")
    model.profile = _profile(600)
    folder = home / "saved"
    model.save_pretrained(folder)
    return ServedModels(folder, export(model, "onnx", home / "model.onnx").path)
