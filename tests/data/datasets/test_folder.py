"""Your own pictures: in folders, listed in a manifest, in HDF5 files."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.data.conftest import opened, refused, write_image

from unseen.data.index import UNLABELLED, Index, Split
from unseen.data.prepare import prepare
from unseen.errors import DataError

T, V, E = Split.TRAIN, Split.VALIDATION, Split.TEST
SHARES = {"validation_share": 0.3, "test_share": 0.3}


def folder(root: Path, **values: object) -> Index:
    return opened("folder", root, **values).index()


def test_domains_and_classes_are_folder_names(tree: Path) -> None:
    index = folder(tree)
    assert (index.domains, index.classes) == (("paint", "photo"), ("cat", "dog"))
    assert index.names[2:4] == ("paint/cat/2.png", "paint/dog/0.png")
    assert index.labels.tolist() == [0, 0, 0, 1, 1, 1] * 2
    assert index.domain_of.tolist() == [0] * 6 + [1] * 6
    assert (index.remarks, index.groups) == ((), ())


def test_deeper_uppercase_hidden_and_non_ascii_files(tree: Path) -> None:
    for name in ("photo/dog/more/雪 ñ.PNG", "photo/dog/.thumbs/a.png", "photo/.git/dog/a.png"):
        write_image(tree / name)
    for name in (".cache/dog/a.png", "__MACOSX/photo/0.png"):
        write_image(tree / name)
    (tree / "photo/dog/notes.txt").write_text("x")
    dataset = opened("folder", tree)
    names = dataset.index().names
    assert (len(names), dataset.index().domains) == (13, ("paint", "photo"))
    assert dataset.read(names.index("photo/dog/more/雪 ñ.PNG")).size == (12, 10)


def test_classes_are_renamed_merged_and_left_out(tree: Path) -> None:
    for domain in ("paint", "photo"):
        write_image(tree / domain / "puppy" / "0.png")
        write_image(tree / domain / "junk" / "0.png")
    index = folder(tree, classes={"puppy": "hound", "dog": "hound", "junk": None})
    assert index.classes == ("cat", "hound")
    assert np.bincount(index.labels).tolist() == [6, 8]
    assert folder(tree, classes={"junk": "", "puppy": ""}).classes == ("cat", "dog")
    wrong = {"dgo": "hound"}
    refused("folder", tree, "data.classes maps names .*'dgo'; did you mean 'dog'", classes=wrong)


def test_domains_without_images(tree: Path) -> None:
    (tree / "sketch" / "dog").mkdir(parents=True)
    (tree / "void").mkdir()
    refused("folder", tree, "domains without images of any class in .*: sketch, void")
    shutil.rmtree(tree / "sketch")
    (tree / "void").rmdir()
    shutil.rmtree(tree / "photo" / "cat")
    refused("folder", tree, "without images of any class in .*: photo", classes={"dog": None})


def test_oddities_are_remarked(tree: Path) -> None:
    shutil.rmtree(tree / "photo" / "cat")
    (tree / "photo" / "bird").mkdir()
    write_image(tree / "photo" / "stray.png")
    index = folder(tree)
    assert index.classes == ("cat", "dog")
    assert index.remarks == (
        "in no class folder, and not used: photo/stray.png",
        "classes without images in any domain: bird",
        "photo has no images of: cat",
    )


def test_a_domain_of_pictures_without_class_folders_has_no_labels(tree: Path) -> None:
    for number in range(3):
        write_image(tree / f"west/{number}.png")
    index = folder(tree)
    assert (index.domains, index.labelled_domains) == (
        ("paint", "photo", "west"),
        index.domains[:2],
    )
    assert index.classes == ("cat", "dog")
    assert index.count_classes()["west"] == {"cat": 0, "dog": 0}
    assert sum(index.count_splits()["west"].values()) == 3
    (remark,) = index.remarks
    assert remark.startswith("west has no labels")
    for found in (index, folder(tree, classes={"cat": "animal", "dog": "animal"})):
        assert found.labels[found.rows("west")].tolist() == [UNLABELLED] * 3


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("nowhere", "nowhere does not exist; expected root/domain/class"),
        ("photo/dog/0.png", "is a file; expected root/domain/class"),
        ("photo/dog", "holds no folders; expected root/domain/class"),
        ("photo", r"lie directly in cat, dog\): it looks like root/class"),
    ],
)
def test_wrong_roots(tree: Path, place: str, message: str) -> None:
    refused("folder", tree / place, message)


def test_images_of_a_patient_are_in_one_split(tree: Path) -> None:
    """Three images of each patient in each of two domains."""
    pattern = r"(?P<patient>p\d+)_"
    for domain in ("paint", "photo"):
        for patient in range(40):
            for image in range(3):
                write_image(tree / domain / "cat" / f"p{patient}_{image}.png", number=patient)
    index = folder(tree, group=pattern, **SHARES)
    splits = dict[str, set[int]]()
    for name, group, split in zip(index.names, index.groups, index.splits, strict=True):
        splits.setdefault(group, set()).add(int(split))
        assert group == (name.split("/")[2].split("_")[0] if "_" in name else name)
    assert all(len(found) == 1 for found in splits.values())
    assert set.union(*splits.values()) == {0, 1, 2}
    plain = folder(tree, **SHARES)
    alone = [place for place, name in enumerate(index.names) if "_" not in name]
    assert np.array_equal(index.splits[alone], plain.splits[alone])
    redrawn = folder(tree, group=pattern, official_splits=False, **SHARES)
    assert np.array_equal(redrawn.splits, index.splits)


def test_groups_may_be_listed_in_a_file(tree: Path, tmp_path: Path) -> None:
    listed = tmp_path / "copies.csv"
    listed.write_text("path,group\npaint/cat/0.png,one\nphoto/dog/2.png,one\ngone.png,two\n")
    index = folder(tree, group=str(listed))
    own = dict(zip(index.names, index.groups, strict=True))
    together = ["paint/cat/0.png", "photo/dog/2.png"]
    assert [name for name, group in own.items() if group == "one"] == together
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
    refused("folder", tree, message, group=group)


def test_a_window_changes_the_prepared_images(tree: Path) -> None:
    for file in tree.rglob("*.png"):
        Image.fromarray(np.full((8, 8), 2000, np.uint16)).save(file)
    windows = ({}, {"window": "0,4000"})
    dark, windowed = (prepare(opened("folder", tree, **w), 8) for w in windows)
    assert np.unique(dark.batch(np.arange(2))).tolist() == [8]
    assert np.unique(windowed.batch(np.arange(2))).tolist() == [128]
    assert dark.content != windowed.content


# manifests

PLAIN = "path,class,domain"


def csv_file(tree: Path, *lines: str, header: str = f"{PLAIN},split") -> Path:
    file = tree / "list.csv"
    file.write_text("\n".join((header, *lines)) + "\n", encoding="utf-8")
    return file


def test_csv(tree: Path) -> None:
    file = csv_file(
        tree,
        "photo/dog/0.png,dog,photo,train",
        "photo/cat/0.png,cat,photo,VAL",
        "./paint//dog/0.png,dog,paint,validation",
        f"{tree / 'paint/cat/0.png'},cat,paint,test",
    )
    dataset = opened("manifest", file)
    index = dataset.index()
    assert (index.classes, index.domains) == (("cat", "dog"), ("paint", "photo"))
    assert index.names[2] == "paint/dog/0.png"
    assert index.labels.tolist() == [1, 0, 1, 0]
    assert index.domain_of.tolist() == [1, 1, 0, 0]
    assert index.splits.tolist() == [T, V, V, E]
    assert index.official_test
    assert all(dataset.read(position).mode == "RGB" for position in range(4))


def test_a_domain_without_classes_has_no_labels_and_classes_are_mapped(tree: Path) -> None:
    lines = ["photo/dog/0.png,dog,photo", "photo/cat/0.png,cat,photo"]
    west = ["paint/cat/0.png,,west", "paint/dog/0.png, ,west"]
    file = csv_file(tree, *lines, *west, header=PLAIN)
    index = opened("manifest", file).index()
    assert index.labels.tolist() == [1, 0, UNLABELLED, UNLABELLED]
    assert index.labelled_domains == ("photo",)
    mapped = opened("manifest", file, classes={"dog": "hound", "cat": None}).index()
    assert mapped.classes == ("hound",)
    refused("manifest", file, "'cow'", classes={"cow": "x"})
    file = csv_file(tree, *lines, "photo/dog/1.png,,photo", header=PLAIN)
    refused("manifest", file, "line 4: no class, unlike other images of photo")


def test_json_lines(tree: Path) -> None:
    file = tree / "list.jsonl"
    rows = [
        {"path": "photo/dog/0.png", "class": "hünd", "domain": "photo"},
        {"path": "paint/cat/0.png", "class": 7, "domain": "paint", "split": None},
    ]
    file.write_text("\n\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    index = opened("manifest", file, validation_share=0, test_share=0).index()
    assert index.classes == ("7", "hünd")
    assert index.splits.tolist() == [0, 0]
    assert not index.official_test
    assert index.remarks == ("paint has no images of: hünd", "photo has no images of: 7")
    file.write_text('{"path": "a"\n[1]\n{"path": "photo/dog/0.png"}\n')
    lines = r"line 1: not JSON.*\n.*line 2: not a JSON object\n.*line 3: no domain"
    refused("manifest", file, lines)


def test_rows_without_split_are_drawn_by_name_unless_the_kind_is_given(tree: Path) -> None:
    names = [path.relative_to(tree).as_posix() for path in sorted(tree.rglob("*.png"))]
    lines = [f"{name},{name.split('/')[1]},{name.split('/')[0]}" for name in names]
    shares = {"validation_share": 0.4, "test_share": 0.4}
    drawn = opened("manifest", csv_file(tree, *lines, header=PLAIN), **shares).index()
    assert set(drawn.splits.tolist()) == {0, 1, 2}
    assert not drawn.official_test
    file = csv_file(tree, f"{lines[0]},test", *(f"{line}," for line in lines[1:]))
    given = opened("manifest", file, **shares).index()
    assert given.official_test
    assert (given.splits == E).tolist() == [True] + [False] * 11
    assert (given.splits[1:] == V).tolist() == (drawn.splits[1:] == V).tolist()


def test_all_mistakes_at_once_with_lines(tree: Path) -> None:
    file = csv_file(
        tree,
        "photo/dog/0.png,dog,photo,train",
        "photo/dog/9.png,dog,photo,train",
        "photo/./dog/0.png,dog,photo,train",
        "photo/dog/1.png,,photo,",
        "photo/dog/2.png,dog,photo,trian",
    )
    with pytest.raises(DataError) as caught:
        opened("manifest", file).index()
    text = str(caught.value)
    assert f"line 3: no file {tree / 'photo/dog/9.png'}" in text
    assert "line 4: photo/dog/0.png is on line 2 already" in text
    assert "line 5: no class" in text
    assert "line 6: unknown split 'trian'; did you mean 'train'?" in text
    file = csv_file(tree, *(f"{number}.png,dog,photo," for number in range(25)))
    refused("manifest", file, r"line 11: .*\n  \.\.\. \(25 in all\)$")


def test_header_encoding_and_root(tree: Path) -> None:
    file, message = csv_file(tree, header="path,class,domian"), "has no column domain in its header"
    refused("manifest", file, f"{message} 'path,class,domian'")
    refused("manifest", csv_file(tree), "lists no images")
    refused("manifest", tree, "is a folder; expected a CSV file")
    refused("manifest", tree / "none.csv", "does not exist; expected a CSV file")
    (tree / "latin.csv").write_bytes(f"{PLAIN}\né,a,b".encode("latin-1"))
    refused("manifest", tree / "latin.csv", "cannot be read as UTF-8")


def test_a_column_keeps_images_together(tree: Path) -> None:
    lines = [f"photo/dog/{n}.png,dog,photo,{p}" for n, p in enumerate(("ann", "bob", "ann"))]
    lines += ["paint/cat/0.png,cat,paint,ann", "paint/cat/1.png,cat,paint,"]
    file = csv_file(tree, *lines, header=f"{PLAIN},patient")
    index = opened("manifest", file, group="patient").index()
    assert index.groups == ("ann", "bob", "ann", "ann", "paint/cat/1.png")
    assert len(set(index.splits[[0, 2, 3]].tolist())) == 1
    refused("manifest", file, "data.group=case gives no image a group", group="case")


# HDF5

NAMES = {"first_label": 1, "class_names": ["dog", "cat"]}


def write_hdf5(file: Path, labels: list[int], **arrays: np.ndarray) -> Path:
    images = np.zeros((len(labels), 6, 6, 3), np.uint8)
    images[..., 0] = 200
    images[..., 2] = np.arange(len(labels))[:, None, None]
    with pytest.importorskip("h5py").File(file, "w") as stream:
        for name, array in ({"images": images, "labels": np.array(labels)} | arrays).items():
            stream[name] = array
    return file


@pytest.fixture
def hdf5(tmp_path: Path) -> Path:
    root = tmp_path / "h5"
    root.mkdir()
    for domain in ("art_painting", "photo"):
        write_hdf5(root / f"{domain}_train.hdf5", [1, 2, 1, 2])
        write_hdf5(root / f"{domain}_val.h5", [2])
        write_hdf5(root / f"{domain}_test.hdf5", [1, 2, 1, 2, 2])
    return root


def test_files_decide_domain_and_split(hdf5: Path) -> None:
    index = opened("hdf5", hdf5, **NAMES).index()
    assert (index.domains, index.classes) == (("art_painting", "photo"), ("dog", "cat"))
    assert index.official_test
    rows = dict(zip(index.names, zip(index.labels, index.splits, strict=True), strict=True))
    assert rows["photo_train/000001"] == (1, T)
    assert rows["photo_val/000000"] == (1, V)
    assert rows["photo_test/000000"] == (0, E)
    assert len(index) == 20
    whole = opened("hdf5", hdf5, test_is_whole_domain=True, **NAMES).index()
    assert not whole.official_test
    assert np.bincount(whole.splits).tolist() == [8, 2, 0, 10]
    assert opened("hdf5", hdf5, first_label=1).index().classes == ("1", "2")
    assert opened("hdf5", hdf5).index().classes == ("0", "1", "2")


def test_bgr(hdf5: Path) -> None:
    plain, turned = (opened("hdf5", hdf5, bgr=bgr, **NAMES) for bgr in (False, True))
    position = plain.index().names.index("photo_train/000003")
    assert turned.content(position) != plain.content(position)
    for dataset, colour in ((plain, (200, 0, 3)), (turned, (3, 0, 200))):
        assert dataset.read(position).getpixel((0, 0)) == colour
        assert tuple(prepare(dataset, 8).batch(np.array([position]))[0, :, 0, 0]) == colour


def test_without_val_file_a_share_of_train_validates(tmp_path: Path) -> None:
    write_hdf5(tmp_path / "photo_train.hdf5", [0, 1] * 100)
    index = opened("hdf5", tmp_path, validation_share=0.2).index()
    assert 20 < np.sum(index.splits == V) < 60


def test_hdf5_files_that_cannot_be_used(hdf5: Path, tmp_path: Path) -> None:
    refused("hdf5", hdf5, r"labels outside 2\.\.2: 1; set data\.first_label", first_label=2)
    names = {"first_label": 1, "class_names": ["dog"]}
    refused("hdf5", hdf5, r"labels outside 1\.\.1: 2", **names)
    broken = write_hdf5(hdf5 / "photo_train.hdf5", [1, 2], images=np.zeros((2, 3, 8, 8), np.uint8))
    refused("hdf5", hdf5, r"'images' is uint8 \[2, 3, 8, 8\]; expected")
    write_hdf5(broken, [1, 2, 1], images=np.zeros((2, 8, 8, 3), np.uint8))
    refused("hdf5", hdf5, "3 labels for 2 images")
    write_hdf5(broken, [])
    refused("hdf5", hdf5, "0 labels for 0 images")
    broken.write_bytes(b"no hdf5")
    refused("hdf5", hdf5, r"photo_train\.hdf5 cannot be used")
    refused("hdf5", tmp_path, "no HDF5 files of that form")
    refused("hdf5", tmp_path / "none", "does not exist; expected a folder with files")
