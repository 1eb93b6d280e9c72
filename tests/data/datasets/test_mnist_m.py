import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.data.datasets.idx_files import idx

from unseen.data.dataset import Split, open_dataset
from unseen.data.datasets.mnist import MNISTM
from unseen.data.prepare import prepare
from unseen.data.roles import choose_roles
from unseen.errors import DataError
from unseen.settings.experiment import DataSettings

TRAIN, TEST, SIDE = 40, 10, 4
N = TRAIN + TEST
LABELS = np.arange(N, dtype=np.uint8) % 10
PIXELS = np.random.default_rng(0).integers(0, 256, (N, SIDE, SIDE), dtype=np.uint8)
COLOURS = ((200, 100, 0), (16, 32, 64))
REAL_DATA = os.environ.get("UNSEEN_DATA")


def mnist_m(root: Path, **values: object) -> MNISTM:
    return MNISTM(MNISTM.Config.model_validate({"name": "mnist_m", **values}), root)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A few digits and two photographs, each of a single colour that JPEG keeps nearly as it is."""
    folder = tmp_path / "data"
    (folder / "MNIST").mkdir(parents=True)
    (folder / "BSDS500").mkdir()
    for part, rows in (("train", slice(0, TRAIN)), ("t10k", slice(TRAIN, None))):
        (folder / "MNIST" / f"{part}-images-idx3-ubyte").write_bytes(idx(PIXELS[rows]))
        (folder / "MNIST" / f"{part}-labels-idx1-ubyte").write_bytes(idx(LABELS[rows]))
    for number, colour in enumerate(COLOURS):
        Image.new("RGB", (9, 7), colour).save(folder / "BSDS500" / f"{number}.jpg", quality=100)
    return folder


def pixels(dataset: MNISTM) -> np.ndarray:
    return np.stack([np.asarray(dataset.read(position)) for position in range(2 * N)]).astype(int)


def test_every_digit_is_in_both_domains_and_held_out_of_both(root: Path) -> None:
    dataset = mnist_m(root, validation_share=0.3, unseen_domain="mnist_m")
    index = dataset.index()
    assert index.domains == ("mnist", "mnist_m")
    assert index.names[0] == "mnist/train/00000"
    assert index.names[N + TRAIN] == "mnist_m/test/00000"
    assert index.labels.tolist() == LABELS.tolist() * 2
    assert index.domain_of.tolist() == [0] * N + [1] * N
    assert np.array_equal(index.splits[:N], index.splits[N:])
    assert np.sum(index.splits == Split.VALIDATION) > 0
    roles = choose_roles(index, dataset.config)
    assert roles.out_of_domain["mnist_m"].tolist() == list(range(N + TRAIN, 2 * N))


def test_a_blended_digit_is_the_distance_between_photograph_and_digit(root: Path) -> None:
    made = pixels(mnist_m(root))
    digits = np.stack([PIXELS] * 3, axis=3).astype(int)
    assert np.array_equal(made[:N], digits)
    used = set()
    for blended, digit in zip(made[N:], digits, strict=True):
        fits = [np.abs(np.abs(np.array(c) - digit) - blended).max() <= 3 for c in COLOURS]
        assert sum(fits) == 1
        used.add(fits.index(True))
    assert used == {0, 1}


def test_patches_are_cut_from_all_over_a_photograph(root: Path) -> None:
    """Digits without ink show the patch alone; rows and columns of the photograph are numbered."""
    (root / "MNIST" / "train-images-idx3-ubyte").write_bytes(idx(np.zeros_like(PIXELS[:TRAIN])))
    for file in (root / "BSDS500").iterdir():
        file.unlink()
    picture = np.full((32, 48, 3), 128, dtype=np.uint8)
    picture[:, :, 0] = (np.arange(48) * 5)[None]
    picture[:, :, 1] = (np.arange(32) * 8)[:, None]
    Image.fromarray(picture).save(root / "BSDS500" / "0.jpg", quality=100, subsampling=0)
    made = pixels(mnist_m(root))[N : N + TRAIN]
    lefts, tops = (made[:, 0, 0, 0] / 5).round(), (made[:, 0, 0, 1] / 8).round()
    assert lefts.min() < 12
    assert 33 < lefts.max() <= 48 - SIDE
    assert tops.min() < 8
    assert 20 < tops.max() <= 32 - SIDE
    assert np.allclose(made[:, :, -1, 0] - made[:, :, 0, 0], 5 * (SIDE - 1), atol=4)


def test_it_is_deterministic_and_the_split_seed_changes_no_pixel(root: Path) -> None:
    one, two = mnist_m(root), mnist_m(root, split_seed=1, validation_share=0.5)
    backwards = {position: two.content(position) for position in reversed(range(2 * N))}
    assert all(one.content(position) == backwards[position] for position in range(2 * N))
    assert one.signature(N) == two.signature(N)


def test_more_digits_do_not_change_those_before_them(root: Path) -> None:
    before = mnist_m(root).content(2 * N - 1)
    file = root / "MNIST" / "t10k-images-idx3-ubyte"
    file.write_bytes(idx(np.concatenate([PIXELS[TRAIN:], PIXELS[:3]])))
    (root / "MNIST" / "t10k-labels-idx1-ubyte").write_bytes(idx(np.zeros(13, np.uint8)))
    longer = mnist_m(root)
    assert longer.content(longer.index().names.index("mnist_m/test/00009")) == before


def test_another_photograph_changes_the_blended_images_only(root: Path) -> None:
    before = mnist_m(root)
    signatures = [before.signature(0), before.signature(N)]
    contents = [before.content(position) for position in range(2 * N)]
    Image.new("RGB", (9, 7), (0, 250, 0)).save(root / "BSDS500" / "1.jpg")
    after = mnist_m(root)
    assert after.signature(0) == signatures[0]
    assert after.signature(N) != signatures[1]
    changed = [after.content(position) != contents[position] for position in range(2 * N)]
    assert not any(changed[:N])
    assert 0 < sum(changed[N:]) < N


def test_the_layout_of_the_original_archive_and_a_remark(root: Path) -> None:
    flat = mnist_m(root)
    assert flat.index().remarks == ("mnist_m is made of 2 photographs, not 200",)
    expected = flat.content(N)
    train = root / "BSDS500" / "data" / "images" / "train"
    train.mkdir(parents=True)
    for file in list((root / "BSDS500").glob("*.jpg")):
        file.rename(train / file.name)
    assert mnist_m(root).content(N) == expected


def test_folders_that_cannot_be_used(root: Path, tmp_path: Path) -> None:
    photograph = root / "BSDS500" / "1.jpg"
    Image.new("RGB", (9, SIDE - 1)).save(photograph)
    with pytest.raises(DataError, match=r"1\.jpg is smaller than a digit; remove it"):
        pixels(mnist_m(root))
    photograph.write_bytes(b"no photograph")
    with pytest.raises(DataError, match=r"images cannot be used:\n.*1\.jpg is not a readable"):
        prepare(mnist_m(root), SIDE)
    for file in (root / "BSDS500").iterdir():
        file.unlink()
    with pytest.raises(DataError, match=r"no photographs \*\.jpg in .*BSDS500; expected a folder"):
        mnist_m(root).index()
    (root / "BSDS500").rmdir()
    with pytest.raises(DataError, match="BSDS500 does not exist; expected a folder with MNIST/"):
        mnist_m(root).index()
    with pytest.raises(DataError, match="MNIST does not exist; expected a folder with MNIST/"):
        mnist_m(tmp_path).index()


def test_the_data_folder_itself_is_its_root(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSEEN_DATA", str(root))
    dataset = open_dataset(DataSettings(name="mnist_m"))
    assert dataset.root == root
    assert len(dataset.index()) == 2 * N


def test_the_real_files() -> None:
    """A digit is bright on black; blended, it is seen on light ground as well as on dark."""
    if REAL_DATA is None or not all((Path(REAL_DATA) / n).is_dir() for n in ("MNIST", "BSDS500")):
        pytest.skip("needs the folders MNIST and BSDS500 below $UNSEEN_DATA")
    dataset = mnist_m(Path(REAL_DATA))
    index = dataset.index()
    assert len(index) == 140_000
    assert index.remarks == ()
    corners = np.stack([np.asarray(dataset.read(70_000 + n))[0, 0] for n in range(0, 2000, 10)])
    assert corners.mean(axis=1).min() < 30
    assert corners.mean(axis=1).max() > 200
    assert np.ptp(corners.astype(int), axis=1).max() > 40
