from pathlib import Path

import numpy as np
import pytest

from unseen.data.datasets.hdf5 import HDF5
from unseen.data.index import Split
from unseen.data.prepare import prepare
from unseen.errors import DataError

h5py = pytest.importorskip("h5py")


def hdf5(root: Path, **values: object) -> HDF5:
    return HDF5(HDF5.Config.model_validate({"name": "hdf5", **values}), root)


def write(file: Path, labels: list[int], **arrays: np.ndarray) -> Path:
    images = np.zeros((len(labels), 6, 6, 3), np.uint8)
    images[..., 0] = 200
    images[..., 2] = np.arange(len(labels))[:, None, None]
    with h5py.File(file, "w") as opened:
        for name, array in ({"images": images, "labels": np.array(labels)} | arrays).items():
            opened[name] = array
    return file


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "h5"
    folder.mkdir()
    for domain in ("art_painting", "photo"):
        write(folder / f"{domain}_train.hdf5", [1, 2, 1, 2])
        write(folder / f"{domain}_val.h5", [2])
        write(folder / f"{domain}_test.hdf5", [1, 2, 1, 2, 2])
    return folder


NAMES = {"first_label": 1, "class_names": ["dog", "cat"]}


def test_files_decide_domain_and_split(root: Path) -> None:
    index = hdf5(root, **NAMES).index()
    assert index.domains == ("art_painting", "photo")
    assert index.classes == ("dog", "cat")
    assert index.official_test
    rows = dict(zip(index.names, zip(index.labels, index.splits, strict=True), strict=True))
    assert rows["photo_train/000001"] == (1, Split.TRAIN)
    assert rows["photo_val/000000"] == (1, Split.VALIDATION)
    assert rows["photo_test/000000"] == (0, Split.TEST)
    assert len(index) == 20


def test_test_files_that_repeat_the_domain(root: Path) -> None:
    index = hdf5(root, test_is_whole_domain=True, **NAMES).index()
    assert not index.official_test
    assert np.bincount(index.splits).tolist() == [8, 2, 0, 10]


def test_bgr(root: Path) -> None:
    position = hdf5(root, **NAMES).index().names.index("photo_train/000003")
    assert hdf5(root, **NAMES).read(position).getpixel((0, 0)) == (200, 0, 3)
    turned = hdf5(root, bgr=True, **NAMES)
    assert turned.read(position).getpixel((0, 0)) == (3, 0, 200)
    assert turned.content(position) != hdf5(root, **NAMES).content(position)
    prepared = prepare(turned, 8)
    assert prepared.batch(np.array([position]))[0, :, 0, 0].tolist() == [3, 0, 200]
    plain = prepare(hdf5(root, **NAMES), 8)
    assert plain.batch(np.array([position]))[0, :, 0, 0].tolist() == [200, 0, 3]


def test_without_names_classes_are_called_by_label(root: Path) -> None:
    assert hdf5(root, first_label=1).index().classes == ("1", "2")
    assert hdf5(root).index().classes == ("0", "1", "2")


def test_without_val_file_a_share_of_train_validates(tmp_path: Path) -> None:
    write(tmp_path / "photo_train.hdf5", [0, 1] * 100)
    index = hdf5(tmp_path, validation_share=0.2).index()
    assert 20 < np.sum(index.splits == Split.VALIDATION) < 60


def test_labels_out_of_range(root: Path) -> None:
    with pytest.raises(DataError, match=r"labels outside 2\.\.2: 1; set data\.first_label"):
        hdf5(root, first_label=2).index()
    with pytest.raises(DataError, match=r"labels outside 1\.\.1: 2"):
        hdf5(root, first_label=1, class_names=["dog"]).index()


def test_wrong_files(root: Path, tmp_path: Path) -> None:
    broken = write(root / "photo_train.hdf5", [1, 2], images=np.zeros((2, 3, 8, 8), np.uint8))
    with pytest.raises(DataError, match=r"'images' is uint8 \[2, 3, 8, 8\]; expected"):
        hdf5(root).index()
    write(broken, [1, 2, 1], images=np.zeros((2, 8, 8, 3), np.uint8))
    with pytest.raises(DataError, match="3 labels for 2 images"):
        hdf5(root).index()
    write(broken, [])
    with pytest.raises(DataError, match="0 labels for 0 images"):
        hdf5(root).index()
    broken.write_bytes(b"no hdf5")
    with pytest.raises(DataError, match=r"photo_train\.hdf5 cannot be used"):
        hdf5(root).index()
    with pytest.raises(DataError, match="no HDF5 files of that form"):
        hdf5(tmp_path).index()
    with pytest.raises(DataError, match="does not exist; expected a folder with files"):
        hdf5(tmp_path / "none").index()
