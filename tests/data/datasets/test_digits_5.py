"""Small copies of the published files, and of the original ones, whole and with defects."""

import bz2
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat
from tests.data.conftest import real_data
from tests.data.datasets.idx_files import idx

from unseen.data.datasets.mnist import Digits5
from unseen.data.index import Split
from unseen.data.prepare import prepare
from unseen.errors import DataError, SettingsError
from unseen.settings.recipes import load_experiment

N = {"train": 20, "test": 10}
DOMAINS = ("mnist", "mnist_m", "usps", "svhn", "syn")
LABELS = {part: np.arange(n) % 10 for part, n in N.items()}


def coloured(part: str, side: int) -> np.ndarray:
    return np.random.default_rng(side).integers(0, 256, (N[part], side, side, 3), dtype=np.uint8)


def one_of_ten(part: str) -> np.ndarray:
    return np.eye(10)[LABELS[part]]


def digits_5(root: Path, **values: object) -> Digits5:
    return Digits5(Digits5.Config.model_validate({"name": "digits_5", **values}), root)


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """The files of the archive Digit-Five."""
    mnist: dict[str, Any] = {}
    mnist_m: dict[str, Any] = {}
    syn: dict[str, Any] = {}
    cells = np.empty((2, 2), dtype=object)
    for row, part in enumerate(N):
        mnist |= {f"{part}_28": coloured(part, 28)[..., :1], f"label_{part}": one_of_ten(part)}
        mnist_m |= {part: coloured(part, 28), f"label_{part}": one_of_ten(part)}
        syn |= {f"{part}_data": coloured(part, 32), f"{part}_label": LABELS[part][:, None]}
        cells[row, 0] = coloured(part, 28)[:, None, :, :, 0] / 256
        cells[row, 1] = LABELS[part][:, None]
        house = {"X": coloured(part, 32).transpose(1, 2, 3, 0)}
        house["y"] = np.where(LABELS[part] == 0, 10, LABELS[part])[:, None]
        savemat(tmp_path / f"svhn_{part}_32x32.mat", house)
    savemat(tmp_path / "mnist_data.mat", mnist)
    savemat(tmp_path / "mnistm_with_label.mat", mnist_m)
    savemat(tmp_path / "syn_number.mat", syn)
    savemat(tmp_path / "usps_28x28.mat", {"dataset": cells})
    return tmp_path


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """MNIST, photographs and USPS as they are at hand in many places."""
    for name in ("MNIST", "BSDS500", "USPS"):
        (tmp_path / name).mkdir()
    for part, file in (("train", "train"), ("test", "t10k")):
        images = coloured(part, 28)[..., 0]
        (tmp_path / "MNIST" / f"{file}-images-idx3-ubyte").write_bytes(idx(images))
        labels = idx(LABELS[part].astype(np.uint8))
        (tmp_path / "MNIST" / f"{file}-labels-idx1-ubyte").write_bytes(labels)
        lines = [f"{label}.0000 " + " ".join(["-1.000", "0.5"] * 128) for label in LABELS[part]]
        text = "\n".join(lines) + "\n"
        (tmp_path / "USPS" / f"zip.{part}.gz").write_bytes(gzip.compress(text.encode()))
    Image.new("RGB", (40, 30), (200, 100, 0)).save(tmp_path / "BSDS500" / "1.jpg")
    return tmp_path


def test_the_published_files(published: Path) -> None:
    dataset = digits_5(published)
    index = dataset.index()
    assert index.domains == DOMAINS
    assert index.official_test
    for domain in DOMAINS:
        rows = index.rows(domain)
        assert index.labels[rows].tolist() == [*LABELS["train"], *LABELS["test"]]
        assert index.rows(domain, Split.TEST).tolist() == rows[N["train"] :].tolist()
        side = 32 if domain in {"svhn", "syn"} else 28
        for part, row in (("train", rows[3]), ("test", rows[N["train"] + 3])):
            expected = coloured(part, side)[3]
            if domain in {"mnist", "usps"}:
                expected = np.repeat(expected[..., :1], 3, axis=2)
            tolerance = 1 if domain == "usps" else 0
            difference = np.asarray(dataset.read(row)).astype(int) - expected
            assert np.abs(difference).max() <= tolerance, domain
    assert len(prepare(dataset, 28).index) == 5 * 30
    assert "svhn has 20 + 10 images; 73,257 + 26,032 are published" in index.remarks


def test_the_original_files(original: Path) -> None:
    dataset = digits_5(original, domains="usps,mnist,mnist_m")
    index = dataset.index()
    assert index.domains == ("mnist", "mnist_m", "usps")
    plain, blended = (np.asarray(dataset.read(row)).astype(int) for row in (0, 30))
    assert np.abs(np.abs(np.array((200, 100, 0)) - plain) - blended).max() <= 6
    usps = np.asarray(dataset.read(60))
    assert usps.shape == (16, 16, 3)
    assert usps[0, :4, 0].tolist() == [0, 191, 0, 191]
    signatures = {dataset.signature(row) for row in range(len(index))}
    assert len(signatures) == 6  # of MNIST, MNIST-M and USPS, both files each


def test_usps_of_libsvm_is_the_same(original: Path) -> None:
    expected = digits_5(original, domains="usps")
    contents = [expected.content(row) for row in range(30)]
    for part, name in (("train", "usps.bz2"), ("test", "usps.t.bz2")):
        values = " ".join(f"{n + 1}:{(-1, 0.5)[n % 2]}" for n in range(256))
        text = "".join(f"{label + 1} {values} \n" for label in LABELS[part])
        (original / "USPS" / name).write_bytes(bz2.compress(text.encode()))
        (original / "USPS" / f"zip.{part}.gz").unlink()
    again = digits_5(original, domains="usps")
    assert again.index().labels.tolist() == expected.index().labels.tolist()
    assert [again.content(row) for row in range(30)] == contents


def test_missing_files_are_named_and_how_to_do_without(original: Path) -> None:
    with pytest.raises(DataError) as caught:
        digits_5(original).index()
    message = str(caught.value)
    assert "svhn: svhn_{train,test}_32x32.mat or SVHN/" in message
    assert "syn: syn_number.mat" in message
    assert message.endswith("data.domains=mnist,mnist_m,usps")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("svhn_test_32x32.mat", b"MATLAB", r"svhn_test_32x32\.mat is not a readable MATLAB file"),
        ("syn_number.mat", {"X": np.ones(2)}, "has no array 'train_label'; it is another file"),
        (
            "svhn_train_32x32.mat",
            {"y": np.array([[11]])},
            r"holds the labels 11\.\.11; expected 0\.\.9",
        ),
        ("svhn_train_32x32.mat", {"y": np.zeros((0, 1))}, "holds no digits"),
    ],
)
def test_damaged_files(published: Path, name: str, content: Any, message: str) -> None:
    if isinstance(content, bytes):
        (published / name).write_bytes(content)
    else:
        savemat(published / name, content)
    with pytest.raises(DataError, match=message):
        digits_5(published).index()


def test_fewer_pictures_than_labels(published: Path) -> None:
    wrong = {"X": coloured("test", 32).transpose(1, 2, 3, 0), "y": np.ones((20, 1))}
    savemat(published / "svhn_train_32x32.mat", wrong)
    with pytest.raises(DataError, match=r"20 images cannot be used:\n.*10 images for 20 labels"):
        prepare(digits_5(published), 28)


def test_lines_that_are_cut_short(original: Path) -> None:
    file = original / "USPS" / "zip.test.gz"
    file.write_bytes(gzip.compress(gzip.decompress(file.read_bytes())[:-40]))
    with pytest.raises(DataError, match=r"zip\.test\.gz cannot be read as lines of 257 numbers"):
        digits_5(original, domains="usps").index()


def test_an_unknown_domain_is_refused_with_the_settings() -> None:
    with pytest.raises(SettingsError, match=r"unknown domain 'upss'; did you mean 'usps'"):
        load_experiment("digits_5/aggregate", {"data.domains": "mnist,upss"})


def test_the_real_usps() -> None:
    root = real_data("USPS").parent
    dataset = digits_5(root, domains="usps")
    index = dataset.index()
    assert index.remarks == ()
    assert np.bincount(index.labels).tolist()[:3] == [1194 + 359, 1005 + 264, 731 + 198]
    assert 60 < np.mean([dataset.pixels(row).mean() for row in range(0, 9000, 100)]) < 90
