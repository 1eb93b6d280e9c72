"""A model in use: what goes in, what comes out, calibrated or raw, from every kind of file; and how
much of it is held in memory."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from benchmarks.service.mutations import bomb
from PIL import Image
from tests.commands import commands_in
from tests.serve.models import CLASSES, DOMAINS, make_model
from tests.serve.service.asking import BrightnessModel

import unseen
from unseen.data.images import open_image, to_square
from unseen.errors import DataError, SettingsError, UnseenError
from unseen.forecast.profile import disagreement, image_statistics
from unseen.serve.export import Exported
from unseen.serve.forecast import read_files
from unseen.serve.model import Model
from unseen.serve.predictor import Predictor, read_pixels


def test_probabilities_and_opinions(dmg: Model, files: list[Path]) -> None:
    found = dmg.predict(files)
    assert found.shape == (4, len(CLASSES))
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)
    assert found.max() > 0.3  # answers worth comparing
    opinions = dmg.opinions(files)
    assert opinions.shape == (4, len(DOMAINS), len(CLASSES))
    for position, name in enumerate(DOMAINS):
        known = dmg.predict(files, domain=name)
        np.testing.assert_allclose(opinions[:, position], known, atol=1e-6)
    np.testing.assert_array_equal(dmg.disagreement(files), disagreement(opinions))
    assert dmg.opinions([]).shape == (0, len(DOMAINS), len(CLASSES))


def test_a_model_that_ignores_the_domain_has_no_opinions(files: list[Path]) -> None:
    model = make_model("aggregate")
    (first, *_) = model.stream(files)
    assert (first.opinions, first.disagreement) == (None, None)
    with pytest.raises(UnseenError, match="predicts the same for every domain"):
        model.opinions(files)
    with pytest.raises(SettingsError, match="the device 'abacus' cannot be used"):
        Model(model.method, model.experiment, "", "abacus")


def test_a_bad_image_stops_nothing_in_a_stream(
    dmg: Model, files: list[Path], tmp_path: Path
) -> None:
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"no picture")
    given = [bad, *files[:2], bad, files[2]]
    found = list(dmg.stream(given, batch=2))
    assert [each.image for each in found] == given
    assert [each.problem is None for each in found] == [False, True, True, False, True]
    problem = "is not a readable image: its bytes are in no known image format"
    assert found[0].problem == f"{bad} {problem}"
    assert (found[0].probabilities, found[0].opinions) == (None, None)
    alone = dmg.predict([files[2]])[0]
    np.testing.assert_allclose(found[4].probabilities, alone, atol=1e-6)
    with pytest.raises(DataError, match=r"bad\.png is not a readable image"):
        dmg.predict(given)


@pytest.mark.parametrize(("kind", "side"), [("JPEG", 200), ("JPEG", 90), ("PNG", 200)])
def test_a_file_is_prepared_as_training_images_are(kind: str, side: int, tmp_path: Path) -> None:
    """Training decodes large JPEGs at a part of their size; statistics look at the whole image."""
    colours = np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)
    file = tmp_path / "a"
    Image.fromarray(colours).save(file, kind)
    expected = to_square(open_image(file, "a", side=24), 24)
    statistics = image_statistics(open_image(file, "a"), file.stat().st_size)
    for measure in (False, True):
        pixels, measured = read_pixels(file, "a", 24, None, measure=measure)
        np.testing.assert_array_equal(pixels, expected)
        if measure:
            np.testing.assert_array_equal(measured, statistics)
    model = make_model("aggregate")
    np.testing.assert_array_equal(
        model.predict([file])[0], model.predict_pixels(expected[None]).probabilities[0]
    )


def test_only_two_batches_are_ever_held() -> None:
    drawn = 0

    def images() -> Iterator[Image.Image]:
        nonlocal drawn
        for number in range(1000):
            drawn += 1
            yield Image.new("RGB", (4, 4), (number % 256,) * 3)

    model = BrightnessModel()
    ahead = []
    for number, prediction in enumerate(model.stream(images(), batch=8)):
        assert prediction.probabilities is not None
        assert prediction.probabilities[1] == pytest.approx(number % 256 / 255)  # in order
        ahead.append(drawn - number)
    assert number == 999
    assert max(ahead) <= 16
    assert model.batches == [8] * 125


def test_what_is_refused(dmg: Model, files: list[Path], tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"training domain 'foto'; did you mean 'photo'"):
        dmg.predict(files, domain="foto")
    for single in (files[0], str(files[0]), Image.new("RGB", (4, 4))):
        with pytest.raises(DataError, match="put a single image into a list"):
            dmg.stream(single)  # pyright: ignore[reportArgumentType]
    for array in (np.zeros((4, 4, 3)), np.zeros((4, 4, 5), np.uint8), np.zeros((4,), np.uint8)):
        with pytest.raises(DataError, match=r"an array should be uint8 \[height, width, 3\], got"):
            dmg.predict([array])
    file = tmp_path / "bomb.png"  # a header that claims 60,000 x 60,000 pixels in a small file
    file.write_bytes(bomb(60_000, 60_000))
    (found,) = dmg.stream([file])
    assert "bomb.png is not a readable image: it is too large" in (found.problem or "")


def softened(raw: np.ndarray, temperature: float) -> np.ndarray:
    """Probabilities to the power of 1 / T, and normalised again."""
    powers = raw.astype(np.float64) ** (1 / temperature)
    return powers / powers.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("kind", ["model", "saved", "onnx"])
def test_scores_are_divided_by_the_temperature(
    kind: str, dmg: Model, onnx_file: Exported, files: list[Path], tmp_path: Path
) -> None:
    model: Predictor = dmg
    if kind != "model":
        dmg.save_pretrained(tmp_path)
        model = unseen.load(tmp_path if kind == "saved" else onnx_file.path)
    assert model.temperature == 0.7
    plain = Model(dmg.method, dmg.experiment, "", "cpu")
    assert (plain.temperature, plain.fitted_temperature) == (1.0, None)
    for domain in (None, "photo"):
        raw = plain.predict(files, domain)
        np.testing.assert_allclose(model.predict(files, domain, raw=True), raw, atol=2e-5)
        found = model.predict(files, domain)
        np.testing.assert_allclose(found, softened(raw, 0.7), atol=2e-5)
        assert np.abs(found - raw).max() > 0.02
    raw = plain.opinions(files)
    np.testing.assert_allclose(model.opinions(files, raw=True), raw, atol=2e-5)
    np.testing.assert_allclose(model.opinions(files), softened(raw, 0.7), atol=2e-5)
    for one, other in zip(model.stream(files, raw=True), plain.stream(files), strict=True):
        assert one.disagreement == pytest.approx(other.disagreement, abs=1e-4)


def test_a_run_carries_its_temperature(run: unseen.Run, files: list[Path]) -> None:
    chosen = run.result.under("source")
    assert chosen.temperature == run.model.temperature
    assert chosen.temperature not in (None, 1)
    raw = run.predict(files, raw=True)
    np.testing.assert_allclose(run.predict(files), softened(raw, run.model.temperature), atol=1e-5)
    assert run.evaluate() == chosen.views, "calibrated bins, too"
    card = run.folder.card.read_text(encoding="utf-8")
    assert f"divided by the temperature {chosen.temperature:.4g}" in card
    after = chosen.views["out_of_domain"]["outlines"].calibrated_error
    assert f"{after:.1%} |" in card


def test_raw_probabilities_at_the_command_line(
    onnx_file: Exported, files: list[Path], capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:
    command = commands_in(onnx_file.path.parent, capsys, monkeypatch)
    words = ["predict", str(onnx_file.path), *map(str, files), "--format", "json"]
    answers = [json.loads(command(*words, *more).out) for more in ([], ["--raw"])]
    calibrated, raw = np.array([[e["top"][0]["probability"] for e in each] for each in answers])
    assert (calibrated > raw).all(), "a temperature below 1 makes a model surer"


def test_an_answer_that_is_not_a_number_is_a_problem(tmp_path: Path) -> None:
    model = BrightnessModel(diverged=True)
    given = [Image.new("RGB", (4, 4), (gray,) * 3) for gray in (0, 255, 7)]
    assert [each.problem is None for each in model.stream(given)] == [True, False, True]
    with pytest.raises(DataError, match="not a number: its weights are damaged, or its training"):
        model.predict(given)
    for number, image in enumerate(given):
        image.save(tmp_path / f"{number}.png")
    outputs, kept, problems = read_files(model, sorted(tmp_path.iterdir()), lambda: None)
    assert [path.name for path in kept] == ["0.png", "2.png"]
    assert len(outputs.scores) == 2
    assert len(problems) == 1
    assert "1.png: the model's prediction is not a number" in problems[0]
