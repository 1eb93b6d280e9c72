import json
from pathlib import Path

import pytest

from unseen.data.datasets.folder import Manifest
from unseen.data.index import UNLABELLED, Split
from unseen.errors import DataError


def manifest(file: Path, **values: object) -> Manifest:
    return Manifest(Manifest.Config.model_validate({"name": "manifest", **values}), file)


def csv_file(tree: Path, *lines: str, header: str = "path,class,domain,split") -> Path:
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
    dataset = manifest(file)
    index = dataset.index()
    assert index.classes == ("cat", "dog")
    assert index.domains == ("paint", "photo")
    assert index.names[2] == "paint/dog/0.png"
    assert index.labels.tolist() == [1, 0, 1, 0]
    assert index.domain_of.tolist() == [1, 1, 0, 0]
    assert index.splits.tolist() == [Split.TRAIN, Split.VALIDATION, Split.VALIDATION, Split.TEST]
    assert index.official_test
    assert all(dataset.read(position).mode == "RGB" for position in range(4))


def test_a_domain_without_classes_has_no_labels(tree: Path) -> None:
    lines = ["photo/dog/0.png,dog,photo", "photo/cat/0.png,cat,photo"]
    west = ["paint/cat/0.png,,west", "paint/dog/0.png, ,west"]
    index = manifest(csv_file(tree, *lines, *west, header="path,class,domain")).index()
    assert index.labels.tolist() == [1, 0, UNLABELLED, UNLABELLED]
    assert index.labelled_domains == ("photo",)
    some = [*lines, "photo/dog/1.png,,photo"]
    with pytest.raises(DataError, match="line 4: no class, unlike other images of photo"):
        manifest(csv_file(tree, *some, header="path,class,domain")).index()


def test_json_lines(tree: Path) -> None:
    file = tree / "list.jsonl"
    rows = [
        {"path": "photo/dog/0.png", "class": "hünd", "domain": "photo"},
        {"path": "paint/cat/0.png", "class": 7, "domain": "paint", "split": None},
    ]
    file.write_text("\n\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    index = manifest(file, validation_share=0, test_share=0).index()
    assert index.classes == ("7", "hünd")
    assert index.splits.tolist() == [0, 0]
    assert not index.official_test
    assert index.remarks == ("paint has no images of: hünd", "photo has no images of: 7")


def test_rows_without_split_are_drawn_by_name_unless_the_kind_is_given(tree: Path) -> None:
    names = [path.relative_to(tree).as_posix() for path in sorted(tree.rglob("*.png"))]
    lines = [f"{name},{name.split('/')[1]},{name.split('/')[0]}" for name in names]
    file = csv_file(tree, *lines, header="path,class,domain")
    shares = {"validation_share": 0.4, "test_share": 0.4}
    drawn = manifest(file, **shares).index()
    assert set(drawn.splits.tolist()) == {0, 1, 2}
    assert not drawn.official_test
    file = csv_file(tree, f"{lines[0]},test", *(f"{line}," for line in lines[1:]))
    given = manifest(file, **shares).index()
    assert given.official_test
    assert (given.splits == Split.TEST).tolist() == [True] + [False] * 11
    validation = drawn.splits == Split.VALIDATION
    assert (given.splits[1:] == Split.VALIDATION).tolist() == validation[1:].tolist()


def test_class_mapping(tree: Path) -> None:
    file = csv_file(
        tree, "photo/dog/0.png,dog,photo", "photo/cat/0.png,cat,photo", header="path,class,domain"
    )
    assert manifest(file, classes={"dog": "hound", "cat": None}).index().classes == ("hound",)
    with pytest.raises(DataError, match="'cow'"):
        manifest(file, classes={"cow": "x"}).index()


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
        manifest(file).index()
    text = str(caught.value)
    assert f"line 3: no file {tree / 'photo/dog/9.png'}" in text
    assert "line 4: photo/dog/0.png is on line 2 already" in text
    assert "line 5: no class" in text
    assert "line 6: unknown split 'trian'; did you mean 'train'?" in text


def test_only_the_first_ten_mistakes_are_shown(tree: Path) -> None:
    file = csv_file(tree, *(f"{number}.png,dog,photo," for number in range(25)))
    with pytest.raises(DataError, match=r"line 11: .*\n  \.\.\. \(25 in all\)$"):
        manifest(file).index()


def test_broken_json_lines(tree: Path) -> None:
    file = tree / "list.jsonl"
    file.write_text('{"path": "a"\n[1]\n{"path": "photo/dog/0.png"}\n')
    with pytest.raises(DataError) as caught:
        manifest(file).index()
    assert "line 1: not JSON" in str(caught.value)
    assert "line 2: not a JSON object" in str(caught.value)
    assert "line 3: no domain" in str(caught.value)


def test_header_encoding_and_root(tree: Path) -> None:
    with pytest.raises(DataError, match="has no column domain in its header 'path,class,domian'"):
        manifest(csv_file(tree, header="path,class,domian")).index()
    with pytest.raises(DataError, match="lists no images"):
        manifest(csv_file(tree)).index()
    with pytest.raises(DataError, match="is a folder; expected a CSV file"):
        manifest(tree).index()
    with pytest.raises(DataError, match="does not exist; expected a CSV file"):
        manifest(tree / "none.csv").index()
    (tree / "latin.csv").write_bytes("path,class,domain\né,a,b".encode("latin-1"))
    with pytest.raises(DataError, match="cannot be read as UTF-8"):
        manifest(tree / "latin.csv").index()


def test_a_column_keeps_images_together(tree: Path) -> None:
    lines = [f"photo/dog/{n}.png,dog,photo,{p}" for n, p in enumerate(("ann", "bob", "ann"))]
    lines += ["paint/cat/0.png,cat,paint,ann", "paint/cat/1.png,cat,paint,"]
    file = csv_file(tree, *lines, header="path,class,domain,patient")
    index = manifest(file, group="patient").index()
    assert index.groups == ("ann", "bob", "ann", "ann", "paint/cat/1.png")
    assert len(set(index.splits[[0, 2, 3]].tolist())) == 1
    with pytest.raises(DataError, match=r"data.group=case gives no image a group"):
        manifest(file, group="case").index()
