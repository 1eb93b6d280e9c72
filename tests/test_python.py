"""What Python has of a run, a comparison and a forecast: names, numbers, tables, figures."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.tiny import TINY

import unseen
from unseen.reports.shown import Shown


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> unseen.Comparison:
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNSEEN_CACHE", str(folder / "cache"))
        methods = ("aggregate", "dmg")
        return unseen.compare("digits", methods=methods, unseen="outlines", runs=folder, **TINY)


@pytest.fixture
def run(comparison: unseen.Comparison) -> unseen.Run:
    return unseen.load_run(comparison.folders[1])


@pytest.fixture
def images() -> list[np.ndarray]:
    return list(np.random.default_rng(0).integers(0, 256, (3, 20, 20, 3), dtype=np.uint8))


def check(shown: Shown, folder: Path, names: set[str]) -> Any:
    """Its data frame, after its table and its figure were looked at."""
    page = ElementTree.fromstring(f"<div>{shown._repr_html_()}</div>")
    assert page.findall("table/tr")
    drawn = ElementTree.fromstring(shown.plot()._repr_svg_())
    assert names <= {each.text for each in drawn.iter("{http://www.w3.org/2000/svg}text")}
    for kind in ("svg", "pdf", "png"):
        shown.plot().save(folder / f"figure.{kind}")
        assert (folder / f"figure.{kind}").stat().st_size > 1000
    with pytest.raises(unseen.UnseenError, match=r"should end in \.svg, \.pdf or \.png"):
        shown.plot().save(folder / "figure.gif")
    pytest.importorskip("pandas")
    return shown.to_frame()


def test_a_comparison(comparison: unseen.Comparison, tmp_path: Path) -> None:
    frame = check(comparison, tmp_path, {"aggregate", "dmg", "outlines", "overall"})
    found = frame[(frame.view == "out_of_domain") & (frame.column == "outlines")]
    expected = [100 * unseen.load_run(each).accuracy()["outlines"] for each in comparison.folders]
    assert list(found["mean"])[:2] == pytest.approx(expected)


def test_a_run(run: unseen.Run, tmp_path: Path) -> None:
    frame = check(run, tmp_path, {"outlines"}).set_index(["view", "domain"])
    assert frame.accuracy["out_of_domain", "outlines"] == run.accuracy()["outlines"]


def test_a_forecast(run: unseen.Run, images: list[np.ndarray], tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.png" for number in range(len(images))]
    for file, pixels in zip(files, images, strict=True):
        Image.fromarray(pixels).save(file)
    found = run.forecast(files)
    frame = check(found, tmp_path, {"forecast"})
    assert len(frame) == len(found.forecast.estimates)


def test_classes_have_names(run: unseen.Run, images: list[np.ndarray]) -> None:
    for domain in (None, "plain"):
        rows = run.predict(images, domain)
        named = run.classify(images, domain)
        assert [each.name for each in named] == [run.classes[i] for i in rows.argmax(axis=1)]
        assert [each.probability for each in named] == pytest.approx(rows.max(axis=1))


def test_a_run_is_opened_by_path_string_or_folder(run: unseen.Run) -> None:
    for place in (run.folder, run.folder.path, str(run.folder.path)):
        assert isinstance(unseen.load(place), unseen.Predictor)
        assert unseen.load_run(place).result == run.result
