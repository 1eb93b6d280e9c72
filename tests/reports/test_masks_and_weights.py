"""Pictures of masks and importances: what is drawn follows from a run's arrays."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from unseen.reports.figures.axes import Scale, apart
from unseen.reports.figures.grids import CirclePanel, sorted_units
from unseen.reports.figures.svg import fitted
from unseen.reports.page.importance import end_of_phase_1
from unseen.reports.page.pictures import feature_map
from unseen.reports.page.runs import load_runs
from unseen.reports.page.write import write_report
from unseen.results.files import write_arrays

SHARES = {"soft": 0.55, "hard": 0.75}


def statistics(soft: float) -> dict:
    pair = {"photo|cartoon": {"soft": soft, "hard": soft / 2}}
    return {"fc": {"kept": {"photo": SHARES, "cartoon": SHARES}, "iou": pair}}


def masked(make_run, weight: float, soft: float, accuracy: float) -> Path:
    evaluation = {"step": 200, "validation": {"photo": 1.0}, "statistics": statistics(soft)}
    path = make_run(
        "dmg", {"sketch": accuracy}, metrics=[evaluation], run=f"dmg-{weight}",
        settings={"overlap_weight": weight},
    )  # fmt: skip
    chances = np.array([[0.7, 0.6, 0.2, 0.1], [0.9, 0.4, 0.3, 0.8]], np.float32)
    write_arrays(path / "arrays.npz", {"mask.fc": chances})
    return path


def test_units_are_sorted_from_shared_to_nobodys() -> None:
    kept = np.array([[0, 1, 1, 0, 1], [1, 1, 0, 0, 1]], dtype=bool)
    assert list(sorted_units(kept).items()) == [
        ((True, True), 2),
        ((True, False), 1),
        ((False, True), 1),
        ((False, False), 1),
    ]


def test_strips_tell_the_counts_of_the_methods_arrays(make_run, tmp_path) -> None:
    masked(make_run, 0.1, 0.5, 0.6)
    page = write_report(tmp_path / "runs", tmp_path / "out").read_text(encoding="utf-8")
    assert "4 units: 25 % in all domains, 0 % in some, 50 % in one, 25 % in none" in page
    assert "1 units in photo only" in page


def test_a_sweep_shows_overlap_weight_against_iou_and_accuracy(make_run, tmp_path) -> None:
    masked(make_run, 0.0, 0.8, 0.60)
    masked(make_run, 0.5, 0.4, 0.62)
    page = write_report(tmp_path / "runs", tmp_path / "out").read_text(encoding="utf-8")
    assert "Overlap weight, IoU and accuracy" in page
    assert 'data-label="soft IoU" data-values="[[0.0,0.8],[0.5,0.4]]"' in page
    assert 'data-label="hard IoU" data-values="[[0.0,0.4],[0.5,0.2]]"' in page
    assert 'data-label="accuracy" data-values="[[0.0,60.0],[0.5,62.0]]"' in page


def test_importance_runs_have_grids_and_a_summary(make_run, tmp_path) -> None:
    path = make_run("importance", {"sketch": 0.6}, settings={"phase_share": 0.5})
    layer = np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3)
    write_arrays(
        path / "arrays.npz",
        {
            "initial/layer2": layer,
            "initial/layer3": layer / 2,
            "mask/layer2": layer > 0,
            "final/photo/layer2": layer,
            "importance/photo/layer2": np.abs(layer),
            "mask/photo/layer2": layer > 0.5,
        },
    )
    page = write_report(tmp_path / "runs", tmp_path / "out").read_text(encoding="utf-8")
    for title in ("initial weights, layer2", "initial weights, layer3", "mask of phase 2, layer2",
                  "Trained on photo alone", "binary mask, layer2"):  # fmt: skip
        assert title in page
    summary = (tmp_path / "out" / "summary_report.txt").read_text(encoding="utf-8")
    assert "mask/photo/layer2 (3 × 3): 22.2 % important" in summary
    assert "initial/layer3 (3 × 3): mean 0.0000, lowest -0.5000, highest 0.5000" in summary


def test_without_importance_runs_there_is_no_summary(make_run, tmp_path) -> None:
    make_run("dmg", {"sketch": 0.6})
    write_report(tmp_path / "runs", tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.html"]


def test_circles_have_the_number_inside_and_the_colour_of_its_size() -> None:
    drawn = CirclePanel("w", np.array([[0.5, -1.0], [0.0, 0.25]]), 1.0).draw().content
    assert drawn.count("<circle") == 4
    for text, shade, look in (
        (".50", "0.5", "shade"),
        ("-1.00", "1", "shade negative"),
        (".25", "0.25", "shade"),
    ):
        assert f">{text}</text>" in drawn
        assert f'fill-opacity="{shade}" class="{look}"' in drawn


@pytest.mark.parametrize("step", [None, 7])
def test_phases_end_where_the_method_says(make_run, tmp_path, step) -> None:
    """Half of 20 steps would be 10; the method may have ended its first phase elsewhere."""
    evaluations = [
        {"step": step, "validation": {"photo": 1.0}, "statistics": {"phase": 1 + (step > 8)}}
        for step in (4, 8, 12)
    ]
    unfinished = {} if step else {"finished": False}
    path = make_run(
        "importance", {"sketch": 0.6}, metrics=evaluations, steps=20, settings=unfinished
    )
    if step:
        write_arrays(path / "arrays.npz", {"phase_steps": np.array([0, step, 20])})
    (run,), _ = load_runs(tmp_path / "runs")
    assert end_of_phase_1(run) == (step or 8)


def test_a_map_shows_the_first_two_components() -> None:
    """They are stored by falling variance; the longer direction fills the square."""
    values = np.array([[-4.0, 1.0, 9.0], [4.0, -1.0, 9.0], [0.0, 0.0, -9.0]])
    places = feature_map(values)
    assert places == pytest.approx(np.array([[0, 0.625], [1, 0.375], [0.5, 0.5]]))
    assert feature_map(values[:, :1])[:, 1] == pytest.approx(0.5)


def test_weights_of_any_magnitude_lie_apart() -> None:
    """On an even scale 0, 0.1 and 1 would share one place beside 10."""
    axis = apart([0.0, 0.1, 1.0, 10.0], "overlap weight")
    assert axis.ticks() == [0.0, 0.1, 1.0, 10.0]
    scale = Scale(axis, 0, 100)
    places = [scale(mark) for mark in axis.marks]
    assert places[0] > 0
    assert places[-1] < 100
    assert min(b - a for a, b in pairwise(places)) > 15


def test_a_long_name_loses_its_middle() -> None:
    names = [fitted(f"dmg overlap_weight={weight}", 70) for weight in ("0.1", "0.2")]
    assert names[0] != names[1]
    assert all(name.startswith("dmg") and "…" in name for name in names)
    assert fitted("dmg", 70) == "dmg"
