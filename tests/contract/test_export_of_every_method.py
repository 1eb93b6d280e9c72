"""Every catalogued method can be exported, and the file answers as its `predict` does."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.contract.test_methods_contract import FORMS, adapts, batch, make

from unseen.data.images import to_square
from unseen.methods.base import Progress
from unseen.serve.export import export, trace
from unseen.serve.model import Model
from unseen.settings.recipes import build_experiment


def in_use(form: str) -> Model:
    """A model as a run leaves it: in its last phase, without what only training needs."""
    method = make(form)
    with torch.no_grad():
        for parameter in method.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    method.loss(batch(target=adapts(form)), Progress(9, 10))
    settings = {"data": {"name": "digits"}, "network": {"name": "small_cnn"}, "steps": 10}
    experiment = build_experiment(settings | {"method": {"name": form.partition(",")[0]}})
    return Model(method, experiment, "", "cpu")


@pytest.mark.parametrize("form", FORMS)
def test_every_method_can_be_traced(form: str) -> None:
    model = in_use(form)
    graph = trace(model.method, model.temperature).module()
    pictures = np.random.default_rng(0).integers(0, 256, (3, 20, 25, 3), dtype=np.uint8)
    squares = np.stack([to_square(Image.fromarray(pixels), 16) for pixels in pictures])
    images = torch.from_numpy(pictures)
    with torch.no_grad():
        if not model.has_opinions:
            expected = model.predict_pixels(squares).probabilities
            np.testing.assert_allclose(graph(images).numpy(), expected, atol=2e-5)
            return
        for domain in (None, 0, 2):
            number = torch.tensor(-1 if domain is None else domain)
            for found, expected in zip(
                graph(images, number), model.predict_pixels(squares, domain), strict=True
            ):
                assert expected is not None
                np.testing.assert_allclose(found.numpy(), expected, atol=2e-5)


@pytest.mark.parametrize("name", ["metareg", "importance", "fusion", "dmg, routed"])
def test_methods_with_more_than_a_network_become_onnx_files(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    assert export(in_use(name), "onnx", tmp_path / "model.onnx").difference < 1e-4
