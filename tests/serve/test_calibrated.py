"""Probabilities are calibrated by the model's temperature, in every kind of file; raw ones are
still there."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.serve.models import make_model

import unseen
from unseen.cli.main import main
from unseen.errors import UnseenError
from unseen.reports.card import model_card
from unseen.serve.export import Exported
from unseen.serve.model import Model
from unseen.serve.predictor import Predictor

TEMPERATURE = 0.7  # of the fixture `dmg`


def softened(raw: np.ndarray, temperature: float) -> np.ndarray:
    """Probabilities to the power of 1 / T, and normalised again."""
    powers = raw.astype(np.float64) ** (1 / temperature)
    return powers / powers.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("kind", ["model", "saved", "onnx"])
def test_scores_are_divided_by_the_temperature(
    kind: str, dmg: Model, onnx_file: Exported, pictures: Path, tmp_path: Path
) -> None:
    model: Predictor = dmg
    if kind == "saved":
        dmg.save_pretrained(tmp_path)
        model = unseen.load(tmp_path)
    elif kind == "onnx":
        model = unseen.load(onnx_file.path)
    assert model.temperature == TEMPERATURE
    files = sorted(pictures.rglob("*.png"))
    plain = Model(dmg.method, dmg.experiment, "", "cpu")
    assert (plain.temperature, plain.fitted_temperature) == (1.0, None)
    for domain in (None, "photo"):
        raw = plain.predict(files, domain)
        np.testing.assert_allclose(model.predict(files, domain, raw=True), raw, atol=2e-5)
        found = model.predict(files, domain)
        np.testing.assert_allclose(found, softened(raw, TEMPERATURE), atol=2e-5)
        assert np.abs(found - raw).max() > 0.02
    raw = plain.opinions(files)
    np.testing.assert_allclose(model.opinions(files, raw=True), raw, atol=2e-5)
    np.testing.assert_allclose(model.opinions(files), softened(raw, TEMPERATURE), atol=2e-5)
    for one, other in zip(model.stream(files, raw=True), plain.stream(files), strict=True):
        assert one.disagreement == pytest.approx(other.disagreement, abs=1e-4)


def test_a_file_without_a_temperature_answers_as_it_always_did(
    dmg: Model, onnx_file: Exported, pictures: Path, tmp_path: Path
) -> None:
    """Files that were made before there was one: their graph divides by nothing."""
    model = onnx.load(onnx_file.path)
    left = [each for each in model.metadata_props if each.key != "temperature"]
    del model.metadata_props[:]
    model.metadata_props.extend(left)
    onnx.save(model, tmp_path / "old.onnx")
    opened = unseen.load(tmp_path / "old.onnx")
    assert opened.temperature == 1.0
    files = sorted(pictures.rglob("*.png"))
    np.testing.assert_array_equal(opened.predict(files, raw=True), opened.predict(files))
    plain = make_model("aggregate")
    plain.save_pretrained(tmp_path / "saved")
    assert "temperature" not in json.loads((tmp_path / "saved/config.json").read_text())
    assert unseen.load(tmp_path / "saved").temperature == 1.0


@pytest.mark.parametrize("bad", [0, -1.5, "2", True, [2.0]])
def test_damaged_temperatures(bad: object, dmg: Model, onnx_file: Exported, tmp_path: Path) -> None:
    dmg.save_pretrained(tmp_path / "saved")
    config = tmp_path / "saved" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"temperature": bad}))
    model = onnx.load(onnx_file.path)
    for each in model.metadata_props:
        if each.key == "temperature":
            each.value = json.dumps(bad)
    onnx.save(model, tmp_path / "bad.onnx")
    for path in (tmp_path / "saved", tmp_path / "bad.onnx"):
        with pytest.raises(UnseenError, match=r"is damaged: .*temperature"):
            unseen.load(path)


def test_a_run_carries_its_temperature(run: unseen.Run, pictures: Path) -> None:
    chosen = run.result.under("source")
    assert chosen.temperature == run.model.temperature
    assert chosen.temperature not in (None, 1)
    files = sorted(pictures.rglob("*.png"))
    raw = run.predict(files, raw=True)
    np.testing.assert_allclose(run.predict(files), softened(raw, run.model.temperature), atol=1e-5)
    assert run.evaluate() == chosen.views, "calibrated bins, too"
    card = run.folder.card.read_text(encoding="utf-8")
    assert f"divided by the temperature {chosen.temperature:.4g}" in card
    after = chosen.views["out_of_domain"]["outlines"].calibrated_error
    assert f"{after:.1%} |" in card.partition("## Results")[2].partition("##")[0]


def test_the_card_of_an_older_run_says_nothing_about_it(run: unseen.Run) -> None:
    rules = {
        name: rule.model_copy(update={"temperature": None})
        for name, rule in run.result.rules.items()
    }
    old = run.result.model_copy(update={"rules": rules})
    data = json.loads(run.folder.data.read_text())
    assert "## Calibrated" not in model_card(run.folder.read_settings(), old, data)


def test_raw_probabilities_at_the_command_line(
    onnx_file: Exported, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shares = []
    for words in ([], ["--raw"]):
        with pytest.raises(SystemExit) as end:
            main(["predict", str(onnx_file.path), str(pictures), "--format", "json", *words])
        assert end.value.code == 0
        answers = json.loads(capsys.readouterr().out)
        shares.append([each["top"][0]["probability"] for each in answers])
    calibrated, raw = np.array(shares)
    assert (calibrated > raw).all(), "a temperature below 1 makes a model surer"
