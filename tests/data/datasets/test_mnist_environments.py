"""RotatedMNIST and ColoredMNIST against DomainBed's own words: rotate, flip a quarter, colour."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.data.conftest import real_data
from tests.data.datasets.idx_files import idx
from torchvision.transforms.functional import InterpolationMode, rotate

from unseen.data.dataset import Dataset, open_dataset
from unseen.data.prepare import prepare
from unseen.errors import DataError
from unseen.settings.experiment import DataSettings

TRAIN, TEST, SIDE = 4000, 2000, 12
N = TRAIN + TEST
LABELS = np.random.default_rng(1).integers(0, 10, N, dtype=np.uint8)
PIXELS = np.random.default_rng(0).integers(1, 256, (N, SIDE, SIDE), dtype=np.uint8)
FILE = "train-images-idx3-ubyte"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mnist")
    for part, rows in (("train", slice(0, TRAIN)), ("t10k", slice(TRAIN, None))):
        (folder / f"{part}-images-idx3-ubyte").write_bytes(idx(PIXELS[rows]))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx(LABELS[rows]))
    return folder


def opened(name: str, root: Path, **values: object) -> Dataset:
    return open_dataset(DataSettings.model_validate({"name": name, "root": root, **values}))


@pytest.mark.parametrize(("name", "n_domains"), [("rotated_mnist", 6), ("colored_mnist", 3)])
def test_each_digit_is_in_one_domain_and_all_are_used(
    name: str, n_domains: int, root: Path
) -> None:
    index = opened(name, root).index()
    assert len(index) == N
    assert np.bincount(index.domain_of).tolist() == [N // n_domains] * n_domains
    assert len({digit.partition("/")[2] for digit in index.names}) == N
    shares = [np.mean(index.domain_of[:TRAIN] == domain) for domain in range(n_domains)]
    assert np.allclose(shares, 1 / n_domains, atol=0.03)  # shuffled over both files
    repeats = np.mean(index.domain_of[n_domains:] == index.domain_of[:-n_domains])
    assert repeats < 1.5 / n_domains  # and not dealt out in the order of the files
    other = opened(name, root, split_seed=1).index()
    assert np.array_equal(other.domain_of, index.domain_of)
    assert np.array_equal(other.labels, index.labels)
    assert not np.array_equal(other.splits, index.splits)


def test_rotation_is_torchvisions(root: Path) -> None:
    dataset = opened("rotated_mnist", root)
    index = dataset.index()
    assert index.domains == ("0", "15", "30", "45", "60", "75")
    assert np.array_equal(index.labels, LABELS)
    for row in range(60):
        angle = int(index.domains[index.domain_of[row]])
        digit = Image.fromarray(PIXELS[row])
        turned = rotate(digit, angle, InterpolationMode.BILINEAR, fill=[0])
        assert np.array_equal(np.asarray(dataset.read(row))[..., 0], np.asarray(turned))
    assert {int(domain) for domain in index.domain_of[:60]} == set(range(6))


def test_colours_and_labels_have_the_published_chances(root: Path) -> None:
    dataset = opened("colored_mnist", root)
    index = dataset.index()
    assert index.domains == ("+90%", "+80%", "-90%")
    assert index.classes[1] == "digits 0-4"
    flipped = index.labels != (LABELS < 5)
    assert np.mean(flipped) == pytest.approx(0.25, abs=0.02)
    pictures = np.stack([np.asarray(dataset.read(row)) for row in range(N)])
    colours = pictures[:, 0, 0, :2].argmax(axis=1)
    for domain, chance in enumerate((0.1, 0.2, 0.9)):
        rows = index.domain_of == domain
        assert np.mean(colours[rows] != index.labels[rows]) == pytest.approx(chance, abs=0.03)
        assert np.mean(flipped[rows]) == pytest.approx(0.25, abs=0.04)
    independent = np.mean(flipped & (colours != index.labels) & (index.domain_of == 1)) * 3
    assert independent == pytest.approx(0.25 * 0.2, abs=0.02)


def test_a_digit_is_in_one_channel_and_the_others_are_black(root: Path) -> None:
    dataset = opened("colored_mnist", root)
    for row in range(20):
        picture = np.asarray(dataset.read(row))
        channel = int(picture[0, 0].argmax())
        assert channel < 2
        assert np.array_equal(picture[..., channel], PIXELS[row])
        assert np.delete(picture, channel, axis=2).max() == 0


@pytest.mark.parametrize("name", ["rotated_mnist", "colored_mnist"])
def test_defects(name: str, root: Path, tmp_path: Path) -> None:
    for file in root.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(DataError, match="nowhere does not exist; expected the four files"):
        opened(name, tmp_path / "nowhere").index()
    (tmp_path / FILE).write_bytes(idx(PIXELS[:TRAIN])[:-5])
    with pytest.raises(DataError, match=f"{FILE} announces .* cut short; download it again"):
        opened(name, tmp_path).index()
    (tmp_path / FILE).write_bytes(idx(PIXELS[: TRAIN - 1]))
    with pytest.raises(DataError, match=r"holds 3999 images but .* 4000 labels"):
        opened(name, tmp_path).index()
    (tmp_path / FILE).unlink()
    with pytest.raises(DataError, match=f"{FILE} .*is not in .*; expected the four files"):
        opened(name, tmp_path).index()


def test_the_real_digits() -> None:
    dataset = opened("rotated_mnist", real_data("MNIST"))
    assert np.bincount(dataset.index().domain_of).tolist() == [11667] * 4 + [11666] * 2


def test_preparing_keeps_the_pixels(tmp_path: Path) -> None:
    for part in ("train", "t10k"):
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(idx(PIXELS[:12]))
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(idx(LABELS[:12]))
    dataset = opened("colored_mnist", tmp_path)
    images = prepare(dataset, SIDE).batch(np.arange(24)).permute(0, 2, 3, 1).numpy()
    assert all(np.array_equal(images[row], np.asarray(dataset.read(row))) for row in range(24))
