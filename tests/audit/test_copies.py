from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps
from tests.audit.conftest import SIZE, scene

from unseen.data.datasets.folder import Folder
from unseen.data.index import Split


def copies_of(root: Path, look, kind: str) -> set[tuple[str, ...]]:
    report = look(root)
    found = report.of(kind)
    return {tuple(report.names[row] for row in each.rows) for each in found.examples}


@pytest.mark.parametrize(
    "change",
    [
        lambda image: image,
        lambda image: image.resize((41, 41)),
        lambda image: image.resize((200, 150)),
        ImageOps.mirror,
        lambda image: ImageOps.mirror(image.resize((60, 60))),
    ],
)
def test_changed_copies_are_found(scans: Path, look, change) -> None:
    change(scene(3)).save(scans / "south/cat/again.jpg", quality=50)
    pairs = copies_of(scans, look, "copies between domains")
    assert pairs == {("north/cat/02.png", "south/cat/again.jpg")}


def test_copies_are_told_apart_by_what_is_wrong_with_them(scans: Path, look) -> None:
    scene(3).save(scans / "north/cat/again.png")
    scene(4).save(scans / "north/dog/again.png")
    assert copies_of(scans, look, "copies") == {("north/cat/02.png", "north/cat/again.png")}
    assert copies_of(scans, look, "copies between classes") == {
        ("north/cat/03.png", "north/dog/again.png")
    }
    assert look(scans).of("copies between domains") is None


def test_blank_images_are_alike_only_if_they_are_equal(scans: Path, look) -> None:
    for number in range(3):
        noise = np.random.default_rng(number).integers(200, 202, (SIZE, SIZE)).astype(np.uint8)
        Image.fromarray(noise).save(scans / "north/cat" / f"blank{number}.png")
    assert look(scans).of("copies") is None


def test_groups_of_copies_are_kept_together(scans: Path, look, tmp_path: Path) -> None:
    for number in range(8):
        scene(number + 1).save(scans / "south/cat" / f"copy{number}.png")
    scene(1).save(scans / "north/cat/copy.png")
    report = look(scans)
    own = dict(zip(report.names, report.groups, strict=True))
    first = ("north/cat/00.png", "north/cat/copy.png", "south/cat/copy0.png")
    assert {own[name] for name in first} == {"north/cat/00.png"}
    report.write_groups(file := tmp_path / "copies.csv")
    config = {"name": "folder", "group": str(file), "validation_share": 0.3, "test_share": 0.3}
    index = Folder(Folder.Config.model_validate(config), scans).index()
    assert index.groups == report.groups
    split = dict(zip(index.names, index.splits, strict=True))
    assert len({split[name] for name in first}) == 1
    assert set(index.splits) == {Split.TRAIN, Split.VALIDATION, Split.TEST}


def test_patients_and_copies_are_one_group(scans: Path, look) -> None:
    """Copies join the groups that the settings name."""
    scene(1).save(scans / "south/dog/copy.png")
    report = look(scans, group=r"(?P<patient>(north|south)/\w+/[01])")
    own = dict(zip(report.names, report.groups, strict=True))
    assert own["south/dog/copy.png"] == own["north/cat/00.png"] == own["north/cat/05.png"]
    assert own["north/cat/15.png"] != own["north/cat/05.png"]
