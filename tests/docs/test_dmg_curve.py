"""The curve of DMG against aggregate, from runs whose numbers are known."""

import csv
import json
import math
from pathlib import Path

import pytest
from docs.generators.dmg_curve import Point, figure, read_points, with_earlier, write_curve
from tests.made_results import made_result

from unseen.errors import UnseenError
from unseen.results.files import FORMAT
from unseen.results.folder import RunFolder

DOMAINS = {"sketch": 0.5, "cartoon": 0.7}
GAINS = {(0.1, 300): (0.02, 0.04), (0.1, 600): (0.06, 0.06), (1.0, 300): (-0.03, -0.01)}
"""By share and steps: what each of two seeds gains on every domain."""


def write_run(
    runs: Path, method: str, domain: str, accuracy: float, place: tuple[float, int, int], **own: str
) -> None:
    """A finished run; `place` is its share of the images, its steps and its seed."""
    share, steps, seed = place
    settings = {"name": method, **own}
    folder = RunFolder(runs / "-".join([*settings.values(), domain, *map(str, place)]))
    folder.path.mkdir(parents=True)
    data = {"name": "pacs", "share": share}
    folder.settings.write_text(json.dumps({"format": FORMAT, "data": data, "method": settings}))
    folder.write_result(made_result(method, {domain: accuracy}, seed=seed, steps=steps))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    runs = tmp_path / "runs"
    for key, gains in GAINS.items():
        for seed, gain in enumerate(gains):
            for domain, accuracy in DOMAINS.items():
                level = accuracy + 0.1 * seed
                write_run(runs, "aggregate", domain, level, (*key, seed))
                write_run(runs, "dmg", domain, level + gain, (*key, seed))
    write_run(runs, "aggregate", "sketch", 0.5, (0.5, 300, 0))  # alone: no point
    write_run(runs, "mldg", "sketch", 0.9, (0.5, 300, 0))
    return runs


def test_differences_are_paired_by_seed(runs: Path) -> None:
    points = read_points(runs)
    assert [(point.share, point.steps, point.seeds) for point in points] == [
        (*key, 2) for key in GAINS
    ]
    first = points[0]
    assert first.reference == pytest.approx(65)
    assert first.method == pytest.approx(68)
    assert first.difference == pytest.approx(3)
    # seeds 2 and 4: deviation √2, and t of one degree of freedom is 12.706
    assert first.half_width == pytest.approx(12.706 * math.sqrt(2) / math.sqrt(2), rel=1e-3)
    assert points[1].half_width == pytest.approx(0, abs=1e-6)
    assert points[2].difference == pytest.approx(-2)


def test_a_domain_that_is_missing_leaves_its_seed_out(runs: Path) -> None:
    RunFolder(runs / "dmg-sketch-0.1-300-1").result.unlink()
    first = read_points(runs)[0]
    assert (first.seeds, first.half_width) == (1, None)
    assert (first.reference, first.difference) == (pytest.approx(60), pytest.approx(2))
    alone = runs.parent / "alone"
    write_run(alone, "dmg", "sketch", 0.5, (1, 300, 0))
    with pytest.raises(UnseenError, match="no finished runs of aggregate and dmg"):
        read_points(alone)


def test_controls_are_not_the_method(runs: Path) -> None:
    before = read_points(runs)
    for domain in DOMAINS:
        for masks in ("shared", "dropout"):
            write_run(runs, "dmg", domain, 0.1, (0.1, 300, 0), masks=masks)
    assert read_points(runs) == before
    for domain in DOMAINS:
        write_run(runs, "dmg", domain, 0.1, (0.1, 300, 2), masks="domain")
        write_run(runs, "aggregate", domain, 0.2, (0.1, 300, 2))
    assert read_points(runs)[0].seeds == 3


def test_numbers_and_figure_are_written(runs: Path, tmp_path: Path) -> None:
    points = read_points(runs)
    into = tmp_path / "new" / "results"
    written = write_curve(points, into)
    names = ["dmg_curve.csv", "dmg_curve.png", "dmg_curve.svg"]
    assert sorted(written) == sorted(into.iterdir()) == [into / name for name in names]
    with (into / "dmg_curve.csv").open(encoding="utf-8", newline="") as file:
        header, _, second, *_ = csv.reader(file)
    assert header == ["share", "steps", "aggregate", "dmg", "difference", "half_width", "seeds"]
    assert second == ["0.1", "600", "65.00", "71.00", "6.00", "0.00", "2"]
    drawn = figure(points)
    assert [panel.title for panel in drawn.panels] == [
        "dmg − aggregate, 10 % of the images",
        "dmg − aggregate, all images",
    ]
    svg = drawn.panels[0].content
    assert svg.count('class="whisker own"') == 2 * 3  # two intervals, each with two caps
    assert "10 % of the images" in (into / "dmg_curve.svg").read_text(encoding="utf-8")


def test_points_that_are_not_measured_again_stay(tmp_path: Path) -> None:
    short, long = (
        Point(0.1, 300, 50.0, 52.0, 2.0, None, 1),
        Point(0.1, 2500, 51.0, 54.0, 3.0, 0.5, 3),
    )
    write_curve([short], tmp_path)
    assert with_earlier([long], tmp_path) == [short, long]
    again = short._replace(method=53.5, difference=3.5)
    assert with_earlier([again, long], tmp_path) == [again, long]
    assert with_earlier([long], tmp_path / "elsewhere") == [long]
