"""What is measured of images and of opinions, and the profile of a model: a round trip, files that
are damaged."""

import io
import math
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFilter
from tests.forecast.made import made_profile
from tests.serve.models import CLASSES, DOMAINS

from unseen.errors import UnseenError
from unseen.forecast.profile import (
    MEANINGS,
    STATISTICS,
    Profile,
    disagreement,
    image_statistics,
    project,
)


def made(n: int = 60, opinions: bool = True) -> Profile:
    found = made_profile(CLASSES, DOMAINS, n, every=3, width=5)
    return found if opinions else replace(found, disagreement=None, features=None)


def same(one: Profile, other: Profile) -> None:
    for name, value in vars(one).items():
        np.testing.assert_array_equal(np.asarray(getattr(other, name)), np.asarray(value))


@pytest.mark.parametrize("opinions", [True, False])
def test_what_is_written_is_read_and_equal_profiles_make_equal_files(
    tmp_path: Path, opinions: bool
) -> None:
    files, profile = (tmp_path / "one.npz", tmp_path / "two.npz"), made(3, opinions)
    profile.label[:] = profile.scores.argmax(axis=1)
    profile.label[0] = (profile.label[0] + 1) % 7
    assert profile.accuracy == pytest.approx(2 / 3)
    assert profile.label_shares.sum() == pytest.approx(1)
    for file in files:
        profile.write(file)
        same(profile, Profile.read(file))
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize(
    "harm",
    [
        {"label": np.full(60, 99, dtype=np.int32)},
        {"domain": np.full(60, -1, dtype=np.int16)},
        {"described": np.full(20, 60, dtype=np.int32)},
        {"scores": np.full((60, 7), np.nan, dtype=np.float32)},
        {"scores": np.zeros((60, 6), dtype=np.float32)},
        {"features": np.zeros((3, 5), dtype=np.float32)},
        {"version": np.array([99])},
        {"statistic_names": np.array(["size"])},
        {"label": np.array(["a"] * 60)},
        {"more": np.zeros(1)},
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path: Path, harm: dict[str, np.ndarray]) -> None:
    path = tmp_path / "profile.npz"
    made().write(path)
    with np.load(path) as found:
        arrays = dict(found)
    np.savez(path, **arrays)
    same(made(), Profile.read(path))
    np.savez(path, **(arrays | harm))
    with pytest.raises(UnseenError, match=r"damaged|another version"):
        Profile.read(path)


def test_damaged_files_and_pickles_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "profile.npz"
    made().write(path)
    whole = path.read_bytes()
    pickled = io.BytesIO()
    np.savez(pickled, label=np.array([{"a": 1}], dtype=object))
    harmed = [b"", b"text", whole[: len(whole) // 2], whole[:50] + b"\xff" * 50 + whole[100:]]
    for content in (*harmed, pickled.getvalue()):
        path.write_bytes(content)
        with pytest.raises(UnseenError, match="damaged"):
            Profile.read(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("label.npy", bytes(2**28 + 1))
    with pytest.raises(UnseenError, match="too large"):
        Profile.read(path)
    with pytest.raises(UnseenError, match="base64"):
        Profile.from_text("no base64!", "model.onnx")


def test_projected_features_keep_their_distances() -> None:
    wide = np.random.default_rng(1).normal(size=(40, 1280))
    narrow = project(wide)
    assert narrow.shape == (40, 64)
    before = np.linalg.norm(wide[:20] - wide[20:], axis=1)
    after = np.linalg.norm(narrow[:20] - narrow[20:], axis=1)
    np.testing.assert_allclose(after / before, 1, atol=0.35)
    np.testing.assert_array_equal(project(wide[:, :9]), wide[:, :9].astype(np.float32))


@pytest.mark.parametrize(
    ("opinions", "expected"),
    [
        ([[0.2, 0.8], [0.2, 0.8]], 0.0),
        ([[1, 0], [0, 1]], 1.0),
        ([[1, 0, 0], [0, 1, 0], [0, 0, 1]], 1.0),
        ([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]], 1.0),
        ([[1, 0], [0, 1], [1, 0]], 1.0),  # three opinions on two classes: two to one is the most
        ([[0.3, 0.7]], 0.0),
        # means (3/4, 1/4): H = 0.56234, mean of H = ln 2 / 2, divided by ln 2
        ([[1, 0], [0.5, 0.5]], (0.5623351446 - math.log(2) / 2) / math.log(2)),
    ],
)
def test_disagreement_by_hand(opinions: list[list[float]], expected: float) -> None:
    assert disagreement(np.array(opinions)) == pytest.approx(expected, abs=1e-9)


def test_disagreement_is_one_number_for_each_image_between_0_and_1() -> None:
    random = np.random.default_rng(0)
    for n_domains, n_classes in ((2, 2), (3, 7), (7, 3), (5, 5)):
        sharp = random.exponential(size=(100, n_domains, n_classes)) ** 9
        found = disagreement(sharp / sharp.sum(axis=-1, keepdims=True))
        assert 0 <= found.min() < 0.5 < found.max() <= 1


def measured(image: Image.Image, size: int | None = None) -> dict[str, float]:
    return dict(zip(STATISTICS, map(float, image_statistics(image, size)), strict=True))


def soft(size: int = 160) -> Image.Image:
    """A picture of smooth shapes."""
    dots = np.random.default_rng(3).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    return Image.fromarray(dots).resize((size, size), Image.Resampling.BICUBIC)


def test_statistics_by_hand() -> None:
    found = measured(Image.new("RGB", (40, 30), (255, 0, 0)), size=2400)
    assert (found["width"], found["height"]) == (40, 30)
    assert found["brightness"] == pytest.approx(0.299, abs=1e-5)
    assert found["warmth"] == found["saturation"] == pytest.approx(1)
    # mean of red - green is 1, of yellow - blue 1/2: 0.3 * sqrt(1.25)
    assert found["colourfulness"] == pytest.approx(0.3 * 1.25**0.5, abs=1e-5)
    assert found["bytes per pixel"] == 2
    for name in ("contrast", "noise", "blockiness"):
        assert found[name] == pytest.approx(0, abs=1e-5)
    assert set(MEANINGS) == set(found)
    assert found["sharpness"] == pytest.approx(-6, abs=0.1)
    halves = np.zeros((30, 40, 3), dtype=np.uint8)
    halves[:, 20:] = 255
    found = measured(Image.fromarray(halves))
    assert np.isnan(found["bytes per pixel"])
    wanted = {"brightness": 0.5, "contrast": 0.5, "colourfulness": 0}
    assert {name: found[name] for name in wanted} == pytest.approx(wanted, abs=1e-5)
    grain = 128 + np.random.default_rng(0).normal(0, 10, (200, 200, 1)).repeat(3, axis=2)
    found = measured(Image.fromarray(grain.round().astype(np.uint8)))
    assert found["noise"] == pytest.approx(10 / 255, rel=0.1)


def test_a_blurred_picture_is_less_sharp_and_a_compressed_one_has_blocks() -> None:
    grain = np.random.default_rng(1).normal(0, 20, (160, 160, 3))
    fine = Image.fromarray(np.clip(np.asarray(soft()) + grain, 0, 255).astype(np.uint8))
    before, blurred = measured(fine), measured(fine.filter(ImageFilter.GaussianBlur(2)))
    assert blurred["sharpness"] < before["sharpness"] - 1
    file = io.BytesIO()
    fine.save(file, "JPEG", quality=8)
    compressed = measured(Image.open(file).convert("RGB"))
    assert compressed["blockiness"] > before["blockiness"] + 0.1


@pytest.mark.parametrize("size", [(1, 1), (2, 9), (9, 2), (3000, 5)])
def test_odd_sizes_have_finite_statistics(size: tuple[int, int]) -> None:
    found = image_statistics(Image.new("RGB", size, "gray"), 10)
    assert np.isfinite(found).all()


def test_light_and_colour_hardly_depend_on_the_size() -> None:
    small, large = measured(soft(250)), measured(soft(250).resize((1500, 1500)))
    for name in ("brightness", "contrast", "colourfulness", "saturation", "warmth"):
        assert large[name] == pytest.approx(small[name], abs=0.02)
