"""The profile of a model: a round trip, files that are damaged, and where it travels."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
from tests.serve.models import make_model

from unseen.errors import UnseenError
from unseen.forecast.profile import STATISTICS, Profile, project
from unseen.results.files import write_arrays
from unseen.serve.export import export
from unseen.serve.predictor import load


def made(n: int = 60, opinions: bool = True) -> Profile:
    draws = np.random.default_rng(0)
    described = np.arange(0, n, 3)
    return Profile(
        classes=("dog", "elephant", "giraffe", "guitar", "horse", "house", "person"),
        domains=("art", "cartoon", "photo"),
        domain=np.sort(np.arange(n) % 3),
        label=draws.integers(0, 7, n),
        scores=draws.normal(size=(n, 7)).astype(np.float32),
        disagreement=draws.random(n).astype(np.float32) if opinions else None,
        described=described,
        statistics=draws.random((len(described), len(STATISTICS))).astype(np.float32),
        features=draws.normal(size=(len(described), 5)).astype(np.float32) if opinions else None,
    )


def same(one: Profile, other: Profile) -> None:
    for name, value in vars(one).items():
        np.testing.assert_array_equal(np.asarray(getattr(other, name)), np.asarray(value))


@pytest.mark.parametrize("opinions", [True, False])
def test_what_is_written_is_read_and_equal_profiles_make_equal_files(
    tmp_path: Path, opinions: bool
) -> None:
    profile = made(opinions=opinions)
    for name in ("one.npz", "two.npz"):
        profile.write(tmp_path / name)
    same(profile, Profile.read(tmp_path / "one.npz"))
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()


def test_accuracy_and_shares_are_those_of_the_labels() -> None:
    profile = made(3)
    profile.label[:] = profile.scores.argmax(axis=1)
    profile.label[0] = (profile.label[0] + 1) % 7
    assert profile.accuracy == pytest.approx(2 / 3)
    assert profile.label_shares.sum() == pytest.approx(1)
    assert profile.label_shares[profile.label[0]] >= 1 / 3


def test_a_long_profile_travels_with_evenly_fewer_images() -> None:
    profile = made(600)
    assert len(Profile.from_text(profile.to_text(), "here")) == 600
    short = Profile.from_text(profile.to_text(limit=8_000), "here")
    assert len(profile.to_text(limit=8_000)) <= 8_000
    assert 30 < len(short) < 300
    assert set(short.domain) == {0, 1, 2}
    rows = [np.flatnonzero((profile.scores == row).all(axis=1))[0] for row in short.scores]
    np.testing.assert_array_equal(short.label, profile.label[rows])
    features = {row.tobytes(): place for place, row in enumerate(profile.features)}  # pyright: ignore
    for place, row in zip(short.described, short.features, strict=True):  # pyright: ignore
        assert profile.described[features[row.tobytes()]] == rows[place]


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
    write_arrays(tmp_path / "profile.npz", made()._arrays() | harm)
    with pytest.raises(UnseenError, match=r"damaged|another version"):
        Profile.read(tmp_path / "profile.npz")


def test_damaged_files_and_pickles_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "profile.npz"
    made().write(path)
    whole = path.read_bytes()
    for harmed in (b"", b"text", whole[: len(whole) // 2], whole[:50] + b"\xff" * 50 + whole[100:]):
        path.write_bytes(harmed)
        with pytest.raises(UnseenError, match="damaged"):
            Profile.read(path)
    np.savez(path, label=np.array([{"a": 1}], dtype=object))
    with pytest.raises(UnseenError, match="damaged"):
        Profile.read(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("label.npy", bytes(2**28 + 1))
    with pytest.raises(UnseenError, match="too large"):
        Profile.read(path)
    with pytest.raises(UnseenError, match="base64"):
        Profile.from_text("no base64!", "model.onnx")


def test_it_travels_with_saved_models_and_onnx_files(tmp_path: Path) -> None:
    model = make_model("dmg")
    model.save_pretrained(tmp_path / "without")
    assert load(tmp_path / "without").profile is None
    model.profile = made()
    model.save_pretrained(tmp_path / "saved")
    export(model, "onnx", tmp_path / "model.onnx")
    for path in (tmp_path / "saved", tmp_path / "model.onnx"):
        found = load(path, "cpu").profile
        assert found is not None
        same(model.profile, found)


def test_projected_features_keep_their_distances() -> None:
    wide = np.random.default_rng(1).normal(size=(40, 1280))
    narrow = project(wide)
    assert narrow.shape == (40, 64)
    before = np.linalg.norm(wide[:20] - wide[20:], axis=1)
    after = np.linalg.norm(narrow[:20] - narrow[20:], axis=1)
    np.testing.assert_allclose(after / before, 1, atol=0.35)
    np.testing.assert_array_equal(project(wide[:, :9]), wide[:, :9].astype(np.float32))
