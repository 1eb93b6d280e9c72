"""Trackers: each service's own files, read back by its own package, hold everything, also after a
crash; those that fail, are not there or are misspelt; what is made of records and results.

Weights & Biases: the offline file, decoded with the messages that its package defines.
"""

import io
import json
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image
from rich.console import Console
from tests.made_results import made_result, measured
from tests.tiny import TINY

from unseen import api
from unseen.cli.main import main
from unseen.errors import SettingsError
from unseen.reports import trackers
from unseen.reports.trackers import (
    Subject,
    allowed_name,
    choose_trackers,
    final_numbers,
    named_numbers,
)
from unseen.results.folder import RunFolder, run_name
from unseen.results.result import RuleResult, Views
from unseen.settings import catalog
from unseen.settings.experiment import Experiment
from unseen.settings.recipes import flattened, load_experiment
from unseen.sweeps.train import compare
from unseen.training import loop
from unseen.training.display import Display
from unseen.training.execute import execute
from unseen.training.loop import save, tracked
from unseen.training.session import Session

# MLflow's own use of SQLAlchemy
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning")

Series = dict[str, dict[int, float]]
"""Values by name and step."""
CALLS = ("start", "numbers", "table", "figure", "close")
_BLOCK, _HEADER = 32768, 7  # bytes of a LevelDB log


class Crash(Exception):
    """What no run is prepared for."""


@pytest.fixture(autouse=True)
def _nobodys_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("API_KEY", "MODE", "PROJECT", "BASE_URL"):
        monkeypatch.delenv(f"WANDB_{name}", raising=False)
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("NETRC", "WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))


@cache
def experiment() -> Experiment:
    return load_experiment("digits/dmg", TINY)


def train(runs: Path, names: Sequence[str], console: Console | None = None) -> RunFolder:
    """Carries out the run below a folder, with trackers: none of them fails, unless a console is
    given for what they say then."""
    folder = RunFolder(runs / run_name(experiment()))
    shown = io.StringIO()
    with Display(console or Console(file=shown, width=500), 6, "") as display:
        execute(experiment(), folder, display, names)
    assert "failed" not in shown.getvalue()
    return folder


def crash(runs: Path, names: Sequence[str]) -> None:
    """Carries out the run, which dies after step 4, two steps after its last checkpoint."""

    def save_or_die(session: Session) -> None:
        if session.step == 4:
            raise Crash
        save(session)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "save", save_or_die)
        with pytest.raises(Crash):
            train(runs, names)


def recorded(folder: RunFolder) -> Series:
    """What a tracker should hold of a run while it trains, read from its own record."""
    found: Series = {}
    for record in folder.read_metrics():
        step = record.pop("step")
        if "validation" not in record:
            record = {"train": record}
        for name, value in flattened(record, "/").items():
            found.setdefault(name, {})[step] = value
    assert set(found["train/loss"]) == {1, 2, 3, 4, 5, 6}
    assert set(found["validation/plain"]) == {3, 6}
    assert set(found["statistics/fc1/iou/plain|blended/soft"]) == {3, 6}
    return found


class Tensorboard:
    name, exact, packages = "tensorboard", 1e-6, ("tensorboard",)

    def __init__(self, folder: RunFolder) -> None:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        place = folder.path.parent / "tensorboard" / folder.path.name
        sizes = {"scalars": 0, "images": 0, "tensors": 0}
        self.reader = EventAccumulator(str(place), size_guidance=sizes).Reload()

    def series(self) -> Series:
        found = {name: self.reader.Scalars(name) for name in self.reader.Tags()["scalars"]}
        for events in found.values():
            assert len({event.step for event in events}) == len(events)
        return {name: {e.step: e.value for e in events} for name, events in found.items()}

    def check_about(self, folder: RunFolder, row: tuple[str, ...]) -> None:
        texts = [
            self.reader.Tensors(f"{name}/text_summary")[0].tensor_proto.string_val[0].decode()
            for name in ("settings", "result")
        ]
        assert "| method/name | dmg |" in texts[0]
        assert f"| {' | '.join(row)} |" in texts[1]

    def picture(self) -> Any:
        (picture,) = self.reader.Images("confusion-outlines")
        return io.BytesIO(picture.encoded_image_string)

    def check_crashed(self, before: "Tensorboard", folder: RunFolder) -> None:
        """Its older files are declared void."""


class Mlflow:
    name, exact, packages = "mlflow", 0, ("mlflow", "sqlalchemy")

    def __init__(self, folder: RunFolder) -> None:
        import mlflow

        self.client = mlflow.MlflowClient(f"sqlite:///{folder.path.parent / 'mlflow.db'}")
        experiment: Any = self.client.get_experiment_by_name("unseen")
        (self.run,) = self.client.search_runs([experiment.experiment_id])
        self.artifacts = folder.path.parent / "mlflow" / self.run.info.run_id

    def series(self) -> Series:
        histories = {
            name: self.client.get_metric_history(self.run.info.run_id, name)
            for name in self.run.data.metrics
        }
        for history in histories.values():
            assert len({metric.step for metric in history}) == len(history)
        return {name: {m.step: m.value for m in history} for name, history in histories.items()}

    def check_about(self, folder: RunFolder, row: tuple[str, ...]) -> None:
        params = self.run.data.params
        assert (self.run.info.run_name, self.run.info.status) == (folder.path.name, "FINISHED")
        assert (params["method/name"], params["steps"]) == ("dmg", "6")
        names = {item.path for item in self.client.list_artifacts(self.run.info.run_id)}
        assert names == {"result.md", "confusion-outlines.png"}
        (table,) = self.artifacts.rglob("result.md")
        assert f"| {' | '.join(row)} |" in table.read_text(encoding="utf-8")

    def picture(self) -> Any:
        (file,) = self.artifacts.rglob("confusion-outlines.png")
        return file

    def check_crashed(self, before: "Mlflow", folder: RunFolder) -> None:
        assert before.run.info.status == "KILLED"
        assert self.run.info.run_id == before.run.info.run_id


class Wandb:
    name, exact, packages = "wandb", 0, ("wandb",)

    def __init__(self, folder: RunFolder) -> None:
        import wandb

        wandb.teardown()  # the process that writes the files is done then
        self.runs = sorted((folder.path.parent / "wandb").glob("offline-run-*"))
        (file,) = self.runs[-1].glob("*.wandb")
        self.records = list(self._read(file))

    def _read(self, file: Path) -> Iterator[Any]:
        """Read a LevelDB log: blocks of chunks, each with checksum, length and kind."""
        from wandb.proto.wandb_internal_pb2 import Record

        data, place, parts = file.read_bytes(), _HEADER, b""
        assert data[:4] == b":W&B"
        while place < len(data):
            if _BLOCK - place % _BLOCK < _HEADER:
                place += _BLOCK - place % _BLOCK
                continue
            checksum, length, kind = struct.unpack_from("<IHB", data, place)
            chunk = data[place + _HEADER : place + _HEADER + length]
            assert checksum == zlib.crc32(bytes([kind]) + chunk)
            parts += chunk
            place += _HEADER + length
            if kind in (1, 4):  # a record of its own, or the last part of one
                yield Record.FromString(parts)
                parts = b""

    def series(self) -> Series:
        found: Series = {}
        for record in self.records:
            if record.WhichOneof("record_type") == "history":
                items = {
                    item.key or "/".join(item.nested_key): json.loads(item.value_json)
                    for item in record.history.item
                }
                for name, value in items.items():
                    if not name.startswith("_"):
                        assert items["_step"] not in found.setdefault(name, {})
                        found[name][items["_step"]] = value
        return {name: found[name] for name in found if not name.startswith(("result/", "confus"))}

    def check_about(self, folder: RunFolder, row: tuple[str, ...]) -> None:
        (about,) = (r.run for r in self.records if r.WhichOneof("record_type") == "run")
        identity = folder.read_result().run
        names = (about.run_id, about.project, about.display_name)
        assert names == (identity, "unseen", folder.path.name)
        config = {item.key: json.loads(item.value_json) for item in about.config.update}
        assert config["method"]["name"] == "dmg"
        (table,) = (self.runs[-1] / "files" / "media" / "table").glob("result_*.json")
        rows = json.loads(table.read_text(encoding="utf-8"))["data"]
        assert list(row) in [each[: len(row)] for each in rows]

    def picture(self) -> Any:
        (file,) = (self.runs[-1] / "files" / "media" / "images").glob("confusion-outlines_*.png")
        return file

    def check_crashed(self, before: "Wandb", folder: RunFolder) -> None:
        """Under the same id; the newest folder holds the whole run."""
        assert set(before.series()["train/loss"]) == {1, 2, 3, 4}
        ids = [run.name.split("-")[3] for run in self.runs]  # within a second a number follows
        assert ids == [folder.read_result().run] * 2


@pytest.fixture(params=[Tensorboard, Mlflow, Wandb])
def service(request: pytest.FixtureRequest) -> type:
    for package in request.param.packages:
        pytest.importorskip(package, reason=f"the extra '{request.param.name}' is not installed")
    return request.param


@pytest.mark.parametrize("crashed", [False, True])
def test_everything_arrives(service: Any, tmp_path: Path, crashed: bool) -> None:
    """After a crash, steps 3 and 4 are trained twice and there once."""
    before = None
    if crashed:
        crash(tmp_path, [service.name])
        (folder,) = (RunFolder(path.parent) for path in tmp_path.glob("*/settings.json"))
        before = service(folder)
    folder = train(tmp_path, [service.name])
    found = service(folder)
    if before:
        found.check_crashed(before, folder)
    series, expected, result = found.series(), recorded(folder), folder.read_result()
    accuracy = result.view(result.selection, "out_of_domain")["outlines"].accuracy
    if service is Mlflow:
        expected = {allowed_name(name): values for name, values in expected.items()}
    final = {name: series.pop(name) for name in list(series) if name.startswith("final/")}
    assert set(series) == set(expected)
    for name, values in expected.items():
        assert series[name] == pytest.approx(values, rel=found.exact, abs=0), name
    sent = final["final/out_of_domain/outlines/accuracy"]
    assert sent == pytest.approx({6: accuracy}, rel=found.exact, abs=0)
    found.check_about(folder, ("outlines", "out of domain", f"{accuracy:.1%}"))
    with Image.open(found.picture()) as image:
        assert image.size == (450, 378)


def test_a_server_of_mlflow_is_used_where_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any address that MLflow understands is one."""
    mlflow = pytest.importorskip("mlflow", reason="the extra 'mlflow' is not installed")
    elsewhere = tmp_path / "elsewhere.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{elsewhere}")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    monkeypatch.chdir(tmp_path)
    train(tmp_path / "runs", ["mlflow"])
    client = mlflow.MlflowClient(f"sqlite:///{elsewhere}")
    experiment = client.get_experiment_by_name("mine") or SimpleNamespace(experiment_id="none")
    assert len(client.search_runs([experiment.experiment_id])) == 1
    assert not (tmp_path / "runs" / "mlflow.db").exists()


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("statistics/fc/iou/photo|cartoon/soft", "statistics/fc/iou/photo_cartoon/soft"),
        ("validation/../../x", "validation/_/_/x"),
        ("validation/a//b", "validation/a/_/b"),
        ("validation/<script>", "validation/_script_"),
        ("validation/Zürich 2", "validation/Zürich 2"),
    ],
)
def test_names_that_mlflow_takes(name: str, allowed: str) -> None:
    validation = pytest.importorskip("mlflow.utils.validation", reason="mlflow is not installed")
    assert allowed_name(name) == allowed
    validation._validate_metric_name(allowed)


class Listening:
    """Writes down what it gets, and breaks at one of the calls."""

    packages = ()

    def __init__(self) -> None:
        self.breaks_at = ""
        self.heard: list[tuple[str, tuple]] = []

    def __call__(self) -> "Listening":
        return self

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
    monkeypatch.setattr(
        catalog, "load", lambda kind, name: found[name] if kind == "tracker" else load(kind, name)
    )
    return found


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run without trackers."""
    return train(tmp_path_factory.mktemp("plain"), [])


def contents(folder: RunFolder) -> dict[str, bytes]:
    apart = {"timing.json", "environment.json"}
    return {
        path.relative_to(folder.path).as_posix(): path.read_bytes()
        for path in folder.path.rglob("*")
        if path.is_file() and path.name not in apart
    }


@pytest.mark.parametrize("call", CALLS)
def test_a_tracker_that_breaks_disturbs_nobody(
    call: str, tmp_path: Path, listeners: dict[str, Listening], plain: RunFolder
) -> None:
    """The run ends with the bytes of a run without trackers, and the others hear everything."""
    listeners["wandb"].breaks_at = call
    shown = io.StringIO()
    folder = train(tmp_path / "runs", ["wandb", "mlflow"], Console(file=shown, width=500))
    assert contents(folder) == contents(plain)
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
    tmp_path: Path, listeners: dict[str, Listening]
) -> None:
    crash(tmp_path, ["mlflow"])
    assert listeners["mlflow"].calls[-2:] == ["numbers", "close"]
    assert listeners["mlflow"].heard[-1] == ("close", (False,))


def test_only_the_process_that_writes_has_trackers(
    plain: RunFolder, listeners: dict[str, Listening]
) -> None:
    """A process that has the run's log tells trackers of it; another one does not."""
    run = SimpleNamespace(log=None, folder=plain, experiment=experiment())
    session: Any = SimpleNamespace(runs=[run], display=SimpleNamespace(line=pytest.fail))
    with tracked(session, ["mlflow"]):
        pass
    assert listeners["mlflow"].heard == []
    run.log = SimpleNamespace(listener=None)
    with tracked(session, ["mlflow"]):
        assert run.log.listener is not None
    assert listeners["mlflow"].heard[0][0] == "start"


def test_a_comparison_sends_its_runs_and_its_tables(
    tmp_path: Path, listeners: dict[str, Listening]
) -> None:
    tiny: dict[str, Any] = {"steps": 2, "images_per_domain": 2, "network.image_size": 16}
    about: dict[str, Any] = {"methods": "aggregate,dmg", "unseen": "outlines", "runs": tmp_path}
    compare("digits", log="tensorboard", console=Console(quiet=True), **about, **tiny)
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
    assert named_numbers({"step": 3, "loss": 1.5}) == {"train/loss": 1.5}
    statistics = {"phase": 2, "fc": {"iou": {"a|b": {"soft": 0.25}}, "counts": [1, 2]}}
    evaluation = {"step": 3, "validation": {"photo": 0.5}, "candidate": False}
    assert named_numbers(evaluation | {"statistics": statistics}) == {
        "validation/photo": 0.5,
        "statistics/phase": 2,
        "statistics/fc/iou/a|b/soft": 0.25,
    }


def test_final_numbers_are_those_of_the_runs_own_rule() -> None:
    inside = {"photo": measured(0.5, error=0.125), "sketch": measured(0.25, error=0.125)}
    views: Views = {"out_of_domain": {}, "in_domain": inside}
    other: Views = {"out_of_domain": {"photo": measured(1.0)}, "in_domain": {}}
    rules = {"last": RuleResult(step=2, views=other), "source": RuleResult(step=1, views=views)}
    values = {"photo/accuracy": 0.5, "photo/ece": 0.125, "sketch/accuracy": 0.25}
    values |= {"sketch/ece": 0.125, "mean accuracy": 0.375, "worst accuracy": 0.25}
    assert final_numbers(made_result("dmg", {}, results=rules)) == {
        f"final/in_domain/{name}": value for name, value in values.items()
    }
