import gzip
import os
from pathlib import Path

import numpy as np
import pytest
from tests.data.datasets.idx_files import idx

from unseen.data.dataset import Split, open_dataset
from unseen.data.datasets.mnist import MNIST
from unseen.data.prepare import prepare
from unseen.data.roles import choose_roles
from unseen.errors import DataError
from unseen.settings.experiment import DataSettings

TRAIN, TEST = 40, 10
LABELS = np.arange(TRAIN + TEST, dtype=np.uint8) % 10
PIXELS = np.random.default_rng(0).integers(0, 256, (TRAIN + TEST, 6, 6), dtype=np.uint8)


def mnist(root: Path, **values: object) -> MNIST:
    return MNIST(MNIST.Config.model_validate({"name": "mnist", **values}), root)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "MNIST"
    folder.mkdir()
    for part, rows in (("train", slice(0, TRAIN)), ("t10k", slice(TRAIN, None))):
        for kind, values in (("images-idx3", PIXELS[rows]), ("labels-idx1", LABELS[rows])):
            (folder / f"{part}-{kind}-ubyte.gz").write_bytes(gzip.compress(idx(values)))
    return folder


def test_files_decide_and_validation_is_taken_from_train(root: Path) -> None:
    dataset = mnist(root, validation_share=0.3)
    index = dataset.index()
    assert index.classes == tuple("0123456789")
    assert index.domains == ("mnist",)
    assert index.names[:1] == ("train/00000",)
    assert index.names[TRAIN] == "test/00000"
    assert index.labels.tolist() == LABELS.tolist()
    assert index.official_test
    assert set(index.splits[:TRAIN].tolist()) == {Split.TRAIN, Split.VALIDATION}
    assert set(index.splits[TRAIN:].tolist()) == {Split.TEST}
    more = mnist(root, validation_share=0.6, test_share=0.3).index()
    was_validation = index.splits == Split.VALIDATION
    assert np.all(more.splits[was_validation] == Split.VALIDATION)
    assert np.sum(more.splits == Split.TEST) == TEST
    roles = choose_roles(index, dataset.config)
    assert roles.in_domain["mnist"].tolist() == list(range(TRAIN, TRAIN + TEST))


def test_images_are_the_digits_in_three_equal_channels(root: Path) -> None:
    for position in (0, TRAIN - 1, TRAIN, TRAIN + TEST - 1):
        image = mnist(root).read(position)
        assert image.mode == "RGB"
        assert np.array_equal(np.asarray(image), np.stack([PIXELS[position]] * 3, axis=2))
    prepared = prepare(mnist(root), 6)
    assert np.array_equal(prepared.batch(np.array([41]))[0, 1].numpy(), PIXELS[41])


def test_plain_files_and_the_folder_raw(root: Path) -> None:
    zipped = mnist(root)
    contents = [zipped.content(position) for position in range(TRAIN + TEST)]
    (root / "raw").mkdir()
    for file in list(root.glob("*.gz")):
        (root / "raw" / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
        file.unlink()
    plain = mnist(root)
    assert plain.index().names == zipped.index().names
    assert [plain.content(position) for position in range(TRAIN + TEST)] == contents


def test_a_changed_file_is_noticed(root: Path) -> None:
    before = mnist(root)
    train, test = before.signature(0), before.signature(TRAIN)
    os.utime(root / "t10k-images-idx3-ubyte.gz", (1, 1))
    after = mnist(root)
    assert after.signature(TRAIN) != test
    assert after.signature(0) == train
    assert len({before.content(position) for position in range(TRAIN + TEST)}) == TRAIN + TEST


def test_files_that_cannot_be_used(root: Path, tmp_path: Path) -> None:
    images, labels = (root / f"train-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1"))
    good = labels.read_bytes()
    for damaged, message in (
        (good[:-12], "cannot be read .*download it again"),
        (good[:20] + b"\xff" * 8 + good[28:], "cannot be read .*download it again"),
        (b"<html>", "cannot be read .*download it again"),
        (gzip.compress(idx(LABELS[:TRAIN])[:-3]), "announces 40 values and holds 37: .*cut short"),
        (gzip.compress(bytes([0, 0, 8, 1, 0, 0])), "announces .* and holds 0: .*download it again"),
        (gzip.compress(idx(PIXELS)), "begins with the bytes 00000803; .* begins with 00000801"),
        (gzip.compress(b""), "begins with the bytes of an empty file"),
        (gzip.compress(idx(LABELS[:7])), "holds 40 images but .*labels-idx1-ubyte.gz 7 labels"),
        (gzip.compress(idx(LABELS[:TRAIN] + 5)), "holds the label 14; expected 0..9"),
    ):
        labels.write_bytes(damaged)
        with pytest.raises(DataError, match=message) as caught:
            mnist(root).index()
        assert str(labels) in str(caught.value)
    images.unlink()
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte \(or .*\.gz\) is not in"):
        mnist(root).index()
    with pytest.raises(DataError, match="does not exist; expected the four files"):
        mnist(tmp_path / "none").index()


def test_it_is_found_below_the_data_folder(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSEEN_DATA", str(root.parent))
    assert len(open_dataset(DataSettings(name="mnist")).index()) == TRAIN + TEST


def test_the_real_files() -> None:
    folder = real_mnist()
    dataset = mnist(folder)
    index = dataset.index()
    assert np.bincount(index.splits)[Split.TEST] == 10_000
    assert np.bincount(index.labels[:60_000]).tolist() == [
        *(5923, 6742, 5958, 6131, 5842),
        *(5421, 5918, 6265, 5851, 5949),
    ]
    assert index.labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert dataset.read(0).size == (28, 28)


REAL_DATA = os.environ.get("UNSEEN_DATA")


def real_mnist() -> Path:
    """Read when this file is imported: a fixture hides the variable from the tests."""
    if REAL_DATA is None or not (Path(REAL_DATA) / "MNIST").is_dir():
        pytest.skip("needs the folder MNIST below $UNSEEN_DATA")
    return Path(REAL_DATA) / "MNIST"
