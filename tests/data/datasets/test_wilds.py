"""Small copies of the tables and folders that WILDS publishes, whole and with defects."""

import csv
from pathlib import Path

import pytest
from tests.data.conftest import Writer

from unseen.data.dataset import open_dataset
from unseen.data.datasets.published import TABLES, Wilds
from unseen.data.index import Split
from unseen.data.prepare import prepare
from unseen.data.roles import choose_roles
from unseen.errors import DataError
from unseen.settings import catalog

NAMES = ("camelyon17", "iwildcam", "fmow")
FOLDERS = {"camelyon17": "camelyon17_v1.0", "iwildcam": "iwildcam_v2.0", "fmow": "fmow_v1.1"}


def write_table(file: Path, rows: list[dict[str, object]]) -> None:
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def camelyon17(root: Path, write_image: Writer) -> None:
    rows: list[dict[str, object]] = []
    for number in range(20):
        patient, center, split = f"{number:03d}", number % 5, int(number >= 15)
        row = {"": number, "patient": patient, "node": 1, "x_coord": 32 * number, "y_coord": 64}
        rows.append(row | {"tumor": number // 5 % 2, "slide": 0, "center": center, "split": split})
        node = f"patient_{patient}_node_1"
        write_image(root / f"patches/{node}/patch_{node}_x_{32 * number}_y_64.png", number)
    write_table(root / "metadata.csv", rows)


def iwildcam(root: Path, write_image: Writer) -> None:
    splits = ("train", "id_val", "id_test", "val", "test")
    rows: list[dict[str, object]] = []
    for number in range(20):
        split = splits[number % 5]
        place = {"val": 7, "test": 8}.get(split, number % 2)
        file = f"{number}.jpg"
        rows.append(
            {
                "": number,
                "split": split,
                "location_remapped": place,
                "filename": file,
                "y": number % 4,
            }
        )
        write_image(root / "train" / file, number)
    write_table(root / "metadata.csv", rows)
    animals: list[dict[str, object]] = [{"y": 99999, "name": "none"}]
    animals += [{"y": number, "name": name} for number, name in enumerate(("empty", "cow", "deer"))]
    write_table(root / "categories.csv", animals)


def fmow(root: Path, write_image: Writer) -> None:
    rows: list[dict[str, object]] = []
    for number in range(24):
        split = ("train", "val", "test", "seq")[number % 4]
        country = ("KEN", "FRA", "XXX")[number % 3]
        year = (2009, 2014, 2017)[number // 8]
        row = {"split": split, "category": ("zoo", "dam")[number % 2], "country_code": country}
        rows.append({**row, "timestamp": f"{year}-12-31T23:59:59Z"})
        write_image(root / f"images/rgb_img_{number}.png", number)
    write_table(root / "rgb_metadata.csv", rows)
    countries: list[dict[str, object]] = [
        {"name": "Kenya", "alpha-3": "KEN", "region": "Africa"},
        {"name": "France", "alpha-3": "FRA", "region": "Europe"},
    ]
    write_table(root / "country_code_mapping.csv", countries)


MAKERS = {"camelyon17": camelyon17, "iwildcam": iwildcam, "fmow": fmow}


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def folder(name: str, tmp_path: Path, write_image: Writer) -> Path:
    return made(name, tmp_path, write_image)


def made(name: str, tmp_path: Path, write_image: Writer) -> Path:
    folder = tmp_path / "data" / FOLDERS[name]
    folder.mkdir(parents=True)
    MAKERS[name](folder, write_image)
    return folder


def opened(name: str, root: Path, **values: object) -> Wilds:
    kind = catalog.load("dataset", name)
    dataset = open_dataset(kind.Config.model_validate({"name": name, "root": root, **values}))
    assert isinstance(dataset, Wilds)
    return dataset


def splits_of(dataset: Wilds, domain: str) -> list[Split]:
    index = dataset.index()
    return [Split(index.splits[row]) for row in index.rows(domain)]


def test_the_published_folder_or_the_one_around_it(name: str, folder: Path) -> None:
    dataset = opened(name, folder)
    assert opened(name, folder.parent).index().names == dataset.index().names
    assert prepare(dataset, 8).left_out == ()
    remarks = "\n".join(dataset.index().remarks)
    assert "the official test part has 4 images; " in remarks or "has 2 images" in remarks
    assert remarks.count("the official ") == 3
    assert ("classes have images; " in remarks) == (name != "camelyon17")


def test_camelyon17(tmp_path: Path, write_image: Writer) -> None:
    dataset = opened("camelyon17", made("camelyon17", tmp_path, write_image))
    index = dataset.index()
    assert index.domains == tuple(f"hospital_{n}" for n in range(5))
    assert index.classes == ("normal", "tumor")
    assert splits_of(dataset, "hospital_3") == [Split.TRAIN] * 3 + [Split.VALIDATION]
    parts = opened("camelyon17", dataset.path(0).parents[2], domains="parts").index()
    assert {d: sum(c.values()) for d, c in parts.count_splits().items()} == {
        "train": 12,
        "val": 4,
        "test": 4,
    }


def test_iwildcam(tmp_path: Path, write_image: Writer) -> None:
    folder = made("iwildcam", tmp_path, write_image)
    index = opened("iwildcam", folder).index()
    assert index.domains == ("camera_000", "camera_001", "camera_007", "camera_008")
    assert index.classes == ("animal_003", "cow", "deer", "empty")
    parts = opened("iwildcam", folder, domains="parts")
    assert splits_of(parts, "train")[:3] == [Split.TRAIN, Split.VALIDATION, Split.TEST]
    settings = parts.config.model_copy(
        update={"training_domains": ("train",), "unseen_domain": ("test",)}
    )
    roles = choose_roles(parts.index(), settings)
    assert {len(rows) for rows in (roles.in_domain["train"], roles.out_of_domain["test"])} == {4}


def test_fmow(tmp_path: Path, write_image: Writer) -> None:
    folder = made("fmow", tmp_path, write_image)
    index = opened("fmow", folder).index()
    assert len(index) == 18  # without those that the publishers kept back
    assert index.domains == ("Africa", "Europe", "Other")
    assert len(index.classes) == 62
    assert index.names[3] == "images/rgb_img_4.png"
    assert {Split(s) for s in index.splits[:3]} == {Split.TRAIN, Split.VALIDATION, Split.TEST}
    parts = opened("fmow", folder, domains="parts").index()
    counts = {domain: sum(row.values()) for domain, row in parts.count_splits().items()}
    assert counts == {"train": 6, "val": 2, "test": 2}


def test_a_missing_folder(name: str, folder: Path) -> None:
    images = next(path for path in sorted(folder.iterdir()) if path.is_dir())
    images.rename(folder / "elsewhere")
    with pytest.raises(DataError, match=r"the lists name \d+ of \d+ files that are not in"):
        opened(name, folder).index()


def test_a_missing_table(name: str, folder: Path) -> None:
    table = TABLES[name].file
    (folder / table).unlink()
    with pytest.raises(DataError, match=rf"no {table} in .*; expected the unpacked folder"):
        opened(name, folder).index()


def test_a_missing_column(name: str, folder: Path) -> None:
    table = folder / TABLES[name].file
    table.write_text(table.read_text().replace("split", "fold", 1))
    with pytest.raises(DataError, match=r"has no column split in its header .*fold"):
        opened(name, folder).index()


@pytest.mark.parametrize(
    ("name", "right", "wrong", "message"),
    [
        ("camelyon17", "64,1,0", "64,2,0", "not published: '2'"),
        ("fmow", ",zoo,", ",zoos,", "not published: 'zoos'; did you mean 'zoo'?"),
    ],
)
def test_a_wrong_class(name: str, folder: Path, right: str, wrong: str, message: str) -> None:
    table = folder / TABLES[name].file
    table.write_text(table.read_text().replace(right, wrong, 1))
    with pytest.raises(DataError) as caught:
        opened(name, folder).index()
    assert message in str(caught.value)


def test_an_unreadable_image(name: str, folder: Path) -> None:
    dataset = opened(name, folder)
    dataset.path(0).write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"1 images cannot be used:\n.* is not a readable image"):
        prepare(dataset, 8)
