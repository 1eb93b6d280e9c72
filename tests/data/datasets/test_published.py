"""Small copies of published datasets, whole and with a defect of each kind."""

import csv
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.data.conftest import opened, real_data, refused, write_image
from tests.work import counted

from unseen.data.dataset import Dataset
from unseen.data.datasets.published import LAYOUTS, PACS, PARTS, TABLES
from unseen.data.index import Split
from unseen.data.prepare import prepare
from unseen.data.roles import choose_roles
from unseen.errors import DataError

T, V, E = Split.TRAIN, Split.VALIDATION, Split.TEST


# PACS


@pytest.fixture
def pacs(tmp_path: Path) -> Path:
    """Two domains with one training and one crossval image per class."""
    root = tmp_path / "PACS"
    (root / "splits").mkdir(parents=True)
    for domain in ("photo", "sketch"):
        lines: dict[str, list[str]] = {part: [] for part in PARTS}
        for label, name in enumerate(PACS.classes, start=1):
            folder = root / "images" / domain / name
            folder.mkdir(parents=True)
            for part, file in (("train", "ä 1.jpg"), ("crossval", "2.jpg")):
                (folder / file).touch()
                for listed in (part, "test"):
                    lines[listed].append(f"{domain}/{name}/{file} {label}")
        for part in PARTS:
            listed = root / "splits" / f"{domain}_{part}_kfold.txt"
            listed.write_text("\n".join(lines[part]) + "\n", encoding="utf-8")
    return root


def change(root: Path, name: str, old: str, new: str) -> None:
    file = root / "splits" / f"{name}_kfold.txt"
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")


def test_lists_of_pacs_decide(pacs: Path) -> None:
    index = opened("pacs", pacs).index()
    assert (index.domains, index.classes) == (("photo", "sketch"), PACS.classes)
    assert index.names[0] == "photo/dog/ä 1.jpg"
    assert index.labels[:7].tolist() == list(range(7))
    assert index.splits.tolist() == ([T] * 7 + [V] * 7) * 2
    assert not index.official_test
    assert index.remarks == ()


@pytest.mark.parametrize("place", ["", "kfold"])
def test_other_layouts_of_pacs(pacs: Path, place: str) -> None:
    (pacs / "Train val splits").mkdir()
    (pacs / "splits").rename(pacs / "Train val splits" / "kfold splits")
    (pacs / place).mkdir(exist_ok=True)
    for domain in ("photo", "sketch"):
        (pacs / "images" / domain).rename(pacs / place / domain)
    assert len(opened("pacs", pacs).index()) == 28


@pytest.mark.parametrize(
    ("name", "old", "new", "split", "remark"),
    [
        ("crossval", "photo/dog/2.jpg 1", "photo/dog/2.jpg 0", V, "label 0 for photo/dog/2.jpg"),
        ("crossval", "dog/2.jpg 1", "elephant/2.jpg 2", V, "more than once: photo/elephant/2.jpg"),
        ("crossval", "dog/2.jpg 1", "elephant/2.jpg 2", V, "test only, used for crossval: photo/d"),
        ("train", "dog/ä 1.jpg 1", "dog/2.jpg 1", V, "in train and crossval, used for crossval"),
    ],
)
def test_oddities_of_lists_are_remarked(
    pacs: Path, name: str, old: str, new: str, split: Split, remark: str
) -> None:
    """The folder's name is the class, and what train does not name alone never trains."""
    change(pacs, f"photo_{name}", old, new)
    index = opened("pacs", pacs).index()
    row = index.names.index("photo/dog/2.jpg")
    assert (index.labels[row], index.splits[row], len(index)) == (0, split, 28)
    assert any(remark in text for text in index.remarks)


def test_files_in_no_list_are_remarked(pacs: Path) -> None:
    (pacs / "images/photo/dog/extra.jpg").touch()
    (pacs / "images/photo/dog/.hidden.jpg").touch()
    (remark,) = opened("pacs", pacs).index().remarks
    assert remark == "in no list, and not used: photo/dog/extra.jpg"


def test_what_is_wrong_with_a_copy_of_pacs(pacs: Path) -> None:
    refused("pacs", pacs / "nowhere", r"nowhere does not exist; expected the PACS folder")
    refused("pacs", pacs / "images", r"no '\*_train_kfold.txt' in")
    refused("pacs", pacs / "splits", "no folder 'photo' with images")
    line = "photo/dog/ä 1.jpg 1"
    for new, message in (
        ("photo/dog 1", "line 1: 'photo/dog 1'"),
        ("photo/dogg/1.jpg 1", "class 'dogg'; did you mean 'dog'"),
        ("sketch/dog/2.jpg 1", r"photo/class/file label.: line 1: .sketch/dog/2\.jpg 1"),
    ):
        change(pacs, "photo_train", line, new)
        refused("pacs", pacs, message)
        change(pacs, "photo_train", new, line)
    for name in PACS.classes:
        (pacs / "images/photo" / name / "2.jpg").unlink()
    refused("pacs", pacs, r"name 7 of 28 files .*photo/dog/2\.jpg.*\(7 in all\)")
    (pacs / "splits" / "photo_crossval_kfold.txt").unlink()
    refused("pacs", pacs, r"photo_crossval_kfold\.txt cannot be read .*an official list")


def test_real_pacs() -> None:
    dataset = opened("pacs", real_data("PACS"), unseen_domain="art_painting")
    index = dataset.index()
    assert index.domains == ("art_painting", "cartoon", "photo", "sketch")
    assert np.bincount(index.domain_of).tolist() == [2048, 2344, 1670, 3929]
    assert np.bincount(index.domain_of[index.splits == T]).tolist() == [1840, 2107, 1499, 3531]
    assert index.labels[index.names.index("art_painting/dog/pic_225.jpg")] == 0
    assert len(index.remarks) == 3
    roles = choose_roles(index, dataset.config)
    assert len(roles.out_of_domain["art_painting"]) == 2048
    sizes = {domain: len(rows) for domain, rows in roles.in_domain.items()}
    assert sizes == {"cartoon": 237, "photo": 171, "sketch": 398}
    sketch = dataset.read(index.domain_of.tolist().index(3))
    assert (sketch.mode, sketch.size) == ("RGB", (227, 227))


# DomainNet


def write_lists(root: Path, domain: str, train: list[str], test: list[str]) -> None:
    for part, lines in (("train", train), ("test", test)):
        (root / f"{domain}_{part}.txt").write_text("\n".join(lines) + "\n")
        for line in lines:
            file = root / line.rpartition(" ")[0]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()


@pytest.fixture
def domainnet(tmp_path: Path) -> Path:
    for domain in ("clipart", "real"):
        train = [f"{domain}/zebra/{n}.jpg 0" for n in range(40)] + [f"{domain}/ant/0.jpg 1"]
        test = [f"{domain}/zebra/t.jpg 0", f"{domain}/ant/t.jpg 1"]
        write_lists(tmp_path, domain, train, test)
    return tmp_path


def test_lists_of_domainnet_decide_and_validation_is_taken_from_train(domainnet: Path) -> None:
    dataset = opened("domainnet", domainnet, validation_share=0.3, unseen_domain="real")
    index = dataset.index()
    assert index.classes == ("zebra", "ant")  # the order of the labels
    assert index.domains == ("clipart", "real")
    assert index.official_test
    tested = {index.names[row] for row in np.flatnonzero(index.splits == E)}
    assert tested == {f"{d}/{c}/t.jpg" for d in ("clipart", "real") for c in ("zebra", "ant")}
    assert 10 < np.sum(index.splits == V) < 40
    out = choose_roles(index, dataset.config).out_of_domain["real"]
    assert {index.names[row] for row in out} == {"real/zebra/t.jpg", "real/ant/t.jpg"}


def test_oddities_and_mistakes_of_domainnet(domainnet: Path) -> None:
    with (domainnet / "real_test.txt").open("a") as stream:
        stream.write("real/zebra/0.jpg 1\n")
    (domainnet / "real/ant/spare.png").touch()
    index = opened("domainnet", domainnet).index()
    assert index.splits[index.names.index("real/zebra/0.jpg")] == E
    text = "\n".join(index.remarks)
    assert "in train and test, used for test: real/zebra/0.jpg" in text
    assert "in no list, and not used: real/ant/spare.png" in text
    (domainnet / "real/zebra/3.jpg").unlink()
    refused("domainnet", domainnet, r"name 1 of 86 files .*real/zebra/3\.jpg")
    (domainnet / "real_test.txt").unlink()
    refused("domainnet", domainnet, r"real_test\.txt cannot be read .*an official list")
    refused("domainnet", domainnet / "real", r"no '\*_train.txt' in")


def test_indexing_is_fast(tmp_path: Path) -> None:
    """5,000 lines; with all 586,575 it takes seconds."""
    lines = [f"quick/class {n % 50}/{n}.jpg {n % 50}" for n in range(5_000)]
    write_lists(tmp_path, "quick", lines, lines[:1])
    with counted() as work:
        assert len(opened("domainnet", tmp_path).index()) == 5_000
    assert work.calls < 40 * 5_000


# folders of pictures

PUBLISHED = {
    "vlcs": (4, 5, 10_729),
    "office_home": (4, 65, 15_588),
    "terra_incognita": (4, 10, 24_788),
    "office_31": (3, 31, 4110),
}
"""Domains, classes and images."""


def class_folders(name: str, root: Path) -> Iterator[Path]:
    layout = LAYOUTS[name]
    for _, folders in layout.domains.values():
        for class_name in layout.classes.split():
            yield root / folders[0] / layout.below / class_name


@pytest.fixture(params=LAYOUTS)
def folders(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """One tiny picture in every class folder, in a folder with the name of the dataset."""
    picture, root = write_image(tmp_path / "picture.png"), tmp_path / "copy" / request.param
    for folder in class_folders(request.param, root):
        folder.mkdir(parents=True)
        shutil.copy(picture, folder / "0001.png")
        (folder / "Thumbs.db").touch()
    return root


def test_the_official_layout_and_the_folder_around_it(folders: Path) -> None:
    name, layout = folders.name, LAYOUTS[folders.name]
    n_domains, n_classes, total = PUBLISHED[name]
    dataset = opened(name, folders)
    index = dataset.index()
    assert (len(index.domains), len(set(index.classes))) == (n_domains, n_classes)
    assert all(count == 1 for row in index.count_classes().values() for count in row.values())
    assert prepare(dataset, 8).left_out == ()
    assert len(opened(name, folders.parent).index()) == len(index) == n_domains * n_classes
    counts = {domain: count for domain, (count, _) in layout.domains.items()}
    remarks = [f"{d} has {n_classes} images; {n:,} are published" for d, n in counts.items() if n]
    if remarks:
        assert sum(count or 0 for count in counts.values()) == total
    else:
        remarks = [f"40 images in all; {total:,} are published"]
    assert list(index.remarks) == remarks


def test_what_is_wrong_with_folders(folders: Path, tmp_path: Path) -> None:
    name, folder = folders.name, next(class_folders(folders.name, folders))
    content = (folder / "0001.png").read_bytes()
    (folder / "0001.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"1 images cannot be used:\n.*0001\.png is not a readable"):
        prepare(opened(name, folders), 8)
    (folder / "0001.png").write_bytes(content)
    wrong = f"{folder.name}s is none of its classes; did you mean '{folder.name}'"
    folder.rename(folder.with_name(folder.name + "s"))
    refused(name, folders, rf"lacks the classes {folder.name}\n.*{wrong}")
    _, (gone, *_) = next(iter(LAYOUTS[name].domains.values()))
    shutil.rmtree(folders / gone)
    refused(name, folders, rf"lacks the domains {gone} \(found: .*\); expected ")
    (tmp_path / "other" / "holidays").mkdir(parents=True)
    refused(name, tmp_path / "other", r"lacks the domains .* with the domains")
    refused(name, tmp_path / "nowhere", "nowhere does not exist; expected")


def test_vlcs_with_official_parts(tmp_path: Path) -> None:
    """The copy of Li et al. (2017): numbered classes, in train, crossval, test and full."""
    for domain in ("CALTECH", "LABELME", "PASCAL", "SUN"):
        for part in ("train", "crossval", "test", "full"):
            for label in range(5):
                write_image(tmp_path / domain / part / str(label) / f"{part}.png", label)
    index = opened("vlcs", tmp_path).index()
    assert index.domains == ("caltech101", "labelme", "sun09", "voc2007")
    assert index.official_test
    assert len(index) == 4 * 3 * 5
    row = index.names.index("PASCAL/crossval/3/crossval.png")
    assert (index.classes[index.labels[row]], index.splits[row]) == ("dog", V)
    assert index.rows("voc2007", E).size == 5


# tables of WILDS

Rows = list[dict[str, object]]


def write_table(file: Path, rows: Rows) -> None:
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def made(name: str, tmp_path: Path) -> Path:
    """A few images with their tables, as the dataset unpacks."""
    root, rows = tmp_path / "data" / name, Rows()
    for n in range(24 if name == "fmow" else 20):
        if name == "camelyon17":
            node, x = f"patient_{n:03d}_node_1", 32 * n
            row = {"patient": f"{n:03d}", "node": 1, "x_coord": x, "y_coord": 64}
            row |= {"tumor": n // 5 % 2, "slide": 0, "center": n % 5, "split": int(n >= 15)}
            rows.append({"": n} | row)
            file = f"patches/{node}/patch_{node}_x_{x}_y_64.png"
        elif name == "iwildcam":
            split, file = ("train", "id_val", "id_test", "val", "test")[n % 5], f"train/{n}.jpg"
            place = {"val": 7, "test": 8}.get(split, n % 2)
            row = {"split": split, "location_remapped": place, "filename": f"{n}.jpg", "y": n % 4}
            rows.append({"": n} | row)
        else:
            country, year = ("KEN", "FRA", "XXX")[n % 3], (2009, 2014, 2017)[n // 8]
            row = {"split": ("train", "val", "test", "seq")[n % 4], "country_code": country}
            row |= {"category": ("zoo", "dam")[n % 2], "timestamp": f"{year}-12-31T23:59:59Z"}
            rows.append(row)
            file = f"images/rgb_img_{n}.png"
        write_image(root / file, n)
    write_table(root / TABLES[name].file, rows)
    if name == "iwildcam":
        names = enumerate(("empty", "cow", "deer"))
        animals = [{"y": 99999, "name": "none"}, *({"y": n, "name": name} for n, name in names)]
        write_table(root / "categories.csv", animals)
    elif name == "fmow":
        regions = (("Kenya", "KEN", "Africa"), ("France", "FRA", "Europe"))
        countries: Rows = [{"name": n, "alpha-3": a, "region": r} for n, a, r in regions]
        write_table(root / "country_code_mapping.csv", countries)
    return root


@pytest.fixture(params=TABLES)
def wilds(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return made(request.param, tmp_path)


def splits_of(dataset: Dataset, domain: str) -> list[int]:
    index = dataset.index()
    return index.splits[index.rows(domain)].tolist()


def test_the_published_folder_or_the_one_around_it(wilds: Path) -> None:
    dataset = opened(wilds.name, wilds)
    assert opened(wilds.name, wilds.parent).index().names == dataset.index().names
    assert prepare(dataset, 8).left_out == ()
    remarks = "\n".join(dataset.index().remarks)
    assert remarks.count("the official ") == 3
    assert ("classes have images; " in remarks) == (wilds.name != "camelyon17")


def test_camelyon17(tmp_path: Path) -> None:
    folder = made("camelyon17", tmp_path)
    dataset = opened("camelyon17", folder)
    assert dataset.index().domains == tuple(f"hospital_{n}" for n in range(5))
    assert dataset.index().classes == ("normal", "tumor")
    assert splits_of(dataset, "hospital_3") == [T, T, T, V]
    parts = opened("camelyon17", folder, domains="parts").index().count_splits()
    assert [sum(parts[d].values()) for d in ("train", "val", "test")] == [12, 4, 4]


def test_iwildcam(tmp_path: Path) -> None:
    folder = made("iwildcam", tmp_path)
    index = opened("iwildcam", folder).index()
    assert index.domains == ("camera_000", "camera_001", "camera_007", "camera_008")
    assert index.classes == ("animal_003", "cow", "deer", "empty")
    chosen = {"training_domains": "train", "unseen_domain": "test"}
    parts = opened("iwildcam", folder, domains="parts", **chosen)
    assert splits_of(parts, "train")[:3] == [T, V, E]
    roles = choose_roles(parts.index(), parts.config)
    assert {len(rows) for rows in (roles.in_domain["train"], roles.out_of_domain["test"])} == {4}


def test_fmow(tmp_path: Path) -> None:
    folder = made("fmow", tmp_path)
    index = opened("fmow", folder).index()
    assert len(index) == 18  # without those that the publishers kept back
    assert (index.domains, len(index.classes)) == (("Africa", "Europe", "Other"), 62)
    assert index.names[3] == "images/rgb_img_4.png"
    assert set(index.splits[:3].tolist()) == {T, V, E}
    parts = opened("fmow", folder, domains="parts").index().count_splits()
    assert [sum(parts[d].values()) for d in ("train", "val", "test")] == [6, 2, 2]


def test_what_is_wrong_with_a_table(wilds: Path) -> None:
    name, table = wilds.name, wilds / TABLES[wilds.name].file
    dataset = opened(name, wilds)
    content = dataset.path(0).read_bytes()
    dataset.path(0).write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"1 images cannot be used:\n.* is not a readable image"):
        prepare(dataset, 8)
    dataset.path(0).write_bytes(content)
    text = table.read_text()
    wrong = {
        "camelyon17": ("64,1,0", "64,2,0", "not published: '2'"),
        "fmow": (",zoo,", ",zoos,", r"not published: 'zoos'; did you mean 'zoo'\?"),
    }
    for old, new, message in [wrong[name]] if name in wrong else []:
        table.write_text(text.replace(old, new, 1))
        refused(name, wilds, message)
    table.write_text(text.replace("split", "fold", 1))
    refused(name, wilds, r"has no column split in its header .*fold")
    table.write_text(text)
    images = next(path for path in sorted(wilds.iterdir()) if path.is_dir())
    images.rename(wilds / "elsewhere")
    refused(name, wilds, r"the lists name \d+ of \d+ files that are not in")
    table.unlink()
    refused(name, wilds, rf"no {table.name} in .*; expected the unpacked folder")
