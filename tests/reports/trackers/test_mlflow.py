"""The SQLite file, read back by MLflow's own client."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from tests.reports.trackers.outcomes import final_accuracy

from unseen.reports.trackers.mlflow import allowed_name
from unseen.results.folder import RunFolder

pytest.importorskip("mlflow", reason="the extra 'mlflow' is not installed")
pytest.importorskip("sqlalchemy", reason="the extra 'mlflow' is not installed")

# MLflow's own use of SQLAlchemy
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning")


def read(folder: RunFolder):
    """The only run, and the client to ask for more."""
    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{folder.path.parent / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("unseen")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    return client, run


@pytest.fixture(scope="module")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Making all the tables of MLflow takes seconds: once is enough."""
    import mlflow

    file = tmp_path_factory.mktemp("mlflow") / "empty.db"
    mlflow.MlflowClient(f"sqlite:///{file}").search_experiments()
    return file


def assert_complete(folder: RunFolder, recorded: Callable) -> None:
    client, run = read(folder)
    expected = {name.replace("|", "_"): values for name, values in recorded(folder).items()}
    assert {n for n in run.data.metrics if not n.startswith("final/")} == set(expected)
    for name, values in expected.items():
        history = client.get_metric_history(run.info.run_id, name)
        assert sorted((m.step, m.value) for m in history) == sorted(values.items()), name
    assert run.data.metrics["final/out_of_domain/outlines/accuracy"] == final_accuracy(folder)
    assert run.info.status == "FINISHED"


def test_everything_arrives(tmp_path: Path, run_with: Callable, recorded: Callable) -> None:
    folder = run_with(tmp_path, ["mlflow"])
    assert_complete(folder, recorded)
    client, run = read(folder)
    assert run.info.run_name == folder.path.name
    assert (run.data.params["method/name"], run.data.params["steps"]) == ("dmg", "6")
    artifacts = {item.path for item in client.list_artifacts(run.info.run_id)}
    assert artifacts == {"result.md", "confusion-outlines.png"}
    local = {path.name: path for path in (tmp_path / "mlflow" / run.info.run_id).rglob("*.*")}
    assert set(local) == artifacts
    row = f"| out_of_domain | outlines | {final_accuracy(folder):.1%} |"
    assert row in local["result.md"].read_text(encoding="utf-8")
    with Image.open(local["confusion-outlines.png"]) as image:
        assert image.size == (450, 378)


def test_a_crashed_run_is_continued(
    tmp_path: Path, run_with: Callable, crash_once: Callable, recorded: Callable, empty_file: Path
) -> None:
    """The same MLflow run; steps 3 and 4 are trained twice and there once."""
    shutil.copy(empty_file, tmp_path / "mlflow.db")
    crash_once(tmp_path, ["mlflow"])
    (folder,) = (RunFolder(path.parent) for path in tmp_path.glob("*/settings.json"))
    _, before = read(folder)
    assert before.info.status == "KILLED"
    run_with(tmp_path, ["mlflow"])
    _, after = read(folder)
    assert after.info.run_id == before.info.run_id
    assert_complete(folder, recorded)


def test_a_server_is_used_where_one_is_named(
    tmp_path: Path, run_with: Callable, monkeypatch: pytest.MonkeyPatch, empty_file: Path
) -> None:
    """Any address that MLflow understands is one."""
    elsewhere = tmp_path / "elsewhere.db"
    shutil.copy(empty_file, elsewhere)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{elsewhere}")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    monkeypatch.chdir(tmp_path)
    run_with(tmp_path / "runs", ["mlflow"])
    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{elsewhere}")
    experiment = client.get_experiment_by_name("mine")
    assert experiment is not None
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
    from mlflow.utils.validation import _validate_metric_name

    assert allowed_name(name) == allowed
    _validate_metric_name(allowed)
