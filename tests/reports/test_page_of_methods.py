"""What the page shows of methods with masks, importances and maps follows from a run's arrays."""

from pathlib import Path

import numpy as np
import pytest

from unseen.reports.page.pictures import feature_map
from unseen.results.files import write_arrays

SHARES = {"soft": 0.55, "hard": 0.75}


@pytest.fixture
def masked(make_run):
    def make(weight: float, soft: float, accuracy: float) -> None:
        pair = {"photo|cartoon": {"soft": soft, "hard": soft / 2}}
        statistics = {"fc": {"kept": {"photo": SHARES, "cartoon": SHARES}, "iou": pair}}
        evaluation = {"step": 200, "validation": {"photo": 1.0}, "statistics": statistics}
        path = make_run(
            "dmg", {"sketch": accuracy}, metrics=[evaluation], run=f"dmg-{weight}",
            settings={"overlap_weight": weight},
        )  # fmt: skip
        probs = np.array([[0.7, 0.6, 0.2, 0.1], [0.9, 0.4, 0.3, 0.8]], np.float32)
        write_arrays(path / "arrays.npz", {"mask.fc": probs})

    return make


def test_strips_tell_the_counts_of_the_methods_arrays(masked, report) -> None:
    masked(0.1, 0.5, 0.6)
    page = report()
    assert "4 units: in all domains 25 %, some 0 %, one 50 %, none 25 %" in page
    assert "1 units in photo only" in page


def test_importance_runs_have_grids_and_a_summary(make_run, report, tmp_path: Path) -> None:
    path = make_run("importance", {"sketch": 0.6}, settings={"phase_share": 0.5})
    layer = np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3)
    arrays = {
        "initial/layer2": layer,
        "initial/layer3": layer / 2,
        "mask/layer2": layer > 0,
        "final/photo/layer2": layer,
        "importance/photo/layer2": np.abs(layer),
        "mask/photo/layer2": layer > 0.5,
    }
    write_arrays(path / "arrays.npz", arrays)
    page = report()
    for title in ("initial weights, layer2", "initial weights, layer3", "mask of phase 2, layer2",
                  "Trained on photo alone", "binary mask, layer2"):  # fmt: skip
        assert title in page
    summary = (tmp_path / "out" / "summary_report.txt").read_text(encoding="utf-8")
    assert "mask/photo/layer2 (3 × 3): 22.2 % important" in summary
    assert "initial/layer3 (3 × 3): mean 0.0000, lowest -0.5000, highest 0.5000" in summary


def test_without_importance_runs_there_is_no_summary(make_run, report, tmp_path: Path) -> None:
    make_run("dmg", {"sketch": 0.6})
    report()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.html"]


def test_weights_of_reweighting_runs_are_shown(make_run, report) -> None:
    evaluation = {"step": 200, "validation": {"photo": 1.0}}
    evaluation["statistics"] = {"auc": 0.875, "effective_sample_size": 1234.0}
    make_run("reweighting", {"sketch": 0.6}, metrics=[evaluation])
    page = report()
    for text in ("Sample re-weighting", "0.875", "1,234"):
        assert text in page


def test_a_map_shows_the_first_two_components() -> None:
    """They are stored by falling variance; the longer direction fills the square."""
    values = np.array([[-4.0, 1.0, 9.0], [4.0, -1.0, 9.0], [0.0, 0.0, -9.0]])
    places = feature_map(values)
    assert places == pytest.approx(np.array([[0, 0.625], [1, 0.375], [0.5, 0.5]]))
    assert feature_map(values[:, :1])[:, 1] == pytest.approx(0.5)
