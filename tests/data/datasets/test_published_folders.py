"""Small copies of the official layouts, whole and with a defect of each kind."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.data.conftest import Writer

from unseen.data.dataset import Dataset, Split, open_dataset
from unseen.data.datasets.published_folders import PublishedFolders
from unseen.data.prepare import prepare
from unseen.errors import DataError
from unseen.settings.experiment import DataSettings

NAMES = ("vlcs", "office_home", "terra_incognita", "office_31")
PUBLISHED = {"vlcs": (4, 5), "office_home": (4, 65), "terra_incognita": (4, 10)}
PUBLISHED["office_31"] = (3, 31)


def opened(name: str, root: Path) -> PublishedFolders:
    dataset: Dataset = open_dataset(DataSettings(name=name, root=root))
    assert isinstance(dataset, PublishedFolders)
    return dataset


def class_folders(name: str, root: Path) -> Iterator[Path]:
    facts = opened(name, root).facts
    for domain in facts.domains.values():
        for class_name in facts.classes:
            yield root / domain.folders[0] / facts.below / class_name


@pytest.fixture(params=NAMES)
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
    n_domains, n_classes = PUBLISHED[name]
    dataset = opened(name, root)
    index = dataset.index()
    assert (len(index.domains), len(index.classes)) == (n_domains, n_classes)
    assert len(set(index.classes)) == n_classes
    assert len(index) == n_domains * n_classes
    assert all(count == 1 for row in index.count_classes().values() for count in row.values())
    assert prepare(dataset, 8).left_out == ()


def test_the_published_numbers_add_up(name: str) -> None:
    facts = opened(name, Path("anywhere")).facts
    counts = [domain.images for domain in facts.domains.values()]
    if None not in counts:
        assert sum(counts) == facts.images


def test_a_wrong_count_is_remarked(name: str, root: Path) -> None:
    text = "\n".join(opened(name, root).index().remarks)
    facts = opened(name, root).facts
    for domain, published in facts.domains.items():
        if published.images is not None:
            there = f"{domain} has {len(facts.classes)} images; {published.images:,} are published"
            assert there in text
    if name == "terra_incognita":
        assert text == "40 images in all; 24,788 are published"


def test_one_folder_deeper_as_archives_unpack(name: str, root: Path, tmp_path: Path) -> None:
    (tmp_path / "outer").mkdir()
    root.rename(tmp_path / "outer" / "dataset_2016")
    assert len(opened(name, tmp_path / "outer").index().domains) == PUBLISHED[name][0]


def test_a_missing_domain(name: str, root: Path) -> None:
    gone = next(iter(opened(name, root).facts.domains.values())).folders[0]
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
