"""Panels and figures: what is drawn, and the files for a paper."""

import re

import numpy as np
import pytest

from unseen.errors import UnseenError
from unseen.reports.figures import figure as figures
from unseen.reports.figures.charts import (
    Axis,
    ChartRow,
    Cloud,
    Line,
    Mark,
    curve_chart,
    point_map,
    row_chart,
    thinned,
)
from unseen.reports.figures.figure import Figure, to_picture, write_figures
from unseen.reports.figures.grids import (
    circle_grid,
    confusion_map,
    heat_map,
    image_sheet,
    picture,
    unit_strips,
)
from unseen.reports.figures.svg import Key, fitted

VALUES = np.linspace(-1, 1, 4).reshape(2, 2)
AXIS = Axis(0, 1, "$ and _")
BAR = Mark("", 0.5, 0.1, "bar")
PANELS = (
    row_chart("bars", [ChartRow("a", 0, (BAR,), "", (), (0.4, 0.6)), ChartRow("b", 1, ())], AXIS),
    row_chart("dots", [ChartRow("a", 1, (Mark("m", 0.5, 0.1), Mark("n", 0.7)))], AXIS, zero=True),
    curve_chart("curves", [Line("a", 2, ((0, 0), (1, 1)), True)], AXIS, AXIS, diagonal=True),
    heat_map("heat", ("a", "b"), ("c", "$d"), abs(VALUES), (("1", "$"), ("2", "3")), "x", "y"),
    unit_strips("strips", ("a", "b"), np.array([[1, 1], [0, 1]])),
    circle_grid("circles", VALUES, 1.0),
    point_map("map", [Cloud("a", 3, abs(VALUES), True)], (Key("α ± β", 3, "hollow"),)),
    image_sheet("sheet", [picture(np.zeros((8, 8, 3), np.uint8), "dog → <house>", "b")]),
)
FIGURE = Figure("all", "all", "", PANELS, (Key("$a\x01", 0, "dashed"), Key("dot", 1, "dot")))


def test_every_kind_of_panel_can_be_drawn_for_a_paper_and_again_the_same(tmp_path) -> None:
    for folder in ("a", "b"):
        write_figures([FIGURE], tmp_path / folder)
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert files == ["all.pdf", "all.png", "all.svg"]
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    text = (tmp_path / "a" / "all.svg").read_text(encoding="utf-8")
    assert text == FIGURE.svg() == FIGURE._repr_svg_()
    assert "dog → &lt;house&gt;" in text
    assert "var(--" not in text  # programs for SVG files know no variables
    assert (tmp_path / "a" / "all.pdf").read_bytes().startswith(b"%PDF")


def test_without_typst_the_package_to_install_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(figures, "find_spec", lambda name: None)
    with pytest.raises(UnseenError, match=r"pip install 'unseen\[figures\]'"):
        write_figures([FIGURE], tmp_path)
    assert not list(tmp_path.iterdir())


def test_circles_have_the_number_inside_and_the_colour_of_its_size() -> None:
    drawn = circle_grid("w", np.array([[0.5, -1.0], [0.0, 0.25]]), 1.0).content
    assert drawn.count("<circle") == 4
    looks = (
        (".50", 'fill-opacity="0.5" class="shade"'),
        ("-1.00", 'fill-opacity="1" class="shade negative"'),
        (".25", 'fill-opacity="0.25" class="shade"'),
    )
    for text, look in looks:
        assert f">{text}</text>" in drawn
        assert look in drawn


def test_units_are_sorted_from_shared_to_nobodys() -> None:
    drawn = unit_strips("", ("a", "b"), np.array([[0, 1, 1, 0, 1], [1, 1, 0, 0, 1]], dtype=bool))
    told = ("2 units in all domains", "1 units in a only", "1 units in b only")
    assert drawn.description == "; ".join((*told, "1 units in no domain"))


def test_curves_keep_their_ends_and_their_values() -> None:
    points = [(step, step / 7) for step in range(1, 1001)]
    few = thinned(points, 80)
    assert len(few) == 80
    assert (few[0], few[-1]) == (points[0], points[-1])
    assert set(few) <= set(points)


def test_a_long_name_loses_its_middle() -> None:
    names = [fitted(f"dmg overlap_weight={weight}", 70) for weight in ("0.1", "0.2")]
    assert names[0] != names[1]
    assert all(name.startswith("dmg") and "…" in name for name in names)
    assert fitted("dmg", 70) == "dmg"


def test_a_confusion_matrix_is_darkest_where_a_class_went() -> None:
    """Rows are true classes: all four cats were taken for dogs, one dog of four for a cat."""
    drawing = confusion_map("", np.array([[0, 4], [1, 3]]), ["cat", "dog"], counts=True)
    assert re.findall(r"(\d+)</text>", drawing.content) == ["0", "4", "1", "3"]
    assert re.findall(r'fill-opacity="([\d.]+)"', drawing.content) == ["0", "1", "0.25", "0.75"]
    found = {color for _, color in to_picture(drawing).getcolors(100_000) or []}
    assert {(255, 255, 255), (11, 79, 138)} <= found


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
