"""Pictures of masks and importances: what is drawn follows from a run's arrays."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from unseen.records.arrays import write_arrays
from unseen.reports.figures.drawing import fitted
from unseen.reports.figures.layout import draw
from unseen.reports.figures.panels import CirclePanel, StripGroup, StripPanel
from unseen.reports.figures.scales import Scale, apart, ticks
from unseen.reports.figures.svg import to_svg
from unseen.reports.page.features import principal_axes, unit_square
from unseen.reports.page.methods.masks import mask_tensors, sorted_units
from unseen.reports.page.runs import load_runs
from unseen.reports.page.write import write_report

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
    (path / "weights").mkdir()
    logits = np.array([[1, 1, -1, -1], [1, -1, -1, 1]], np.float32)
    save_file({"logits.0": logits}, path / "weights" / "source.safetensors")
    return path


def test_units_are_sorted_from_shared_to_nobodys() -> None:
    kept = np.array([[0, 1, 1, 0, 1], [1, 1, 0, 0, 1]], dtype=bool)
    assert sorted_units(kept) == (
        StripGroup((True, True), 2),
        StripGroup((True, False), 1),
        StripGroup((False, True), 1),
        StripGroup((False, False), 1),
    )


def test_strips_tell_the_counts_of_the_weights_file(make_run, tmp_path) -> None:
    masked(make_run, 0.1, 0.5, 0.6)
    (run,), _ = load_runs(tmp_path / "runs")
    kept = mask_tensors(run)["fc"]
    assert kept.tolist() == [[True, True, False, False], [True, False, False, True]]
    drawn = to_svg(draw(StripPanel("fc", ("photo", "cartoon"), sorted_units(kept))))
    assert "4 units: 25 % in all domains, 0 % in some, 50 % in one, 25 % in none" in drawn
    assert "1 units in photo only" in drawn


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
    drawn = to_svg(draw(CirclePanel("w", np.array([[0.5, -1.0], [0.0, 0.25]]), 1.0)))
    assert drawn.count("<circle") == 4
    for text, shade in ((".50", "shade h10"), ("-1.00", "shade h20 negative"), (".25", "shade h5")):
        assert f">{text}</text>" in drawn
        assert f'class="{shade}"' in drawn


def test_a_map_keeps_the_directions_of_largest_variance() -> None:
    rng = np.random.default_rng(0)
    values = np.zeros((40, 3))
    values[:, 1] = rng.normal(size=40) * 5
    values[:, 2] = rng.normal(size=40)
    places = principal_axes(values)
    centred = values - values.mean(axis=0)
    assert np.abs(places[:, 0]) == pytest.approx(np.abs(centred[:, 1]), rel=0.2, abs=0.8)
    assert principal_axes(-values)[:, 0] == pytest.approx(-places[:, 0])
    square = unit_square(places)
    assert square.min(axis=0)[0] == pytest.approx(0)
    assert square.max() == pytest.approx(1)


def test_weights_of_any_magnitude_lie_apart() -> None:
    """On an even scale 0, 0.1 and 1 would share one place beside 10."""
    axis = apart([0.0, 0.1, 1.0, 10.0], "overlap weight")
    assert ticks(axis) == [0.0, 0.1, 1.0, 10.0]
    scale = Scale(axis.low, axis.high, 0, 100, axis.bend)
    places = [scale(mark) for mark in axis.marks]
    assert places[0] > 0
    assert places[-1] < 100
    assert min(b - a for a, b in pairwise(places)) > 15


def test_a_long_name_loses_its_middle() -> None:
    names = [fitted(f"dmg overlap_weight={weight}", 70) for weight in ("0.1", "0.2")]
    assert names[0] != names[1]
    assert all(name.startswith("dmg") and "…" in name for name in names)
    assert fitted("dmg", 70) == "dmg"
