"""Small copies of the official layouts, whole and with a defect of each kind."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.data.conftest import Writer

from unseen.data.dataset import PUBLISHED, Dataset, open_dataset
from unseen.data.datasets.published import LAYOUTS
from unseen.data.index import Split
from unseen.data.prepare import prepare
from unseen.errors import DataError
from unseen.settings.experiment import DataSettings


def opened(name: str, root: Path) -> Dataset:
    return open_dataset(DataSettings(name=name, root=root))


def class_folders(name: str, root: Path) -> Iterator[Path]:
    layout = LAYOUTS[name]
    for _, folders in layout.domains.values():
        for class_name in layout.classes.split():
            yield root / folders[0] / layout.below / class_name


@pytest.fixture(params=LAYOUTS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def root(name: str, tmp_path: Path, write_image: Writer) -> Path:
    """One tiny picture in every class folder."""
    picture = write_image(tmp_path / "picture.png")
    root = tmp_path / "copy"
    for folder in class_folders(name, root):
        folder.mkdir(parents=True)
        shutil.copy(picture, folder / "0001.png")
        (folder / "Thumbs.db").touch()
    return root


def test_the_official_layout(name: str, root: Path) -> None:
    _, n_domains, n_classes, _ = PUBLISHED[name]
    dataset = opened(name, root)
    index = dataset.index()
    assert (len(index.domains), len(index.classes)) == (n_domains, n_classes)
    assert len(set(index.classes)) == n_classes
    assert len(index) == n_domains * n_classes
    assert all(count == 1 for row in index.count_classes().values() for count in row.values())
    assert prepare(dataset, 8).left_out == ()


def test_the_published_numbers_add_up_and_others_are_remarked(name: str, root: Path) -> None:
    dataset, layout = opened(name, root), LAYOUTS[name]
    counts = {domain: count for domain, (count, _) in layout.domains.items()}
    total, there = PUBLISHED[name].images, len(layout.classes.split())
    if name == "terra_incognita":
        assert dataset.index().remarks == (f"40 images in all; {total:,} are published",)
        return
    assert sum(count or 0 for count in counts.values()) == total
    assert dataset.index().remarks == tuple(
        f"{domain} has {there} images; {count:,} are published" for domain, count in counts.items()
    )


def test_one_folder_deeper_as_archives_unpack(name: str, root: Path, tmp_path: Path) -> None:
    (tmp_path / "outer").mkdir()
    root.rename(tmp_path / "outer" / "dataset_2016")
    assert len(opened(name, tmp_path / "outer").index().domains) == PUBLISHED[name].domains


def test_a_missing_domain(name: str, root: Path) -> None:
    _, (gone, *_) = next(iter(LAYOUTS[name].domains.values()))
    shutil.rmtree(root / gone)
    with pytest.raises(DataError, match=rf"lacks the domains {gone} \(found: .*\); expected "):
        opened(name, root).index()


def test_a_wrong_class_name(name: str, root: Path) -> None:
    folder = next(class_folders(name, root))
    folder.rename(folder.with_name(folder.name + "s"))
    with pytest.raises(DataError) as caught:
        opened(name, root).index()
    message = str(caught.value)
    assert f"lacks the classes {folder.name}" in message
    assert f"{folder.name}s is none of its classes; did you mean '{folder.name}'?" in message


def test_an_unreadable_image(name: str, root: Path) -> None:
    folder = next(class_folders(name, root))
    (folder / "0001.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"1 images cannot be used:\n.*0001\.png is not a readable"):
        prepare(opened(name, root), 8)


def test_a_folder_that_is_something_else(name: str, tmp_path: Path) -> None:
    (tmp_path / "holidays").mkdir()
    with pytest.raises(DataError, match=r"lacks the domains .* with the domains"):
        opened(name, tmp_path).index()
    with pytest.raises(DataError, match="nowhere does not exist; expected"):
        opened(name, tmp_path / "nowhere").index()


def test_vlcs_with_official_parts(tmp_path: Path, write_image: Writer) -> None:
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
    assert index.classes[index.labels[row]] == "dog"
    assert index.splits[row] == Split.VALIDATION
    assert index.rows("voc2007", Split.TEST).size == 5
