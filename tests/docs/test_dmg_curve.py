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


def write_run(runs: Path, method: str, domain: str, accuracy: float, **about) -> None:
    share, seed, steps = about["share"], about["seed"], about["steps"]
    own = {"name": method} | ({"masks": about["masks"]} if "masks" in about else {})
    folder = RunFolder(runs / f"{'-'.join(own.values())}-{domain}-{share}-{steps}-{seed}")
    folder.path.mkdir(parents=True)
    data = {"name": "pacs"} | ({} if share == 1 else {"share": share})  # older runs do not say it
    folder.settings.write_text(json.dumps({"format": FORMAT, "data": data, "method": own}))
    folder.write_result(made_result(method, {domain: accuracy}, seed=seed, steps=steps))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for (share, steps), gains in GAINS.items():
        for seed, gain in enumerate(gains):
            about = {"share": share, "steps": steps, "seed": seed}
            for domain, accuracy in DOMAINS.items():
                level = accuracy + 0.1 * seed
                write_run(tmp_path / "runs", "aggregate", domain, level, **about)
                write_run(tmp_path / "runs", "dmg", domain, level + gain, **about)
    about = {"share": 0.5, "steps": 300, "seed": 0}
    write_run(tmp_path / "runs", "aggregate", "sketch", 0.5, **about)  # alone: no point
    write_run(tmp_path / "runs", "mldg", "sketch", 0.9, **about)
    return tmp_path / "runs"


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
    missing = RunFolder(runs / "dmg-sketch-0.1-300-1")
    missing.result.unlink()
    first = read_points(runs)[0]
    assert (first.seeds, first.half_width) == (1, None)
    assert first.reference == pytest.approx(60)
    assert first.difference == pytest.approx(2)


def test_controls_are_not_the_method(runs: Path) -> None:
    before = read_points(runs)
    for domain in DOMAINS:
        for masks in ("shared", "dropout"):
            write_run(runs, "dmg", domain, 0.1, share=0.1, steps=300, seed=0, masks=masks)
    assert read_points(runs) == before
    write_run(runs, "dmg", "sketch", 0.1, share=0.1, steps=300, seed=2, masks="domain")
    write_run(runs, "dmg", "cartoon", 0.1, share=0.1, steps=300, seed=2, masks="domain")
    for domain in DOMAINS:
        write_run(runs, "aggregate", domain, 0.2, share=0.1, steps=300, seed=2)
    assert read_points(runs)[0].seeds == 3


def test_numbers_and_figure_are_written(runs: Path, tmp_path: Path) -> None:
    points = read_points(runs)
    into = tmp_path / "new" / "results"
    written = write_curve(points, into)
    assert sorted(path.name for path in written) == [
        "dmg_curve.csv",
        "dmg_curve.png",
        "dmg_curve.svg",
    ]
    assert sorted(into.iterdir()) == sorted(written)
    with (into / "dmg_curve.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[1] == {
        "share": "0.1",
        "steps": "600",
        "aggregate": "65.00",
        "dmg": "71.00",
        "difference": "6.00",
        "half_width": "0.00",
        "seeds": "2",
    }
    drawn = figure(points)
    assert [panel.title for panel in drawn.panels] == [
        "dmg − aggregate, 10 % of the images",
        "dmg − aggregate, all images",
    ]
    svg = drawn.panels[0].draw().content
    assert svg.count('class="whisker own"') == 2 * 3  # two intervals, each with two caps
    assert "10 % of the images" in (into / "dmg_curve.svg").read_text(encoding="utf-8")


def test_runs_that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    write_run(tmp_path, "dmg", "sketch", 0.5, share=1, steps=300, seed=0)
    with pytest.raises(UnseenError, match="no finished runs of aggregate and dmg"):
        read_points(tmp_path)


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
