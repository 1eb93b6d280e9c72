"""Damaged runs, saved models and exported files give a clear error or the same answer.

One file of a folder is changed at random, and the folder is used. Half of the folders have no
digests, as those of a stranger might: their answers may change, but what is wrong is an
`UnseenError` then, too. Everything follows from the number of a case.
"""

import json
import random
import shutil
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from rich.console import Console
from tests.sweeps.merging.conftest import save_start
from tests.tiny import TINY

import unseen
from unseen.errors import UnseenError
from unseen.reports.page.studies import load_runs
from unseen.reports.page.write import write_report
from unseen.results.files import DIGESTS

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 20, 20, 3), dtype=np.uint8)
STRANGE = [None, [], {}, "x", "", -1, 0, 1e308, float("nan"), True, [[1]], "9" * 5000, {"a": {}}]
QUIET = Console(quiet=True)


class Subjects(NamedTuple):
    """What is damaged: made once, and copied for each case."""

    runs: Path
    """Two finished runs that can be merged."""
    saved: Path
    onnx: Path


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> Subjects:
    pytest.importorskip("onnxruntime")
    home = tmp_path_factory.mktemp("subjects")
    start = save_start(home / "start.safetensors")
    settings: dict[str, Any] = TINY | {"network.pretrained": str(start)}
    runs = [
        unseen.fit("digits/dmg", runs=home / "runs", console=QUIET, seed=seed, **settings)
        for seed in (0, 1)
    ]
    runs[0].model.save_pretrained(home / "saved")
    runs[0].export(home / "model.onnx")
    for number, run in enumerate(runs):
        run.folder.path.rename(home / "runs" / str(number))
    return Subjects(home / "runs", home / "saved", home / "model.onnx")


def predict(runs: Path) -> Any:
    run = unseen.load_run(runs / "0")
    return run.predict(PIXELS).tolist(), run.accuracy(), len(run.folder.read_metrics())


def report(runs: Path) -> Any:
    write_report(runs, runs.parent / "report")
    loaded, _ = load_runs(runs)
    return {run.name: run.result and run.result.mean("source", "in_domain") for run in loaded}


def merge(runs: Path) -> Any:
    found = unseen.merge([runs / "0", runs / "1"], runs.parent / "merged", console=QUIET)
    return found.predict(PIXELS).tolist()


def export(runs: Path) -> Any:
    unseen.load_run(runs / "0").export(runs.parent / "again.onnx")
    return unseen.load(runs.parent / "again.onnx").predict(PIXELS).round(4).tolist()


def load(path: Path) -> Any:
    model = unseen.load(path)
    profile = model.profile
    return model.predict(PIXELS).tolist(), None if profile is None else profile.label.tolist()


USES: dict[str, tuple[Callable[[Path], Any], str, int]] = {
    "predict": (predict, "runs", 40),
    "report": (report, "runs", 15),
    "merge": (merge, "runs", 3),
    "export": (export, "runs", 1),
    "saved": (load, "saved", 20),
    "onnx": (load, "onnx", 20),
}
"""How a folder is used, what is copied for it, and how often among a hundred."""


def mutated(content: bytes, name: str, draws: random.Random) -> bytes | None:
    """Change the content of a file; None: it is removed."""
    place = draws.randrange(draws.choice([len(content), min(len(content), 400)]) or 1)
    kind = draws.choice(["bit", "bytes", "cut", "rest", "whole", "json", "json", "json"])
    if kind == "json" and name.endswith((".json", ".jsonl")):
        lines = content.decode().splitlines() if name.endswith(".jsonl") else [content.decode()]
        number = draws.randrange(len(lines))
        lines[number] = json.dumps(_other_value(json.loads(lines[number]), draws))
        return "\n".join((*lines, "")).encode()
    if kind == "bytes":
        return content[:place] + draws.randbytes(8) + content[place + 8 :]
    if kind == "cut":
        return content[:place]
    if kind == "rest":
        return content + draws.choice([b"\0", b"}", content, draws.randbytes(50)])
    if kind == "whole":
        texts = [b"", b"[" * 200_000, b'{"a":' * 100_000, b"\xff\xfe\0", b"null", b"[]", b'"x"']
        return draws.choice([None, *texts, draws.randbytes(300), content.hex().encode()])
    changed = bytearray(content or b"\0")
    changed[place] ^= 1 << draws.randrange(8)
    return bytes(changed)


def _other_value(value: Any, draws: random.Random) -> Any:
    """Put something strange into one place of a nested value, or take a key away."""
    if draws.random() < 0.25 or not isinstance(value, dict | list) or not value:
        return draws.choice(STRANGE)
    keys = list(value) if isinstance(value, dict) else range(len(value))
    key = draws.choice(list(keys))
    if isinstance(value, dict) and draws.random() < 0.15:
        del value[key]
    else:
        value[key] = _other_value(value[key], draws)
    return value


def copied(source: Path, home: Path) -> Path:
    home.mkdir()
    return Path((shutil.copytree if source.is_dir() else shutil.copy)(source, home / source.name))


def attack(
    subjects: Subjects, number: int, answers: dict[str, Any], home: Path
) -> tuple[str, str] | None:
    """Do one case; return how it was used and what went wrong, or nothing."""
    draws = random.Random(number)
    use = draws.choices(list(USES), [weight for *_, weight in USES.values()])[0]
    function, subject, _ = USES[use]
    source = getattr(subjects, subject)
    if use not in answers:
        answers[use] = json.loads(json.dumps(function(copied(source, home / use))))
    digests = draws.random() < 0.5
    copy = copied(source, home / str(number))
    for each in () if digests else copy.rglob(DIGESTS):
        each.unlink()
    files = sorted(p for p in ([copy] if copy.is_file() else copy.rglob("*")) if p.is_file())
    file = draws.choice([each for each in files if each.name != "lock"])
    about = f"case {number}: {use}{'' if digests else ' without digests'}, {file.name}"
    content = mutated(file.read_bytes(), file.name, draws)
    file.unlink() if content is None else file.write_bytes(content)
    try:
        found = json.loads(json.dumps(function(copy)))
    except UnseenError:
        return None
    except Exception:
        return about, traceback.format_exc()
    finally:
        shutil.rmtree(home / str(number))
    if use == "report":
        # a run without its result is not finished, one that cannot be read is left out
        same = all(each in (None, answers[use][name]) for name, each in found.items())
    else:
        same = found == answers[use]
    exported = use == "onnx"  # its digest is inside
    return None if same or not (digests or exported) else (about, "another answer")


def attack_all(subjects: Subjects, numbers: Iterable[int], home: Path) -> list[tuple[str, str]]:
    answers: dict[str, Any] = {}
    found = (attack(subjects, number, answers, home) for number in numbers)
    return [each for each in found if each is not None]


FOUND = (102, 103, 158, 285, 293, 356, 574, 802, 860, 997)
"""Each of these ended with a traceback: metrics.jsonl and README.md that are not UTF-8, names in an
ONNX file, nested JSON, zlib, digests and data.json of another shape, seconds and commands."""


def test_a_few_mutated_files_and_those_that_went_wrong_before(
    subjects: Subjects, tmp_path: Path
) -> None:
    assert attack_all(subjects, (*range(40), *FOUND), tmp_path) == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_thousand_mutated_files(subjects: Subjects, tmp_path: Path) -> None:
    assert attack_all(subjects, range(2000), tmp_path) == []
