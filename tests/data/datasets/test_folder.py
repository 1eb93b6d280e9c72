import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from unseen.data.datasets.folder import Folder
from unseen.data.index import UNLABELLED
from unseen.data.prepare import prepare
from unseen.errors import DataError


def folder(root: Path, **values: object) -> Folder:
    return Folder(Folder.Config.model_validate({"name": "folder", **values}), root)


def test_domains_and_classes_are_folder_names(tree: Path) -> None:
    index = folder(tree).index()
    assert index.domains == ("paint", "photo")
    assert index.classes == ("cat", "dog")
    assert index.names[:4] == (
        "paint/cat/0.png",
        "paint/cat/1.png",
        "paint/cat/2.png",
        "paint/dog/0.png",
    )
    assert index.labels.tolist() == [0, 0, 0, 1, 1, 1] * 2
    assert index.domain_of.tolist() == [0] * 6 + [1] * 6
    assert index.remarks == ()


def test_deeper_uppercase_hidden_and_non_ascii_files(
    tree: Path, write_image: Callable[..., Path]
) -> None:
    write_image(tree / "photo/dog/more/雪 ñ.PNG")
    write_image(tree / "photo/dog/.thumbs/a.png")
    write_image(tree / "photo/.git/dog/a.png")
    write_image(tree / ".cache/dog/a.png")
    (tree / "photo/dog/notes.txt").write_text("x")
    dataset = folder(tree)
    names = dataset.index().names
    assert len(names) == 13
    assert dataset.read(names.index("photo/dog/more/雪 ñ.PNG")).size == (12, 10)


def test_adding_a_file_moves_no_other(tree: Path, write_image: Callable[..., Path]) -> None:
    shares = {"validation_share": 0.3, "test_share": 0.3}
    before = folder(tree, **shares).index()
    write_image(tree / "paint/cat/00.png")
    after = folder(tree, **shares).index()
    moved = dict(zip(after.names, after.splits, strict=True))
    assert len(after) == 13
    assert all(moved[n] == s for n, s in zip(before.names, before.splits, strict=True))


def test_classes_are_renamed_merged_and_left_out(
    tree: Path, write_image: Callable[..., Path]
) -> None:
    for domain in ("paint", "photo"):
        write_image(tree / domain / "puppy" / "0.png")
        write_image(tree / domain / "junk" / "0.png")
    index = folder(tree, classes={"puppy": "hound", "dog": "hound", "junk": None}).index()
    assert index.classes == ("cat", "hound")
    assert np.bincount(index.labels).tolist() == [6, 8]
    assert folder(tree, classes={"junk": "", "puppy": ""}).index().classes == ("cat", "dog")


def test_mapping_of_an_unknown_folder(tree: Path) -> None:
    with pytest.raises(DataError, match=r"data.classes maps names .*'dgo'; did you mean 'dog'"):
        folder(tree, classes={"dgo": "hound"}).index()


def test_empty_domain(tree: Path) -> None:
    (tree / "sketch" / "dog").mkdir(parents=True)
    (tree / "void").mkdir()
    with pytest.raises(DataError, match=r"domains without images of any class in .*: sketch, void"):
        folder(tree).index()


def test_domain_emptied_by_the_mapping(tree: Path) -> None:
    shutil.rmtree(tree / "photo" / "cat")
    with pytest.raises(DataError, match=r"domains without images of any class in .*: photo"):
        folder(tree, classes={"dog": None}).index()


def test_missing_and_empty_classes_are_remarked(tree: Path) -> None:
    shutil.rmtree(tree / "photo" / "cat")
    (tree / "photo" / "bird").mkdir()
    index = folder(tree).index()
    assert index.classes == ("cat", "dog")
    assert index.remarks == (
        "classes without images in any domain: bird",
        "photo has no images of: cat",
    )


def test_pictures_beside_the_class_folders_are_remarked(
    tree: Path, write_image: Callable[..., Path]
) -> None:
    write_image(tree / "photo" / "stray.png")
    assert folder(tree).index().remarks == ("in no class folder, and not used: photo/stray.png",)


def test_a_domain_of_pictures_without_class_folders_has_no_labels(
    tree: Path, write_image: Callable[..., Path]
) -> None:
    for number in range(3):
        write_image(tree / f"west/{number}.png")
    index = folder(tree).index()
    assert index.domains == ("paint", "photo", "west")
    assert index.labelled_domains == ("paint", "photo")
    assert index.classes == ("cat", "dog")
    assert index.labels[index.rows("west")].tolist() == [UNLABELLED] * 3
    assert index.count_classes()["west"] == {"cat": 0, "dog": 0}
    assert sum(index.count_splits()["west"].values()) == 3
    (remark,) = index.remarks
    assert remark.startswith("west has no labels")
    renamed = folder(tree, classes={"cat": "animal", "dog": "animal"}).index()
    assert renamed.labels[renamed.rows("west")].tolist() == [UNLABELLED] * 3


def test_wrong_roots(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere does not exist; expected root/domain/class"):
        folder(tmp_path / "nowhere").index()
    with pytest.raises(DataError, match="is a file; expected root/domain/class"):
        folder(tree / "photo/dog/0.png").index()
    with pytest.raises(DataError, match="holds no folders; expected root/domain/class"):
        folder(tree / "photo/dog").index()
    with pytest.raises(DataError, match=r"lie directly in cat, dog\): it looks like root/class"):
        folder(tree / "photo").index()


PATIENT = r"(?P<patient>p\d+)_"


def patients(root: Path, write_image: Callable[..., Path], number: int) -> None:
    """Three images of each patient in each of two domains."""
    for domain in ("paint", "photo"):
        for patient in range(number):
            for image in range(3):
                write_image(root / domain / "cat" / f"p{patient}_{image}.png", number=patient)


def test_images_of_a_patient_are_in_one_split(tree: Path, write_image: Callable[..., Path]) -> None:
    patients(tree, write_image, 40)
    shares = {"validation_share": 0.3, "test_share": 0.3}
    index = folder(tree, group=PATIENT, **shares).index()
    splits = dict[str, set[int]]()
    for name, group, split in zip(index.names, index.groups, index.splits, strict=True):
        splits.setdefault(group, set()).add(int(split))
        assert group == (name.split("/")[2].split("_")[0] if "_" in name else name)
    assert all(len(found) == 1 for found in splits.values())
    assert set.union(*splits.values()) == {0, 1, 2}
    plain = folder(tree, **shares).index()
    assert plain.groups == ()
    alone = [place for place, name in enumerate(index.names) if "_" not in name]
    assert np.array_equal(index.splits[alone], plain.splits[alone])
    redrawn = folder(tree, group=PATIENT, official_splits=False, **shares).index()
    assert np.array_equal(redrawn.splits, index.splits)


def test_groups_may_be_listed_in_a_file(tree: Path, tmp_path: Path) -> None:
    listed = tmp_path / "copies.csv"
    listed.write_text("path,group\npaint/cat/0.png,one\nphoto/dog/2.png,one\ngone.png,two\n")
    index = folder(tree, group=str(listed)).index()
    own = dict(zip(index.names, index.groups, strict=True))
    assert [name for name, group in own.items() if group == "one"] == [
        "paint/cat/0.png",
        "photo/dog/2.png",
    ]
    assert own["paint/cat/1.png"] == "paint/cat/1.png"
    assert index.without({"paint/cat/0.png"}).groups == index.groups[1:]


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ("(?P<patient>p[0-9]+", "is no regular expression"),
        ("(?P<patient>case[0-9]+)", r"gives no image a group; .*paint/cat/0.png"),
        ("patient", "gives no image a group"),
        ("nowhere.csv", "nowhere.csv cannot be read .*; expected a CSV file path,group"),
    ],
)
def test_groups_that_cannot_be_found(tree: Path, group: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        folder(tree, group=group).index()


def test_a_window_changes_the_prepared_images(tree: Path) -> None:
    for file in tree.rglob("*.png"):
        Image.fromarray(np.full((8, 8), 2000, np.uint16)).save(file)
    dark, windowed = (prepare(folder(tree, **w), 8) for w in ({}, {"window": "0,4000"}))
    assert np.unique(dark.batch(np.arange(2))).tolist() == [8]
    assert np.unique(windowed.batch(np.arange(2))).tolist() == [128]
    assert dark.content != windowed.content


def test_archives_of_macs_are_no_domain(tree: Path, write_image: Callable[..., Path]) -> None:
    write_image(tree / "__MACOSX" / "photo" / "0.png")
    assert folder(tree).index().domains == ("paint", "photo")
