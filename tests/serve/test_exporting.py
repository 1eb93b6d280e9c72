"""Exported files: what they take and give, and that they answer as the model does without it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from PIL import Image
from tests.serve.models import CLASSES, DOMAINS, make_model

import unseen
from unseen.data.images import to_square
from unseen.errors import SettingsError, UnseenError
from unseen.results.files import FORMAT
from unseen.serve.export import (
    SUFFIXES,
    Exported,
    Predict,
    Target,
    export,
    open_torch_file,
    to_squares,
    trace,
)
from unseen.serve.model import Model
from unseen.serve.predictor import Predictions

DOCS = Path(__file__).parents[2] / "docs" / "models.md"


@pytest.fixture(scope="module")
def opened(onnx_file: Exported, torch_file: Exported) -> list[Predict]:
    return [unseen.load(onnx_file.path).predict_pixels, open_torch_file(torch_file.path, True)]


def drawn(images: int, height: int, width: int) -> np.ndarray:
    shape = images, height, width, 3
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def squares(batch: np.ndarray, size: int) -> np.ndarray:
    return np.stack([to_square(Image.fromarray(pixels), size) for pixels in batch])


@pytest.mark.parametrize("shape", [(1, 24, 24), (3, 24, 24), (2, 60, 31), (1, 9, 140)], ids=str)
@pytest.mark.parametrize("domain", [None, 0, 1, 2])
def test_answers_are_the_models(
    dmg: Model,
    opened: list[Predict],
    shape: tuple[int, int, int],
    domain: int | None,
) -> None:
    batch = drawn(*shape)
    expected = dmg.predict_pixels(squares(batch, 24), domain)
    assert expected.opinions is not None
    for answer in opened:
        found = answer(batch, domain)
        np.testing.assert_allclose(found.probabilities, expected.probabilities, atol=2e-5)
        assert found.opinions is not None
        np.testing.assert_allclose(found.opinions, expected.opinions, atol=2e-5)


def test_an_onnx_file_is_a_model_like_others(
    dmg: Model, onnx_file: Exported, files: list[Path]
) -> None:
    model = unseen.load(onnx_file.path)
    assert (model.classes, model.domains) == (list(CLASSES), list(DOMAINS))
    np.testing.assert_allclose(model.predict(files), dmg.predict(files), atol=2e-5)
    known = model.predict(files, domain="photo")
    np.testing.assert_allclose(known, dmg.predict(files, domain="photo"), atol=2e-5)
    assert np.abs(known - dmg.predict(files)).max() > 0.01
    np.testing.assert_allclose(model.opinions(files), dmg.opinions(files), atol=2e-5)
    for name, values in vars(dmg.profile).items():
        np.testing.assert_array_equal(getattr(model.profile, name), values)


def test_what_is_told_of_a_file_and_what_is_in_it(
    onnx_file: Exported, torch_file: Exported
) -> None:
    root = str(Path(unseen.__file__).parents[2]).encode()
    for exported in (onnx_file, torch_file):
        assert 0 < exported.difference < 2e-5
        # six pictures alone and at three sizes, for no domain and for three: 6 * 4 * 4
        assert exported.compared == "96 predictions on made-up images"
        card = exported.card.read_text()
        assert exported.card.name == f"{exported.path.name}.md"
        assert card.startswith("# The card\n\n## The file model.")
        assert f"at most {exported.difference:.1e}" in card
        content = exported.path.read_bytes()
        for path_of_this_machine in (root, b"site-packages", b"somebody"):
            assert path_of_this_machine not in content
    model = onnx.load(onnx_file.path)
    assert [node.op_type for node in model.graph.node].count("Conv") == 3  # the trunk is there once
    facts = {each.key: json.loads(each.value) for each in model.metadata_props}
    extra = {"unseen.json": ""}
    torch.export.load(torch_file.path, extra_files=extra)
    assert facts == json.loads(extra["unseen.json"]) | {"digest": facts["digest"]}
    assert (facts["classes"], facts["domains"]) == (list(CLASSES), list(DOMAINS))
    assert (facts["format"], facts["image_size"], facts["method"]) == (FORMAT, 24, "dmg")


def test_the_domain_may_be_left_out_in_onnx(onnx_file: Exported) -> None:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(onnx_file.path, options)
    (given,), (optional,) = session.get_inputs(), session.get_overridable_initializers()
    assert (given.name, given.type) == ("images", "tensor(uint8)")
    assert (optional.name, optional.type, optional.shape) == ("domain", "tensor(int64)", [])
    assert [each.name for each in session.get_outputs()] == ["probabilities", "opinions"]
    images = drawn(2, 40, 30)
    left_out, opinions = session.run(None, {"images": images})
    unknown = session.run(None, {"images": images, "domain": np.array(-1)})[0]
    known = session.run(None, {"images": images, "domain": np.array(2)})[0]
    np.testing.assert_array_equal(left_out, unknown)
    np.testing.assert_array_equal(known, opinions[:, 2])
    with pytest.raises(Exception, match=r"out of data bounds|indices element"):
        session.run(None, {"images": images, "domain": np.array(3)})


def run(program: str, *words: str) -> str:
    command = [sys.executable, "-c", program, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_torch_needs_no_unseen_for_a_file(dmg: Model, torch_file: Exported) -> None:
    answer = run(
        "import sys; sys.modules['unseen'] = None\n"
        "import numpy, torch\n"
        f"model = torch.export.load({str(torch_file.path)!r}).module()\n"
        "batch = numpy.random.default_rng(0).integers(0, 256, (2, 50, 40, 3), dtype=numpy.uint8)\n"
        "print(model(torch.from_numpy(batch), torch.tensor(-1))[0].tolist())"
    )
    expected = dmg.predict_pixels(squares(drawn(2, 50, 40), 24)).probabilities
    np.testing.assert_allclose(json.loads(answer), expected, atol=2e-5)


def test_the_program_in_the_docs_needs_neither_unseen_nor_torch(
    dmg: Model, onnx_file: Exported, files: list[Path]
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    (program,) = [block for block in blocks if "onnxruntime" in block]
    forbid = "import sys\nfor name in ('unseen', 'torch'): sys.modules[name] = None\n"
    names = [str(path) for path in files]
    answer = run(forbid + program, str(onnx_file.path), *names)
    expected = dmg.predict(names)
    lines = [line.rsplit(" ", 2) for line in answer.splitlines()]
    assert [line[0] for line in lines] == names
    assert [line[1] for line in lines] == [CLASSES[best] for best in expected.argmax(axis=1)]
    found = [float(line[2]) for line in lines]
    np.testing.assert_allclose(found, expected.max(axis=1), atol=2e-5)


def test_a_model_without_opinions_has_no_domain(tmp_path: Path) -> None:
    exported = export(make_model("aggregate"), "onnx", tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(exported.path)
    assert [each.name for each in session.get_outputs()] == ["probabilities"]
    assert session.get_overridable_initializers() == []
    assert exported.compared.startswith("24 predictions")


def test_a_file_that_predicts_otherwise_is_not_kept(
    dmg: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where only one image of a batch and one known domain are wrong."""
    right = dmg.predict_pixels

    def wrong(pixels: np.ndarray, domain: int | None = None, raw: bool = False) -> Predictions:
        found = right(pixels, domain, raw)
        off = found.probabilities.copy()
        off[-1, 0] += 0.01 if domain == 1 else 0
        return found._replace(probabilities=off)

    program = trace(dmg.method, dmg.temperature)  # once is slow enough
    monkeypatch.setattr("unseen.serve.export.trace", lambda *_: program)
    monkeypatch.setattr(dmg, "predict_pixels", wrong)
    with pytest.raises(UnseenError, match=r"differ from the model's by up to 1\.0e-02, more than"):
        export(dmg, "torch", tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []
    kept = export(dmg, "torch", tmp_path / "model.pt2", tolerance=0.02)
    assert {path.name for path in tmp_path.iterdir()} == {"model.pt2", "model.pt2.md"}
    assert kept.difference == pytest.approx(0.01, abs=1e-4)


def test_files_with_another_ending_or_weights_that_are_no_numbers_are_not_written(
    dmg: Model, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match=r"model\.bin should end in \.onnx"):
        export(dmg, "onnx", tmp_path / "model.bin")
    model = make_model("aggregate")
    next(model.method.parameters()).fill_(float("nan"))
    with pytest.raises(UnseenError, match=r"was not written: .* by up to nan"):
        export(model, "torch", tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []


def test_real_images_in_onnxruntime(real_data: Path, tmp_path: Path) -> None:
    """PACS as it lies on disk: preparation inside the file, by Pillow, and the same predictions.
    JPEGs four times as large as the network's images would be decoded at a part of their size."""
    model = make_model("multihead", size=64, data={"name": "pacs", "root": str(real_data / "PACS")})
    exported = export(model, "onnx", tmp_path / "model.onnx")
    assert exported.compared.endswith("images of pacs")
    files = [
        path
        for domain in ("photo", "sketch", "cartoon", "art_painting")
        for path in sorted((real_data / "PACS").rglob(f"{domain}/dog/*"))[:3]
    ]
    assert len(files) == 12
    session = onnxruntime.InferenceSession(exported.path)
    for domain in (None, *range(3)):
        expected = model.predict(files, None if domain is None else DOMAINS[domain])
        for file, row in zip(files, expected, strict=True):
            given = {"images": np.asarray(Image.open(file).convert("RGB"))[None]}
            if domain is not None:
                given["domain"] = np.array(domain)
            np.testing.assert_allclose(session.run(["probabilities"], given)[0][0], row, atol=1e-4)
    assert np.ptp(expected, axis=0).max() > 0.05


@pytest.mark.slow
@pytest.mark.parametrize("to", SUFFIXES)
@pytest.mark.parametrize("method", ["aggregate", "multihead", "dmg"])
@pytest.mark.parametrize("network", ["alexnet", "resnet18", "efficientnet_lite0"])
def test_parity_on_pacs(
    network: str, method: str, to: Target, real_data: Path, tmp_path: Path
) -> None:
    model = make_model(method, network, 96, {"name": "pacs", "root": str(real_data / "PACS")})
    exported = export(model, to, tmp_path / f"model{SUFFIXES[to]}")
    assert exported.compared.endswith("images of pacs")
    print(f"{network} {method} {to}: {exported.difference:.1e}")


@pytest.mark.slow
@pytest.mark.parametrize("network", ["vit_tiny_patch16_224", "timm:mobilenetv3_small_050"])
def test_other_networks_can_be_exported(network: str, tmp_path: Path) -> None:
    model = make_model("dmg", network, 224 if "vit" in network else 64)
    assert export(model, "onnx", tmp_path / "model.onnx").difference < 1e-4


SHAPES = [
    (64, 64), (128, 128), (192, 64), (100, 37), (37, 100), (227, 227), (300, 451), (17, 9), (1, 1),
    (2, 3), (640, 480), (65, 63), (1000, 20), (64, 200), (200, 64),
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("size", [16, 64])
def test_pixels_are_those_of_prepared_images(shape: tuple[int, int], size: int) -> None:
    noise = drawn(1, *shape)[0]
    ramp = (np.arange(noise.size) * 251 // noise.size).reshape(noise.shape).astype(np.uint8)
    batch = np.stack([noise, (noise >> 7) * 255, ramp])
    expected = np.stack([to_square(Image.fromarray(pixels), size) for pixels in batch])
    found = to_squares(torch.from_numpy(batch), size).permute(0, 2, 3, 1).numpy()
    assert found.dtype == np.float32
    differing = found != expected
    assert np.abs(found - expected).max() <= 1
    assert differing.mean() <= 1e-4


def test_width_goes_first_whatever_the_shape() -> None:
    """Pillow 13 begins with the height of tall images; prepared pixels must not depend on that."""
    tall = Image.fromarray(drawn(1, 200, 20)[0])
    by_hand = tall.resize((32, 200), Image.Resampling.BILINEAR)
    by_hand = by_hand.resize((32, 32), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(to_square(tall, 32), np.asarray(by_hand))
    pixels = drawn(1, 64, 64)[0]
    np.testing.assert_array_equal(to_square(Image.fromarray(pixels), 64), pixels)
