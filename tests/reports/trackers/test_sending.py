"""Trackers that fail, are not there or are misspelt; what is made of records and results."""

import io
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from tests.made_results import made_result, measured

from unseen import api
from unseen.cli.main import main
from unseen.errors import SettingsError
from unseen.reports import trackers
from unseen.reports.figures.figure import to_picture
from unseen.reports.figures.grids import confusion_map
from unseen.reports.figures.svg import Drawing
from unseen.reports.trackers import Subject, choose_trackers, final_numbers, named_numbers
from unseen.results.folder import RunFolder
from unseen.results.result import Measured, RuleResult, Views
from unseen.settings import catalog
from unseen.settings.experiment import Experiment
from unseen.sweeps.train import compare
from unseen.training.loop import tracked

CALLS = ("start", "numbers", "table", "figure", "close")
TINY_WORDS = {"steps": 2, "images_per_domain": 2, "network.image_size": 16}


class Listening:
    """Writes down what it gets, and breaks at one of the calls."""

    packages = ()

    def __init__(self) -> None:
        self.breaks_at = ""
        self.heard: list[tuple[str, tuple]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name not in CALLS:
            raise AttributeError(name)

        def call(*arguments: Any, **options: Any) -> None:
            self.heard.append((name, (*arguments, *options.values())))
            if name == self.breaks_at:
                raise ModuleNotFoundError("No module named 'half_of_it'\nand more")

        return call

    @property
    def calls(self) -> list[str]:
        return [name for name, _ in self.heard]


@pytest.fixture
def listeners(monkeypatch: pytest.MonkeyPatch) -> dict[str, Listening]:
    """Stand where the real trackers are."""
    found = {name: Listening() for name in catalog.TRACKERS}
    load = catalog.load
    makers = {name: (lambda own=own: own) for name, own in found.items()}
    monkeypatch.setattr(
        catalog, "load", lambda kind, name: makers[name] if kind == "tracker" else load(kind, name)
    )
    for maker in makers.values():
        maker.packages = ()  # type: ignore[attr-defined]
    return found


@pytest.fixture(scope="module")
def plain(run_with: Callable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without trackers."""
    folder: RunFolder = run_with(tmp_path_factory.mktemp("plain"), [])
    assert folder.finished
    return folder.path


def contents(folder: RunFolder) -> dict[str, bytes]:
    apart = {"timing.json", "environment.json"}
    return {
        path.relative_to(folder.path).as_posix(): path.read_bytes()
        for path in folder.path.rglob("*")
        if path.is_file() and path.name not in apart
    }


@pytest.mark.parametrize("call", CALLS)
def test_a_tracker_that_breaks_disturbs_nobody(
    call: str, tmp_path: Path, run_with: Callable, listeners: dict[str, Listening], plain: Path
) -> None:
    """The run ends with the bytes of a run without trackers, and the others hear everything."""
    listeners["wandb"].breaks_at = call
    shown = io.StringIO()
    folder = run_with(tmp_path / "runs", ["wandb", "mlflow"], Console(file=shown, width=500))
    assert contents(folder) == contents(RunFolder(plain))
    assert [line for line in shown.getvalue().splitlines() if "failed" in line] == [
        "Weights & Biases failed (ModuleNotFoundError: No module named 'half_of_it' and more) and "
        "gets nothing more from this run; training continues, and the run's folder has everything"
    ]
    after = listeners["wandb"].calls
    assert after[after.index(call) + 1 :] == ["close"]
    (_, (subject,)), *others = listeners["mlflow"].heard
    steps = [arguments[0] for name, arguments in others if name == "numbers"]
    assert steps == [1, 2, 3, 3, 4, 5, 6, 6, 6]
    assert others[-1] == ("close", (True,))
    about = (folder.path.name, folder.read_result().run, folder.read_settings(), tmp_path / "runs")
    assert subject == Subject(*about)


def test_a_run_that_crashes_is_closed_as_unfinished(
    tmp_path: Path, crash_once: Callable, listeners: dict[str, Listening]
) -> None:
    crash_once(tmp_path, ["mlflow"])
    assert listeners["mlflow"].calls[-2:] == ["numbers", "close"]
    assert listeners["mlflow"].heard[-1] == ("close", (False,))


def test_only_the_process_that_writes_has_trackers(
    tmp_path: Path, experiment: Experiment, run_with: Callable, listeners: dict[str, Listening]
) -> None:
    """A process that has the run's log tells trackers of it; another one does not."""
    folder = run_with(tmp_path, [])
    run = SimpleNamespace(log=None, folder=folder, experiment=experiment)
    session: Any = SimpleNamespace(runs=[run], display=SimpleNamespace(line=pytest.fail))
    with tracked(session, ["mlflow"]):
        assert listeners["mlflow"].heard == []
    assert listeners["mlflow"].heard == []
    run.log = SimpleNamespace(listener=None)
    with tracked(session, ["mlflow"]):
        assert run.log.listener is not None
    assert listeners["mlflow"].heard[0][0] == "start"


def test_a_comparison_sends_its_runs_and_its_tables(
    tmp_path: Path, listeners: dict[str, Listening]
) -> None:
    compare(
        "digits",
        methods="aggregate,dmg",
        unseen="outlines",
        runs=tmp_path,
        log="tensorboard",
        console=Console(quiet=True),
        **TINY_WORDS,
    )
    heard = listeners["tensorboard"].heard
    names = [arguments[0].name for name, arguments in heard if name == "start"]
    assert [name.split("-")[2] for name in names[:2]] == ["aggregate", "dmg"]
    assert (tmp_path / "tables" / names[2]).is_dir()
    tables = [arguments for name, arguments in heard if name == "table"]
    assert [name for name, *_ in tables] == [
        *("result", "result", "out_of_domain", "in_domain", "known_domain")
    ]
    _, header, rows = tables[2]
    assert header[:2] == ["method", "outlines"]
    assert [row[0].split()[0] for row in rows] == ["aggregate", "dmg", "largest"]
    assert all(float(row[1]) >= 0 for row in rows)


def test_a_package_that_is_missing_is_said_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trackers, "find_spec", lambda name: name != "alembic")
    words = ["digits/dmg", "data.unseen_domain=outlines", "--runs", str(tmp_path / "runs")]
    with pytest.raises(SystemExit) as caught:
        main(["train", *words, "--log", "wandb,mlflow"])
    assert caught.value.code == 2
    said = "--log mlflow needs the package 'alembic', which is not installed: pip install"
    assert f"{said} 'unseen[mlflow]'" in capsys.readouterr().err
    with pytest.raises(SettingsError, match=r"pip install 'unseen\[mlflow\]'"):
        compare("digits", runs=tmp_path / "runs", log="mlflow")
    with pytest.raises(SettingsError, match=r"unknown tracker 'wandbb'; did you mean 'wandb'\?"):
        api.fit("digits/dmg", runs=tmp_path / "runs", log=["wandbb"])
    assert not (tmp_path / "runs").exists()


def test_names_are_taken_once_with_or_without_spaces(listeners: dict[str, Listening]) -> None:
    assert choose_trackers("mlflow, wandb,mlflow") == ("mlflow", "wandb")
    assert choose_trackers("") == ()


def test_records_become_numbers_with_names() -> None:
    losses = {"step": 3, "loss": 1.5, "kept": 1}
    assert named_numbers(losses) == {"train/loss": 1.5, "train/kept": 1}
    evaluation = {
        "step": 3,
        "validation": {"photo": 0.5},
        "candidate": False,
        "statistics": {"phase": 2, "fc": {"iou": {"a|b": {"soft": 0.25}}, "counts": [1, 2]}},
    }
    assert named_numbers(evaluation) == {
        "validation/photo": 0.5,
        "statistics/phase": 2,
        "statistics/fc/iou/a|b/soft": 0.25,
    }


def test_final_numbers_are_those_of_the_runs_own_rule() -> None:
    def view(**accuracies: float) -> Measured:
        return {name: measured(value, error=0.125) for name, value in accuracies.items()}

    views: Views = {"out_of_domain": {}, "in_domain": view(photo=0.5, sketch=0.25)}
    other: Views = {"out_of_domain": view(photo=1.0), "in_domain": {}}
    rules = {"last": RuleResult(step=2, views=other), "source": RuleResult(step=1, views=views)}
    assert final_numbers(made_result("dmg", {}, results=rules)) == {
        "final/in_domain/photo/accuracy": 0.5,
        "final/in_domain/photo/ece": 0.125,
        "final/in_domain/sketch/accuracy": 0.25,
        "final/in_domain/sketch/ece": 0.125,
        "final/in_domain/mean accuracy": 0.375,
        "final/in_domain/worst accuracy": 0.25,
    }


def colours(drawing: Drawing) -> list[tuple[int, ...]]:
    """Of the cells in their upper left corners, where no number stands, row by row."""
    picture = to_picture(drawing)
    cells = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)"', drawing.content)
    places = [(round(float(x)) + 3, round(float(y)) + 3) for x, y in cells]
    return [picture.getpixel(place) for place in places]  # type: ignore[misc]


def test_a_confusion_matrix_is_darkest_where_a_class_went() -> None:
    """Rows are true classes: all four cats were taken for dogs, one dog of four for a cat."""
    drawing = confusion_map("", np.array([[0, 4], [1, 3]]), ["cat", "dog"], counts=True)
    assert re.findall(r"(\d+)</text>", drawing.content) == ["0", "4", "1", "3"]
    cat_cat, cat_dog, dog_cat, dog_dog = colours(drawing)
    assert cat_cat == (255, 255, 255)
    assert cat_dog == (11, 79, 138)
    assert dog_cat == pytest.approx((194, 211, 226), abs=1)
    assert dog_dog == pytest.approx((72, 123, 167), abs=1)


def test_a_picture_of_many_classes_shows_the_most_confused_ones() -> None:
    """345 classes made a picture of 11,820 pixels square: 419 MB."""
    names = [f"class {number}" for number in range(345)]
    counts = np.diag(np.full(345, 10))
    counts[7, 300] = counts[300, 7] = 5
    drawing = confusion_map("", counts, names, counts=True, width=1470)
    assert max(drawing.width, drawing.height) <= 2000
    assert ">predicted (40 most confused of 345 classes)<" in drawing.content
    shown = set(re.findall(r"<title>(.*?)</title></text>", drawing.content))
    assert {"class 7", "class 300"} <= shown
    assert len(shown & set(names)) == 40
    assert max(to_picture(drawing).size) <= 2000
