"""What another package adds is a name like any other: in train, compare, sweep and report."""

import csv
import json
from pathlib import Path

import pytest
from tests.commands import Answer, commands_in
from tests.tiny import TINY

from unseen.results.folder import RunFolder, find_runs

MODULE = '''
from unseen import Method
from unseen.data.datasets.digits import Digits
from unseen.networks.digits import small_cnn as small


class Twice(Digits):
    """The digits under another name."""


class Louder(Method):
    """Plain training with the loss times a factor."""

    class Config(Method.Config):
        factor: float = 2.0

    def loss(self, batch, progress):
        loss, accuracy = self.classification(self.network(batch.images), batch.labels)
        return {"loss": self.config.factor * loss, "accuracy": accuracy}

    def predict(self, images, domain=None):
        return self.network(images)
'''
SETTINGS = {key: each for key, each in TINY.items() if key != "data.unseen_domain"}
WORDS = [f"{key}={each}" for key, each in SETTINGS.items()]


@pytest.fixture
def unseen(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Commands beside an installed package that adds a method, a dataset and a network."""
    package = tmp_path / "site"
    about = package / "louder_methods-1.0.dist-info"
    about.mkdir(parents=True)
    (package / "louder_methods.py").write_text(MODULE)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: louder-methods\nVersion: 1.0\n")
    added = {
        "methods": "louder = louder_methods:Louder",
        "datasets": "twice = louder_methods:Twice",
    }
    added["backbones"] = "small = louder_methods:small"
    sections = (f"[unseen.{kind}]\n{point}\n" for kind, point in added.items())
    (about / "entry_points.txt").write_text("".join(sections))
    run = commands_in(tmp_path, capsys, monkeypatch)  # restores the path of imports afterwards
    monkeypatch.syspath_prepend(str(package))

    def succeed(*words: str) -> Answer:
        answer = run(*words)
        assert answer.code == 0, answer.err
        return answer

    return succeed


def rows_of(tables: Path) -> list[str]:
    """The rows of the out-of-domain table, in order."""
    with (tables / "out_of_domain.csv").open() as file:
        return list(dict.fromkeys(line["method"] for line in csv.DictReader(file)))


def test_by_entry_point(unseen, tmp_path: Path) -> None:
    assert "from the package louder-methods" in unseen("list", "methods").out
    assert "factor: 2.0" in unseen("show", "digits/louder").out
    said = unseen("train", "digits/louder", "data.unseen_domain=plain", *WORDS)
    assert "louder" in said.out
    methods = ["--methods", "aggregate,louder", "--unseen", "plain,outlines", "--workers", "1"]
    said = unseen("compare", "digits", *methods, *WORDS)
    assert "4 runs planned (1 finished, 0 to resume)" in said.err
    page = next(line for line in said.err.splitlines() if line.startswith("Next: unseen "))
    tables = Path(page.split()[-1])
    assert rows_of(tables)[:2] == ["aggregate", "louder"]
    names = {folder.path.name.rpartition("-seed")[0] for folder in find_runs(tmp_path / "runs")}
    assert {name for name in names if "louder" in name} == {
        f"digits-small_cnn-louder-{domain}" for domain in ("plain", "outlines")
    }
    unseen(*page.removeprefix("Next: unseen ").split())
    assert "louder" in (tables / "report" / "report.html").read_text()
    file = tmp_path / "loud.yaml"
    searched = {"ranges": {"method.factor": {"uniform": [1, 3]}}, "search": "method.factor"}
    sweep = {"datasets": "digits", "methods": "louder", "unseen": "plain", "draws": 2}
    file.write_text(json.dumps(sweep | searched | {"settings": SETTINGS}))
    said = unseen("sweep", "loud.yaml", "--workers", "0")
    assert "2 runs planned (1 finished, 0 to resume)" in said.err, "draw 0 is the recipe as it is"
    assert "louder" in said.out


def test_datasets_and_networks_by_entry_point(unseen, tmp_path: Path) -> None:
    for kind in ("datasets", "backbones"):
        assert "from the package louder-methods" in unseen("list", kind).out
    network = ["--backbone", "small", "network.pretrained=false"]
    methods = ["--methods", "aggregate,louder", "--unseen", "plain", "--workers", "0"]
    unseen("compare", "twice", *methods, *network, *WORDS)
    names = sorted(folder.path.name for folder in find_runs(tmp_path / "runs"))
    assert [name.rpartition("-plain-")[0] for name in names] == [
        "twice-small-aggregate",
        "twice-small-louder",
    ]


def test_by_import_string(unseen, tmp_path: Path) -> None:
    name = "louder_methods:Louder"
    unseen("train", f"digits/{name}", "data.unseen_domain=plain", "method.factor=3", *WORDS)
    [folder] = find_runs(tmp_path / "runs")
    assert isinstance(folder, RunFolder)
    assert folder.read_result().method == name
    methods = ["--methods", f"aggregate,{name}", "--unseen", "plain", "--workers", "0"]
    said = unseen("compare", "digits", *methods, *WORDS)
    assert "louder_methods:Louder" in said.out
    [tables] = (tmp_path / "runs" / "tables").glob("*/source")
    assert rows_of(tables)[:2] == ["aggregate", name]
    unseen("report", "runs")
    assert name in (tmp_path / "runs" / "report" / "report.html").read_text()
