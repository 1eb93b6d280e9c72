"""Each service's own files, read back by its own package: everything arrives, also after a crash.

Weights & Biases: the offline file, decoded with the messages that its package defines.
"""

import io
import json
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from unseen.reports.trackers import allowed_name
from unseen.results.folder import RunFolder

# MLflow's own use of SQLAlchemy
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning")

Series = dict[str, dict[int, float]]
_BLOCK, _HEADER = 32768, 7  # bytes of a LevelDB log


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


def assert_complete(
    found: Any, folder: RunFolder, recorded: Callable[[RunFolder], Series]
) -> float:
    """Returns the final accuracy, which is among what has to be there."""
    series, expected, result = found.series(), recorded(folder), folder.read_result()
    accuracy = result.view(result.selection, "out_of_domain")["outlines"].accuracy
    if isinstance(found, Mlflow):
        expected = {allowed_name(name): values for name, values in expected.items()}
    final = {name: series.pop(name) for name in list(series) if name.startswith("final/")}
    assert set(series) == set(expected)
    for name, values in expected.items():
        assert series[name] == pytest.approx(values, rel=found.exact, abs=0), name
    sent = final["final/out_of_domain/outlines/accuracy"]
    assert sent == pytest.approx({6: accuracy}, rel=found.exact, abs=0)
    return accuracy


def test_everything_arrives(
    service: Any, tmp_path: Path, run_with: Callable, recorded: Callable
) -> None:
    folder = run_with(tmp_path, [service.name])
    found = service(folder)
    accuracy = assert_complete(found, folder, recorded)
    found.check_about(folder, ("outlines", "out of domain", f"{accuracy:.1%}"))
    with Image.open(found.picture()) as image:
        assert image.size == (450, 378)


def test_a_crashed_run_is_continued(
    service: Any, tmp_path: Path, run_with: Callable, crash_once: Callable, recorded: Callable
) -> None:
    """Steps 3 and 4 are trained twice and there once."""
    crash_once(tmp_path, [service.name])
    (folder,) = (RunFolder(path.parent) for path in tmp_path.glob("*/settings.json"))
    before = service(folder)
    run_with(tmp_path, [service.name])
    after = service(folder)
    assert_complete(after, folder, recorded)
    after.check_crashed(before, folder)


def test_a_server_of_mlflow_is_used_where_one_is_named(
    tmp_path: Path, run_with: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any address that MLflow understands is one."""
    mlflow = pytest.importorskip("mlflow", reason="the extra 'mlflow' is not installed")
    elsewhere = tmp_path / "elsewhere.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{elsewhere}")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    monkeypatch.chdir(tmp_path)
    run_with(tmp_path / "runs", ["mlflow"])
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
