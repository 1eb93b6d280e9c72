"""The layout of the Hugging Face Hub, on folders of this machine."""

import json
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import ModelCard
from tests.serve.models import CLASSES, DOMAINS, files_in, make_model

import unseen
from unseen.errors import UnseenError
from unseen.results.files import FORMAT
from unseen.serve.model import Model


@pytest.mark.parametrize("method", ["aggregate", "multihead", "dmg", "epifcr"])
def test_there_and_back_without_losing_a_bit(method: str, tmp_path: Path, pictures: Path) -> None:
    model = make_model(method)
    model.save_pretrained(tmp_path)
    assert files_in(tmp_path) == {"config.json", "model.safetensors", "README.md"}
    images = sorted(pictures.rglob("*.png"))
    expected = model.predict(images)
    for opened in (Model.from_pretrained(str(tmp_path)), unseen.load(tmp_path)):
        assert isinstance(opened, Model)
        np.testing.assert_array_equal(opened.predict(images), expected)
        assert (opened.classes, opened.domains) == (list(CLASSES), list(DOMAINS))
        assert opened.card == model.card
    again = tmp_path / "again"
    unseen.Model.from_pretrained(str(tmp_path), device="cpu").save_pretrained(again)
    for name in ("config.json", "model.safetensors", "README.md"):
        assert (again / name).read_bytes() == (tmp_path / name).read_bytes()


def test_the_config_is_complete_and_tells_nothing_of_this_machine(
    dmg: Model, tmp_path: Path
) -> None:
    dmg.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["library"] == "unseen"
    assert config["format"] == FORMAT
    assert config["classes"] == list(CLASSES)
    assert config["domains"] == list(DOMAINS)
    assert config["settings"]["method"]["overlap_weight"] == 0.1
    assert config["settings"]["data"]["root"] is None
    assert "somebody" not in (tmp_path / "config.json").read_text()


def test_a_run_keeps_its_card_and_its_answers(run: unseen.Run, tmp_path: Path) -> None:
    run.model.save_pretrained(tmp_path)
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert card == run.folder.card.read_text(encoding="utf-8")
    data = ModelCard(card).data  # the Hub's own reader
    assert data.library_name == "unseen"
    assert data.pipeline_tag == "image-classification"
    assert data.tags == ["unseen", "domain-generalization", "dmg", "small_cnn"]
    results = {
        (each.dataset_name, each.metric_name): each.metric_value for each in data.eval_results
    }
    expected = run.accuracy()["outlines"]
    assert results["digits, outlines", "accuracy, out of domain"] == round(expected, 4)
    assert len(results) == 7
    images = np.random.default_rng(0).integers(0, 256, (3, 20, 30, 3), dtype=np.uint8)
    np.testing.assert_array_equal(unseen.load(tmp_path).predict(images), run.predict(images))
    opened = unseen.load(run.folder.path)
    np.testing.assert_array_equal(opened.predict(images), run.predict(images))


def test_damaged_folders(dmg: Model, tmp_path: Path) -> None:
    dmg.save_pretrained(tmp_path)
    config = tmp_path / "config.json"
    text = config.read_text()
    config.write_text(text[:-20])
    with pytest.raises(UnseenError, match=r"config\.json is damaged"):
        unseen.load(tmp_path)
    for changes, message in (
        ({"library": "timm"}, "holds a model of another library"),
        ({"format": 9}, "written in format 9, and this .* install a newer version"),
        ({"settings": None}, "is damaged: it lacks settings, or names"),
        ({"classes": "dog"}, "is damaged: it lacks settings, or names"),
        ({"settings": {}}, "config.json is not a valid recipe"),
    ):
        config.write_text(json.dumps(json.loads(text) | changes))
        with pytest.raises(UnseenError, match=message):
            unseen.load(tmp_path)


def test_weights_for_other_classes(dmg: Model, tmp_path: Path) -> None:
    dmg.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["classes"] = list("abcdefghij")
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnseenError) as caught:
        unseen.load(tmp_path)
    message = str(caught.value)
    assert "model.safetensors holds weights of another network: 2 tensors differ" in message
    assert "is [7], expected [10]" in message
    assert "dmg on small_cnn, 10 classes, 3 training domains" in message
