from pathlib import Path

import numpy as np
import pytest

from unseen.data.datasets.published import PACS
from unseen.data.index import Split
from unseen.data.roles import choose_roles
from unseen.errors import DataError

PARTS = ("train", "crossval", "test")


def pacs(root: Path, **values: object) -> PACS:
    return PACS(PACS.Config.model_validate({"name": "pacs", **values}), root)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two domains with one training and one crossval image per class."""
    root = tmp_path / "PACS"
    for domain in ("photo", "sketch"):
        lines: dict[str, list[str]] = {part: [] for part in PARTS}
        for label, name in enumerate(PACS.classes, start=1):
            folder = root / "images" / domain / name
            folder.mkdir(parents=True)
            for part, file in (("train", "ä 1.jpg"), ("crossval", "2.jpg")):
                (folder / file).touch()
                lines[part].append(f"{domain}/{name}/{file} {label}")
                lines["test"].append(f"{domain}/{name}/{file} {label}")
        (root / "splits").mkdir(exist_ok=True)
        for part in PARTS:
            listed = root / "splits" / f"{domain}_{part}_kfold.txt"
            listed.write_text("\n".join(lines[part]) + "\n", encoding="utf-8")
    return root


def change(root: Path, name: str, old: str, new: str) -> None:
    file = root / "splits" / f"{name}_kfold.txt"
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")


def test_lists_decide(root: Path) -> None:
    index = pacs(root).index()
    assert index.domains == ("photo", "sketch")
    assert index.classes == PACS.classes
    assert len(index) == 28
    assert index.names[0] == "photo/dog/ä 1.jpg"
    assert index.labels[:7].tolist() == list(range(7))
    assert index.splits.tolist() == ([Split.TRAIN] * 7 + [Split.VALIDATION] * 7) * 2
    assert not index.official_test
    assert index.remarks == ()


@pytest.mark.parametrize("place", ["", "kfold"])
def test_other_layouts(root: Path, place: str) -> None:
    (root / "lists" / "pre-read").mkdir(parents=True)
    (root / "splits").rename(root / "lists" / "pre-read" / "kfold splits")
    (root / "lists" / "pre-read").rename(root / "Train val splits")
    (root / place).mkdir(exist_ok=True)
    for domain in ("photo", "sketch"):
        (root / "images" / domain).rename(root / place / domain)
    assert len(pacs(root).index()) == 28


def test_folder_name_is_the_class_and_wrong_labels_are_remarked(root: Path) -> None:
    change(root, "photo_crossval", "photo/dog/2.jpg 1", "photo/dog/2.jpg 0")
    index = pacs(root).index()
    assert index.labels[index.names.index("photo/dog/2.jpg")] == 0
    assert index.remarks == (
        "photo_crossval_kfold.txt: label 0 for photo/dog/2.jpg; the folder's name is used",
    )


def test_image_that_only_test_names_is_validated_on_and_never_trained_on(root: Path) -> None:
    change(root, "photo_crossval", "photo/dog/2.jpg 1", "photo/elephant/2.jpg 2")
    index = pacs(root).index()
    assert len(index) == 28
    assert index.splits[index.names.index("photo/dog/2.jpg")] == Split.VALIDATION
    assert any("named more than once: photo/elephant/2.jpg" in text for text in index.remarks)
    assert any("in test only, used for crossval: photo/dog/2.jpg" in t for t in index.remarks)


def test_image_in_train_and_crossval_is_not_trained_on(root: Path) -> None:
    change(root, "photo_train", "photo/dog/ä 1.jpg 1", "photo/dog/2.jpg 1")
    index = pacs(root).index()
    assert index.splits[index.names.index("photo/dog/2.jpg")] == Split.VALIDATION
    assert any("in train and crossval" in text for text in index.remarks)


def test_files_in_no_list_are_remarked(root: Path) -> None:
    (root / "images/photo/dog/extra.jpg").touch()
    (root / "images/photo/dog/.hidden.jpg").touch()
    assert pacs(root).index().remarks == ("in no list, and not used: photo/dog/extra.jpg",)


def test_missing_files_are_listed_with_their_number(root: Path) -> None:
    for name in PACS.classes:
        (root / "images/photo" / name / "2.jpg").unlink()
    with pytest.raises(DataError, match=r"name 7 of 28 files .*photo/dog/2\.jpg.*\(7 in all\)"):
        pacs(root).index()


def test_missing_list(root: Path) -> None:
    (root / "splits" / "photo_crossval_kfold.txt").unlink()
    with pytest.raises(
        DataError, match=r"photo_crossval_kfold\.txt cannot be read .*an official list"
    ):
        pacs(root).index()


def test_malformed_and_foreign_lines(root: Path) -> None:
    change(root, "photo_train", "photo/dog/ä 1.jpg 1", "photo/dog 1")
    with pytest.raises(DataError, match="line 1: 'photo/dog 1'"):
        pacs(root).index()
    change(root, "photo_train", "photo/dog 1", "photo/dogg/1.jpg 1")
    with pytest.raises(DataError, match="class 'dogg'; did you mean 'dog'"):
        pacs(root).index()
    change(root, "photo_train", "photo/dogg/1.jpg 1", "sketch/dog/2.jpg 1")
    with pytest.raises(DataError, match=r"photo/class/file label.: line 1: .sketch/dog/2\.jpg 1"):
        pacs(root).index()


def test_wrong_roots(tmp_path: Path, root: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere does not exist; expected the PACS folder"):
        pacs(tmp_path / "nowhere").index()
    with pytest.raises(DataError, match=r"no '\*_train_kfold.txt' in"):
        pacs(root / "images").index()
    with pytest.raises(DataError, match="no folder 'photo' with images"):
        pacs(root / "splits").index()


def test_real_pacs(real_pacs: Path) -> None:
    index = pacs(real_pacs, unseen_domain="art_painting").index()
    assert index.domains == ("art_painting", "cartoon", "photo", "sketch")
    assert np.bincount(index.domain_of).tolist() == [2048, 2344, 1670, 3929]
    train = np.bincount(index.domain_of[index.splits == Split.TRAIN])
    assert train.tolist() == [1840, 2107, 1499, 3531]
    assert index.labels[index.names.index("art_painting/dog/pic_225.jpg")] == 0
    assert len(index.remarks) == 3
    settings = PACS.Config.model_validate({"name": "pacs", "unseen_domain": "art_painting"})
    roles = choose_roles(index, settings)
    assert len(roles.out_of_domain["art_painting"]) == 2048
    assert {d: len(rows) for d, rows in roles.in_domain.items()} == {
        "cartoon": 237,
        "photo": 171,
        "sketch": 398,
    }


def test_real_sketch_is_read_as_rgb(real_pacs: Path) -> None:
    dataset = pacs(real_pacs)
    position = dataset.index().domain_of.tolist().index(3)
    image = dataset.read(position)
    assert image.mode == "RGB"
    assert image.size == (227, 227)
