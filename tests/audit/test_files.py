import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.audit.conftest import scene

from unseen.data import images


def test_a_clean_folder_has_no_findings(scans: Path, look) -> None:
    report = look(scans)
    assert report.findings == ()
    assert report.groups == report.names
    assert "labels" not in report.checked


def test_files_that_are_passed_over_are_counted_by_ending(
    scans: Path, look, monkeypatch: pytest.MonkeyPatch
) -> None:
    (scans / "north/cat/film.MP4").write_bytes(b"film")
    (scans / "north/cat/more").mkdir()
    (scans / "north/cat/more/film.mp4").write_bytes(b"film")
    (scans / "south/readme").write_text("x")
    (scans / "south/dog/a.dcm").write_bytes(bytes(128) + b"DICM")
    (scans / "south/dog/.hidden.txt").write_text("x")
    (scans / "about.txt").write_text("beside the domains")
    monkeypatch.setattr(images, "is_installed", lambda module: False)
    found = look(scans).of("ignored files")
    assert found.count == 4
    assert "2 .mp4, 1 without an ending, 1 .dcm" in found.text
    assert "`pip install pydicom` reads 1 of them" in found.text
    assert "north/cat/more/film.mp4" in [each.caption for each in found.examples]


def test_splits_are_no_domains(scans: Path, look) -> None:
    (scans / "north").rename(scans / "train")
    assert look(scans).of("splits for domains") is None
    (scans / "south").rename(scans / "VAL")
    assert "VAL, train" in look(scans).of("splits for domains").text


def test_a_folder_level_too_many(scans: Path, look, tmp_path: Path) -> None:
    (tmp_path / "outer").mkdir()
    scans.rename(tmp_path / "outer" / "images")
    text = look(tmp_path / "outer").of("a folder level too many").text
    assert (
        f"data.root to the folder that holds the domains, such as {tmp_path}/outer/images" in text
    )


def test_folders_of_patients_are_no_level_too_many(scans: Path, look) -> None:
    for number, file in enumerate(sorted(scans.rglob("*.png"))):
        (file.parent / f"patient{number // 3}").mkdir(exist_ok=True)
        file.rename(file.parent / f"patient{number // 3}" / file.name)
    assert look(scans).findings == ()


def test_a_single_class(scans: Path, look) -> None:
    for domain in ("north", "south"):
        shutil.rmtree(scans / domain / "dog")
    assert "cat" in look(scans).of("a single class").text


@pytest.mark.parametrize("other", ["Dog", "dogs", "d og", "ｄｏｇ"])
def test_class_names_that_differ_by_spelling(scans: Path, look, other: str) -> None:
    (scans / "south/dog").rename(scans / "south" / other)
    text = look(scans).of("similar class names").text
    assert f"'data.classes={{{min(other, 'dog')}: {max(other, 'dog')}}}'" in text


def test_classes_that_stand_side_by_side_are_two(scans: Path, look) -> None:
    for domain in ("north", "south"):
        (scans / domain / "cat").rename(scans / domain / "dogs")
    assert look(scans).of("similar class names") is None


def test_twelve_bits_in_sixteen_are_nearly_black(scans: Path, look) -> None:
    for number in range(3):
        values = np.asarray(scene(500 + number).convert("L")).astype(np.uint16) * 16
        Image.fromarray(values).save(scans / "north/cat" / f"deep{number}.png")
    scene(600).point(lambda value: value // 8).save(scans / "north/cat/night.png")
    assert "data.window=0,4095" in look(scans).of("nearly black").text
    assert look(scans, window=(0, 4095)).of("nearly black") is None
