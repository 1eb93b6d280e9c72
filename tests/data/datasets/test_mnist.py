"""MNIST, what is made of it, and Digits-Five: small copies, whole and with defects."""

import bz2
import gzip
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat
from tests.data.conftest import contents, idx, opened, real_data, refused, write_mnist
from torchvision.transforms.functional import InterpolationMode, rotate

from unseen.data.dataset import Dataset
from unseen.data.index import Split
from unseen.data.prepare import prepare
from unseen.data.roles import choose_roles
from unseen.errors import DataError, SettingsError
from unseen.settings.recipes import load_experiment

TRAIN, TEST, SIDE = 40, 10, 6
N = TRAIN + TEST
LABELS = np.arange(N, dtype=np.uint8) % 10
PIXELS = np.random.default_rng(0).integers(0, 256, (N, SIDE, SIDE), dtype=np.uint8)
COLOURS = ((200, 100, 0), (16, 32, 64))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A few digits, and two photographs, each of a colour that JPEG keeps nearly as it is."""
    write_mnist(tmp_path / "data" / "MNIST", PIXELS, LABELS, TRAIN, zipped=True)
    photographs = tmp_path / "data" / "BSDS500"
    photographs.mkdir()
    for number, colour in enumerate(COLOURS):
        Image.new("RGB", (11, 8), colour).save(photographs / f"{number}.jpg", quality=100)
    return tmp_path / "data"


def pictures(dataset: Dataset) -> np.ndarray:
    rows = range(len(dataset.index()))
    return np.stack([np.asarray(dataset.read(row)) for row in rows]).astype(int)


def test_files_decide_and_validation_is_taken_from_train(root: Path) -> None:
    """Zipped, or plain in the folder raw; a file that changed is noticed."""
    folder = root / "MNIST"
    dataset = opened("mnist", folder, validation_share=0.3)
    index = dataset.index()
    assert (index.classes, index.domains) == (tuple("0123456789"), ("mnist",))
    assert (index.names[0], index.names[TRAIN]) == ("train/00000", "test/00000")
    assert index.labels.tolist() == LABELS.tolist()
    assert index.official_test
    assert set(index.splits[:TRAIN].tolist()) == {Split.TRAIN, Split.VALIDATION}
    assert set(index.splits[TRAIN:].tolist()) == {Split.TEST}
    more = opened("mnist", folder, validation_share=0.6, test_share=0.3).index()
    assert np.all(more.splits[index.splits == Split.VALIDATION] == Split.VALIDATION)
    assert np.sum(more.splits == Split.TEST) == TEST
    roles = choose_roles(index, dataset.config)
    assert roles.in_domain["mnist"].tolist() == list(range(TRAIN, N))
    digits = np.stack([PIXELS] * 3, axis=3)
    assert np.array_equal(pictures(dataset), digits)
    assert np.array_equal(prepare(dataset, SIDE).batch(np.arange(N)).permute(0, 2, 3, 1), digits)
    expected, signatures = contents(dataset), [dataset.signature(row) for row in (0, TRAIN)]
    os.utime(folder / "t10k-images-idx3-ubyte.gz", (1, 1))
    again = [opened("mnist", folder).signature(row) for row in (0, TRAIN)]
    assert [old == new for old, new in zip(signatures, again, strict=True)] == [True, False]
    for file in list(folder.glob("*.gz")):
        file.unlink()
    write_mnist(folder / "raw", PIXELS, LABELS, TRAIN)
    assert contents(opened("mnist", folder)) == expected
    assert len(set(expected)) == N


def test_labels_that_cannot_be_used(root: Path) -> None:
    labels, values = root / "MNIST" / "train-labels-idx1-ubyte.gz", idx(LABELS[:TRAIN])
    good = gzip.compress(values)
    for damaged, message in (
        (good[:-12], "cannot be read .*download it again"),
        (good[:20] + b"\xff" * 8 + good[28:], "cannot be read .*download it again"),
        (b"<html>", "cannot be read .*download it again"),
        (gzip.compress(values[:-3]), "cannot be read .*cut short"),
        (gzip.compress(bytes([0, 0, 8, 1, 0, 0])), "cannot be read .*download it again"),
        (gzip.compress(idx(PIXELS)), "begins with 00000803, not with 00000801"),
        (gzip.compress(b""), "begins with , not with 00000801"),
        (gzip.compress(idx(LABELS[:7])), "holds 40 images but .*labels-idx1-ubyte.gz 7 labels"),
        (gzip.compress(idx(LABELS[:TRAIN] + 5)), "holds the labels 5..14; expected 0..9"),
    ):
        labels.write_bytes(damaged)
        with pytest.raises(DataError, match=message) as caught:
            opened("mnist", root / "MNIST").index()
        assert str(labels) in str(caught.value)


@pytest.mark.parametrize("name", ["mnist", "rotated_mnist", "colored_mnist"])
def test_missing_files(name: str, root: Path, tmp_path: Path) -> None:
    (root / "MNIST" / "train-images-idx3-ubyte.gz").unlink()
    refused(name, root / "MNIST", r"train-images-idx3-ubyte \(or .*\.gz\) is not in")
    refused(name, tmp_path / "none", "does not exist; expected the four files")


# MNIST-M


def test_every_digit_is_in_both_domains_and_held_out_of_both(root: Path) -> None:
    dataset = opened("mnist_m", root, validation_share=0.3, unseen_domain="mnist_m")
    index = dataset.index()
    assert index.domains == ("mnist", "mnist_m")
    assert (index.names[0], index.names[N + TRAIN]) == ("mnist/train/00000", "mnist_m/test/00000")
    assert index.labels.tolist() == LABELS.tolist() * 2
    assert np.array_equal(index.splits[:N], index.splits[N:])
    assert np.sum(index.splits == Split.VALIDATION) > 0
    assert index.remarks == ("mnist_m is made of 2 photographs, not 200",)
    roles = choose_roles(index, dataset.config)
    assert roles.out_of_domain["mnist_m"].tolist() == list(range(N + TRAIN, 2 * N))


def test_a_blended_digit_is_the_distance_between_photograph_and_digit(root: Path) -> None:
    made = pictures(opened("mnist_m", root))
    digits = np.stack([PIXELS] * 3, axis=3).astype(int)
    assert np.array_equal(made[:N], digits)
    found = [np.abs(np.abs(np.array(c) - digits) - made[N:]).max(axis=(1, 2, 3)) for c in COLOURS]
    fits = np.array(found) <= 3
    assert fits.sum(axis=0).tolist() == [1] * N
    assert fits.any(axis=1).all()


def test_patches_are_cut_from_all_over_a_photograph(root: Path) -> None:
    """Digits without ink show the patch alone; rows and columns of the photograph are numbered."""
    write_mnist(root / "MNIST", np.zeros_like(PIXELS), LABELS, TRAIN, zipped=True)
    for file in (root / "BSDS500").iterdir():
        file.unlink()
    picture = np.full((32, 48, 3), 128, dtype=np.uint8)
    picture[:, :, 0] = (np.arange(48) * 5)[None]
    picture[:, :, 1] = (np.arange(32) * 8)[:, None]
    Image.fromarray(picture).save(root / "BSDS500" / "0.jpg", quality=100, subsampling=0)
    made = pictures(opened("mnist_m", root))[N : N + TRAIN]
    lefts, tops = (made[:, 0, 0, 0] / 5).round(), (made[:, 0, 0, 1] / 8).round()
    assert lefts.min() < 12
    assert 31 < lefts.max() <= 48 - SIDE
    assert tops.min() < 8
    assert 18 < tops.max() <= 32 - SIDE
    assert np.allclose(made[:, :, -1, 0] - made[:, :, 0, 0], 5 * (SIDE - 1), atol=4)


def test_a_blended_digit_follows_from_its_name_and_the_photographs_alone(root: Path) -> None:
    """Not from the seed of the split, the order of reading, or the digits after it."""
    one = opened("mnist_m", root)
    two = opened("mnist_m", root, split_seed=1, validation_share=0.5)
    backwards = {position: two.content(position) for position in reversed(range(2 * N))}
    assert contents(one) == [backwards[position] for position in range(2 * N)]
    signatures = [one.signature(row) for row in (0, N)]
    assert signatures == [two.signature(row) for row in (0, N)]
    Image.new("RGB", (11, 8), (0, 250, 0)).save(root / "BSDS500" / "1.jpg")
    after = opened("mnist_m", root)
    assert [after.signature(row) == old for row, old in zip((0, N), signatures, strict=True)] == [
        *(True, False)
    ]
    changed = [backwards[row] != new for row, new in enumerate(contents(after))]
    assert not any(changed[:N])
    assert 0 < sum(changed[N:]) < N
    more, labels = np.concatenate([PIXELS, PIXELS[:3]]), np.append(LABELS, [0, 0, 0])
    write_mnist(root / "MNIST", more, labels, TRAIN, zipped=True)
    longer = opened("mnist_m", root)
    row = longer.index().names.index("mnist_m/test/00009")
    assert longer.content(row) == after.content(2 * N - 1)


def test_photographs_that_cannot_be_used(root: Path, tmp_path: Path) -> None:
    """Where they are not beside the digits, or as the archive unpacks them."""
    expected, photographs = opened("mnist_m", root).content(N), root / "BSDS500"
    train = photographs / "data" / "images" / "train"
    train.mkdir(parents=True)
    for file in list(photographs.glob("*.jpg")):
        file.rename(train / file.name)
    assert opened("mnist_m", root).content(N) == expected
    Image.new("RGB", (9, SIDE - 1)).save(train / "1.jpg")
    with pytest.raises(DataError, match=r"1\.jpg is smaller than a digit; remove it"):
        pictures(opened("mnist_m", root))
    (train / "1.jpg").write_bytes(b"no photograph")
    with pytest.raises(DataError, match=r"images cannot be used:\n.*1\.jpg is not a readable"):
        prepare(opened("mnist_m", root), SIDE)
    shutil.rmtree(photographs / "data")
    refused("mnist_m", root, r"no photographs \*\.jpg in .*BSDS500; expected a folder")
    photographs.rmdir()
    refused("mnist_m", root, "BSDS500 does not exist; expected a folder with MNIST/")
    refused("mnist_m", tmp_path, "MNIST does not exist; expected a folder with MNIST/")


# RotatedMNIST and ColoredMNIST, against DomainBed's own words: rotate, flip a quarter, colour

MANY = 6000
MANY_LABELS = np.random.default_rng(1).integers(0, 10, MANY, dtype=np.uint8)
MANY_PIXELS = np.random.default_rng(0).integers(1, 256, (MANY, 12, 12), dtype=np.uint8)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mnist(tmp_path_factory.mktemp("mnist"), MANY_PIXELS, MANY_LABELS, 4000)


@pytest.mark.parametrize(("name", "n_domains"), [("rotated_mnist", 6), ("colored_mnist", 3)])
def test_each_digit_is_in_one_domain_and_all_are_used(
    name: str, n_domains: int, many: Path
) -> None:
    index = opened(name, many).index()
    assert len(index) == MANY
    assert np.bincount(index.domain_of).tolist() == [MANY // n_domains] * n_domains
    assert len({digit.partition("/")[2] for digit in index.names}) == MANY
    shares = [np.mean(index.domain_of[:4000] == domain) for domain in range(n_domains)]
    assert np.allclose(shares, 1 / n_domains, atol=0.03)  # shuffled over both files
    repeats = np.mean(index.domain_of[n_domains:] == index.domain_of[:-n_domains])
    assert repeats < 1.5 / n_domains  # and not dealt out in the order of the files
    other = opened(name, many, split_seed=1).index()
    assert np.array_equal(other.domain_of, index.domain_of)
    assert np.array_equal(other.labels, index.labels)
    assert not np.array_equal(other.splits, index.splits)


def test_rotation_is_torchvisions(many: Path) -> None:
    dataset = opened("rotated_mnist", many)
    index = dataset.index()
    assert index.domains == ("0", "15", "30", "45", "60", "75")
    assert np.array_equal(index.labels, MANY_LABELS)
    for row in range(60):
        angle = int(index.domains[index.domain_of[row]])
        digit = Image.fromarray(MANY_PIXELS[row])
        turned = rotate(digit, angle, InterpolationMode.BILINEAR, fill=[0])
        assert np.array_equal(np.asarray(dataset.read(row))[..., 0], np.asarray(turned))
    assert {int(domain) for domain in index.domain_of[:60]} == set(range(6))


def test_colours_and_labels_have_the_published_chances(many: Path) -> None:
    dataset = opened("colored_mnist", many)
    index = dataset.index()
    assert index.domains == ("+90%", "+80%", "-90%")
    assert index.classes[1] == "digits 0-4"
    flipped = index.labels != (MANY_LABELS < 5)
    assert np.mean(flipped) == pytest.approx(0.25, abs=0.02)
    colours = np.array([np.asarray(dataset.read(row))[0, 0, :2].argmax() for row in range(MANY)])
    for domain, chance in enumerate((0.1, 0.2, 0.9)):
        rows = index.domain_of == domain
        assert np.mean(colours[rows] != index.labels[rows]) == pytest.approx(chance, abs=0.03)
        assert np.mean(flipped[rows]) == pytest.approx(0.25, abs=0.04)
    independent = np.mean(flipped & (colours != index.labels) & (index.domain_of == 1)) * 3
    assert independent == pytest.approx(0.25 * 0.2, abs=0.02)


def test_a_digit_is_in_one_channel_and_preparing_keeps_its_pixels(root: Path) -> None:
    dataset = opened("colored_mnist", root / "MNIST")
    made = pictures(dataset)
    assert np.array_equal(np.sort(made, axis=3)[..., 2], PIXELS)
    assert set((made.sum(axis=(1, 2)) > 0).argmax(axis=1).tolist()) <= {0, 1}
    assert np.sort(made, axis=3)[..., :2].max() == 0
    assert np.array_equal(prepare(dataset, SIDE).batch(np.arange(N)).permute(0, 2, 3, 1), made)


def test_the_real_files() -> None:
    """A digit is bright on black; blended, it is seen on light ground as well as on dark."""
    root = real_data("MNIST").parent
    plain = opened("mnist", root / "MNIST")
    index = plain.index()
    assert np.bincount(index.splits)[Split.TEST] == 10_000
    of_train = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(index.labels[:60_000]).tolist() == of_train
    assert index.labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert plain.read(0).size == (28, 28)
    rotated = opened("rotated_mnist", root / "MNIST").index()
    assert np.bincount(rotated.domain_of).tolist() == [11667] * 4 + [11666] * 2
    real_data("BSDS500")
    blended = opened("mnist_m", root)
    assert len(blended.index()) == 140_000
    assert blended.index().remarks == ()
    corners = np.stack([np.asarray(blended.read(70_000 + n))[0, 0] for n in range(0, 2000, 10)])
    assert corners.mean(axis=1).min() < 30
    assert corners.mean(axis=1).max() > 200
    assert np.ptp(corners.astype(int), axis=1).max() > 40


# Digits-Five

COUNTS = {"train": 20, "test": 10}
FIVE = ("mnist", "mnist_m", "usps", "svhn", "syn")
OF_PART = {part: np.arange(n) % 10 for part, n in COUNTS.items()}


def coloured(part: str, side: int) -> np.ndarray:
    shape = (COUNTS[part], side, side, 3)
    return np.random.default_rng(side).integers(0, 256, shape, dtype=np.uint8)


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """The files of the archive Digit-Five."""
    mnist: dict[str, Any] = {}
    mnist_m: dict[str, Any] = {}
    syn: dict[str, Any] = {}
    cells = np.empty((2, 2), dtype=object)
    for row, (part, labels) in enumerate(OF_PART.items()):
        mnist |= {f"{part}_28": coloured(part, 28)[..., :1], f"label_{part}": np.eye(10)[labels]}
        mnist_m |= {part: coloured(part, 28), f"label_{part}": np.eye(10)[labels]}
        syn |= {f"{part}_data": coloured(part, 32), f"{part}_label": labels[:, None]}
        cells[row, 0] = coloured(part, 28)[:, None, :, :, 0] / 256
        cells[row, 1] = labels[:, None]
        house = {"X": coloured(part, 32).transpose(1, 2, 3, 0)}
        house["y"] = np.where(labels == 0, 10, labels)[:, None]
        savemat(tmp_path / f"svhn_{part}_32x32.mat", house)
    savemat(tmp_path / "mnist_data.mat", mnist)
    savemat(tmp_path / "mnistm_with_label.mat", mnist_m)
    savemat(tmp_path / "syn_number.mat", syn)
    savemat(tmp_path / "usps_28x28.mat", {"dataset": cells})
    return tmp_path


@pytest.fixture
def original(root: Path) -> Path:
    """MNIST, photographs and USPS as they are at hand in many places."""
    (root / "USPS").mkdir()
    for part, labels in OF_PART.items():
        lines = [f"{label}.0000 " + " ".join(["-1.000", "0.5"] * 128) for label in labels]
        data = gzip.compress(("\n".join(lines) + "\n").encode())
        (root / "USPS" / f"zip.{part}.gz").write_bytes(data)
    return root


def test_the_published_files_of_digits_five(published: Path) -> None:
    dataset = opened("digits_5", published)
    index = dataset.index()
    assert index.domains == FIVE
    assert index.official_test
    for domain in FIVE:
        rows = index.rows(domain)
        assert index.labels[rows].tolist() == [*OF_PART["train"], *OF_PART["test"]]
        assert index.rows(domain, Split.TEST).tolist() == rows[20:].tolist()
        side = 32 if domain in {"svhn", "syn"} else 28
        for part, row in (("train", rows[3]), ("test", rows[23])):
            expected = coloured(part, side)[3]
            if domain in {"mnist", "usps"}:
                expected = np.repeat(expected[..., :1], 3, axis=2)
            difference = np.asarray(dataset.read(row)).astype(int) - expected
            assert np.abs(difference).max() <= (domain == "usps"), domain
    assert len(prepare(dataset, 28).index) == 5 * 30


def test_the_original_files_of_digits_five(original: Path) -> None:
    dataset = opened("digits_5", original, domains="usps,mnist,mnist_m")
    index = dataset.index()
    assert index.domains == ("mnist", "mnist_m", "usps")
    made = opened("mnist_m", original)
    assert contents(dataset)[: 2 * N] == contents(made)
    usps = np.asarray(dataset.read(2 * N))
    assert usps.shape == (16, 16, 3)
    assert usps[0, :4, 0].tolist() == [0, 191, 0, 191]
    signatures = {dataset.signature(row) for row in range(len(index))}
    assert len(signatures) == 6  # of MNIST, MNIST-M and USPS, both files each
    with pytest.raises(DataError) as caught:
        opened("digits_5", original).index()
    message = str(caught.value)
    assert "svhn: svhn_{train,test}_32x32.mat or SVHN/" in message
    assert "syn: syn_number.mat" in message
    assert message.endswith("data.domains=mnist,mnist_m,usps")


def test_usps_of_libsvm_is_the_same(original: Path) -> None:
    expected = opened("digits_5", original, domains="usps")
    before = contents(expected)
    for part, name in (("train", "usps.bz2"), ("test", "usps.t.bz2")):
        values = " ".join(f"{n + 1}:{(-1, 0.5)[n % 2]}" for n in range(256))
        text = "".join(f"{label + 1} {values} \n" for label in OF_PART[part])
        (original / "USPS" / name).write_bytes(bz2.compress(text.encode()))
        (original / "USPS" / f"zip.{part}.gz").unlink()
    again = opened("digits_5", original, domains="usps")
    assert again.index().labels.tolist() == expected.index().labels.tolist()
    assert contents(again) == before
    file = original / "USPS" / "usps.t.bz2"
    file.write_bytes(bz2.compress(bz2.decompress(file.read_bytes())[:-40]))
    message = r"usps\.t\.bz2 cannot be read as lines of 257 numbers"
    refused("digits_5", original, message, domains="usps")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("svhn_test", b"MATLAB", r"svhn_test_32x32\.mat is not a readable MATLAB file"),
        ("syn_number", {"X": np.ones(2)}, "has no array 'train_label'; it is another file"),
        ("svhn_train", {"y": np.array([[11]])}, r"holds the labels 11\.\.11; expected 0\.\.9"),
        ("svhn_train", {"y": np.zeros((0, 1))}, "holds no digits"),
        (
            *("svhn_train", {"X": np.zeros((32, 32, 3, 10), np.uint8), "y": np.ones((20, 1))}),
            r"20 images cannot be used:\n.*10 images for 20 labels",
        ),
    ],
)
def test_damaged_files(published: Path, name: str, content: Any, message: str) -> None:
    (file,) = published.glob(f"{name}*.mat")
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        savemat(file, content)
    with pytest.raises(DataError, match=message):
        prepare(opened("digits_5", published), 28)


def test_an_unknown_domain_is_refused_with_the_settings() -> None:
    with pytest.raises(SettingsError, match=r"unknown domain 'upss'; did you mean 'usps'"):
        load_experiment("digits_5/aggregate", {"data.domains": "mnist,upss"})


def test_the_real_usps() -> None:
    dataset = opened("digits_5", real_data("USPS").parent, domains="usps")
    index = dataset.index()
    assert index.remarks == ()
    assert np.bincount(index.labels).tolist()[:3] == [1194 + 359, 1005 + 264, 731 + 198]
    means = [np.asarray(dataset.read(row)).mean() for row in range(0, 9000, 100)]
    assert 60 < np.mean(means) < 90
