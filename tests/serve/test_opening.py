"""Saved models, in the layout of the Hugging Face Hub; and files that are damaged, or made to do
harm: none of them is run, all of them are named."""

import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from huggingface_hub import ModelCard
from PIL import Image
from rich.console import Console
from tests.commands import commands_in
from tests.serve.models import CLASSES, DOMAINS, make_model
from tests.tiny import TINY

import unseen
from unseen.errors import UnseenError
from unseen.results.files import FORMAT
from unseen.serve.export import Exported
from unseen.serve.model import Model


@pytest.mark.parametrize("method", ["aggregate", "multihead", "dmg", "epifcr"])
def test_there_and_back_without_losing_a_bit(
    method: str, tmp_path: Path, files: list[Path]
) -> None:
    model, names = make_model(method), ("config.json", "model.safetensors", "README.md")
    model.save_pretrained(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {*names, "digests.json"}
    expected = model.predict(files)
    for opened in (Model.from_pretrained(str(tmp_path)), unseen.load(tmp_path)):
        assert isinstance(opened, Model)
        np.testing.assert_array_equal(opened.predict(files), expected)
        assert (opened.classes, opened.domains) == (list(CLASSES), list(DOMAINS))
        assert opened.card == model.card
        assert opened.profile is None
    opened.save_pretrained(tmp_path / "again")
    for name in names:
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / name).read_bytes()


def test_the_config_is_complete_and_tells_nothing_of_this_machine(saved: Path, dmg: Model) -> None:
    text = (saved / "config.json").read_text()
    config = json.loads(text)
    found = [config[name] for name in ("library", "format", "classes", "domains")]
    assert found == ["unseen", FORMAT, list(CLASSES), list(DOMAINS)]
    assert config["settings"]["method"]["overlap_weight"] == 0.1
    assert config["settings"]["data"]["root"] is None
    assert "somebody" not in text
    for name, values in vars(dmg.profile).items():
        np.testing.assert_array_equal(getattr(unseen.load(saved).profile, name), values)


def test_a_run_keeps_its_card_and_its_answers(run: unseen.Run, tmp_path: Path) -> None:
    run.model.save_pretrained(tmp_path)
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert card == run.folder.card.read_text(encoding="utf-8")
    data = ModelCard(card).data  # the Hub's own reader
    assert (data.library_name, data.pipeline_tag) == ("unseen", "image-classification")
    assert data.tags == ["unseen", "domain-generalization", "dmg", "small_cnn"]
    results = {(e.dataset_name, e.metric_name): e.metric_value for e in data.eval_results}
    expected = round(run.accuracy()["outlines"], 4)
    assert results["digits, outlines", "accuracy, out of domain"] == expected
    assert len(results) == 7
    images = np.random.default_rng(0).integers(0, 256, (3, 20, 30, 3), dtype=np.uint8)
    np.testing.assert_array_equal(unseen.load(tmp_path).predict(images), run.predict(images))
    opened = unseen.load(run.folder.path)
    np.testing.assert_array_equal(opened.predict(images), run.predict(images))


BAD_TEMPERATURES = (0, -1.5, "2", True, [2.0])
OTHER_WEIGHTS = (
    r"model\.safetensors holds weights of another network: 2 tensors differ[\s\S]*"
    r"is \[7\], expected \[10\][\s\S]*dmg on small_cnn, 10 classes, 3 training domains"
)


class Harm:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = str(mark)

    def __reduce__(self):
        return os.mkdir, (self.mark,)


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "harm was done"


@pytest.fixture
def saved(dmg: Model, tmp_path: Path) -> Path:
    folder = tmp_path / "saved"
    dmg.save_pretrained(folder)
    return folder


def assert_refused(path: Path, message: str, mark: Path | None = None) -> None:
    with pytest.raises(UnseenError, match=message):
        unseen.load(path)
    assert mark is None or not mark.exists()


def name_code(file: Path, section: str, name: str) -> None:
    """Make settings in a file ask for this class of a module, or for an entry point."""
    content = json.loads(file.read_text())
    content.get("settings", content)[section]["name"] = name
    file.write_text(json.dumps(content))
    (file.parent / "digests.json").unlink()  # whoever means harm leaves no trace


@pytest.mark.parametrize("section", ["method", "data", "network"])
def test_code_that_settings_name_is_not_imported(
    saved: Path, mark: Path, section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module beside the model would run as soon as it is imported."""
    module = f"evil_{section}"
    (tmp_path / f"{module}.py").write_text(f"import os\nos.mkdir({str(mark)!r})\n")
    monkeypatch.syspath_prepend(tmp_path)
    name_code(saved / "config.json", section, f"{module}:Thing")
    message = rf"config\.json asks to import code: {section}\.name is '{module}:Thing'"
    assert_refused(saved, f"{message}.*--trust-imports {module}", mark)
    unseen.trust_imports(module)
    with pytest.raises(UnseenError, match="cannot be imported"):
        unseen.load(saved)
    assert mark.exists(), "the module really does harm when it is trusted"


@pytest.mark.parametrize(
    "words",
    [
        ["train", "run"],
        ["predict", "run", "image.png"],
        ["evaluate", "run"],
        ["export", "run", "--to", "torch"],
        ["serve", "run", "--port", "0"],
        ["merge", "run", "run", "-o", "merged"],
        ["forecast", "run", "image.png"],
        ["forecast", "model", "image.png", "--reference", "."],
        ["report", "run"],
    ],
    ids=" ".join,
)
def test_no_command_that_opens_a_run_imports_what_lies_beside_it(
    words: list[str], run: unseen.Run, mark: Path, tmp_path: Path, capsys, monkeypatch
) -> None:
    module = f"extra_{words[0]}_{len(words)}"
    (tmp_path / f"{module}.py").write_text(f"import os\nos.mkdir({str(mark)!r})\n")
    shutil.copytree(run.folder.path, tmp_path / "run")
    run.model.save_pretrained(tmp_path / "model")
    Image.new("RGB", (8, 8)).save(tmp_path / "image.png")
    name_code(tmp_path / "run" / "settings.json", "method", f"{module}:Thing")
    command = commands_in(tmp_path, capsys, monkeypatch)
    answer = command(*words)
    assert not mark.exists()
    if words[0] == "report":  # it needs no code
        assert answer.code == 0
        return
    assert answer.code == 2
    if "--reference" in words:  # a run of another method than the model is not even opened
        return
    assert "settings.json asks to import code: method.name is" in answer.err
    assert f"--trust-imports {module}" in answer.err
    assert command(*words, "--trust-imports", module).code == 2
    assert mark.exists(), "the module really does harm when it is trusted"


def test_an_entry_point_in_the_working_directory_is_not_installed(
    run: unseen.Run, mark: Path, tmp_path: Path
) -> None:
    """`python -m unseen` has this folder on its path, and so what lies in it would count."""
    (tmp_path / "nice_code.py").write_text(f"import os\nos.mkdir({str(mark)!r})\n")
    about = tmp_path / "nice-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: nice\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[unseen.methods]\nnice = nice_code:Thing\n")
    shutil.copytree(run.folder.path, tmp_path / "run")
    name_code(tmp_path / "run" / "settings.json", "method", "nice")
    command = [sys.executable, "-m", "unseen", "train", "run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "unknown method 'nice'" in done.stderr
    assert not mark.exists()


def test_what_was_trained_here_is_opened_again(tmp_path: Path, monkeypatch) -> None:
    """The recipe named the module, so the user trusts it."""
    text = "from unseen.methods.aggregate import Aggregate\n\nclass Mine(Aggregate): pass\n"
    (tmp_path / "mine_of_today.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    settings = {**TINY, "method.name": "mine_of_today:Mine", "steps": 1}
    found = unseen.fit("digits/aggregate", runs=tmp_path, console=Console(quiet=True), **settings)
    assert type(found.model.method).__name__ == "Mine"


@pytest.mark.parametrize("kind", ["saved", "run"])
def test_a_pickle_in_place_of_weights_and_weights_that_were_cut_off(
    kind: str, saved: Path, run: unseen.Run, tmp_path: Path, mark: Path
) -> None:
    folder, weights = saved, saved / "model.safetensors"
    if kind == "run":
        folder = tmp_path / "run"
        shutil.copytree(run.folder.path, folder)
        weights = folder / "weights" / "source.safetensors"
    cut = weights.read_bytes()[:-100]
    weights.write_bytes(pickle.dumps(Harm(mark)))
    assert_refused(folder, rf"{weights.name} is damaged: it does not hold what was written", mark)
    (folder / "digests.json").unlink()
    message = rf"{weights.name} is damaged or not a safetensors file[\s\S]*Put the file .* back"
    assert_refused(folder, message, mark)
    weights.write_bytes(cut)
    assert_refused(folder, message)
    weights.unlink()
    assert_refused(folder, rf"there is no .*{weights.name}")


def test_a_pickle_with_a_models_name(mark: Path, tmp_path: Path) -> None:
    """Opening a file of torch may run code, so it is left to programs that trust it."""
    file = tmp_path / "model.onnx"
    file.write_bytes(pickle.dumps(Harm(mark)))
    assert_refused(file, "is damaged or not an ONNX file", mark)
    torch.save({"weights": Harm(mark)}, file)
    assert_refused(file, "is damaged or not an ONNX file", mark)
    file = file.rename(tmp_path / "model.pt2")
    message = r"model\.pt2 is a file of torch\.export.*Name the run folder.*torch\.export\.load"
    assert_refused(file, message, mark)
    torch.load(file, weights_only=False)
    assert mark.is_dir(), "the pickle really does harm when it is trusted"


@pytest.mark.parametrize(
    "changes",
    [
        ({"library": "timm"}, "holds a model of another library"),
        ({"format": 9}, "written in format 9, and this .* install a newer version"),
        ({"settings": None}, "is damaged: settings: .*dictionary"),
        ({"classes": "dog"}, "is damaged: classes: .*list"),
        ({"classes": list("abcdefghij")}, OTHER_WEIGHTS),
        ({"settings": {}}, "config.json is not a valid recipe"),
        *[({"temperature": bad}, "is damaged: temperature") for bad in BAD_TEMPERATURES],
    ],
    ids=str,
)
def test_a_damaged_config(saved: Path, changes: tuple[dict[str, object], str]) -> None:
    config = saved / "config.json"
    text = config.read_text()
    config.write_text(text[:-20])
    assert_refused(saved, r"config\.json is damaged")
    (saved / "digests.json").unlink()
    changed, message = changes
    config.write_text(json.dumps(json.loads(text) | changed))
    assert_refused(saved, message)


def test_a_damaged_onnx_file(onnx_file: Exported, tmp_path: Path) -> None:
    file, model = tmp_path / "model.onnx", onnx.load(onnx_file.path)
    (temperature,) = [each for each in model.metadata_props if each.key == "temperature"]
    for bad in BAD_TEMPERATURES:
        temperature.value = json.dumps(bad)
        onnx.save(model, file)
        assert_refused(file, r"is damaged: .*temperature")
    del model.metadata_props[:]
    onnx.save(model, file)
    assert_refused(file, "was not made by 'unseen export'")
    content = onnx_file.path.read_bytes()
    for length in (0, 100, len(content) // 2, len(content) - 50):
        file.write_bytes(content[:length])
        assert_refused(file, "is damaged or not an? .*make it again: unseen export RUN --to")


def test_what_is_no_model(run: unseen.Run, tmp_path: Path) -> None:
    assert_refused(tmp_path / "nowhere", "there is no model .*nowhere; expected a run folder")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert_refused(empty, "empty is not a model; expected a run folder")
    assert_refused(run.folder.path.parent, r"It holds runs; name one of them, .*digits-small")
    assert_refused(run.folder.result, r"result\.json is not a model")
    begun = tmp_path / "begun"
    shutil.copytree(run.folder.path, begun)
    (begun / "result.json").unlink()
    assert_refused(begun, "is not finished; resume it with: unseen train")
    shutil.copy(run.folder.result, begun)
    (begun / "digests.json").unlink()
    content = json.loads((begun / "result.json").read_text())
    del content["classes"]
    (begun / "result.json").write_text(json.dumps(content))
    assert_refused(begun, r"result.json is damaged: classes: .*train the run again")


@pytest.mark.parametrize(
    "name",
    [
        *("settings.json", "result.json", "data.json", "profile.npz"),
        *("weights/source.safetensors", "config.json", "model.safetensors", "model.onnx"),
    ],
)
def test_a_bit_that_changed_is_noticed(
    name: str, run: unseen.Run, saved: Path, onnx_file: Exported, tmp_path: Path
) -> None:
    folder, remedy = saved, "save the model again"
    if (run.folder.path / name).is_file():
        folder, remedy = tmp_path / "copied", "train it again"
        shutil.copytree(run.folder.path, folder)
    opened, file = folder, folder / name
    if name == "model.onnx":
        remedy, opened = "export the run again", Path(shutil.copy(onnx_file.path, file))
    unseen.load(opened)
    content = bytearray(file.read_bytes())
    place = len(content) // 2
    if name == "model.onnx":  # in the weights
        tensors = onnx.load(file).graph.initializer
        weights = max(tensors, key=lambda each: len(each.raw_data)).raw_data
        place = content.index(weights) + len(weights) // 2
    content[place] ^= 1
    file.write_bytes(content)
    assert_refused(opened, f"{re.escape(name)} is damaged: it does not hold what was .*{remedy}")
