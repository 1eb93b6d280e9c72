"""Runs with each ingredient: their models are exported and merged as those of plain runs are."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.sweeps.merging.conftest import Train

import unseen
from unseen.serve.model import Model

FROZEN = {"network__freeze_until": "fc1"}
AUGMENTED = {
    "augment__randaugment": 0.5,
    "augment__random_convolution": 0.5,
    "augment__amplitude_mix": 1.0,
    "augment__erasing": 0.5,
    "augment__mixstyle": 0.5,
    "augment__mixstyle_stages": "conv2",
}
INGREDIENTS: dict[str, dict[str, Any]] = {
    "average between start and end": {"averaging__name": "swad", "evaluate_every": 1},
    "views, averaged": FROZEN | {"network__views": 2, "averaging__name": "mean"},
    "head first, frozen pixels": FROZEN | {"head_first": True, "network__store_features": False},
    "every augmentation, moving average": AUGMENTED
    | {"label_smoothing": 0.1, "optimizer__layer_decay": 0.5}
    | {"averaging__name": "ema", "averaging__decay": 0.9},
}
PICTURES = np.random.default_rng(0).integers(0, 256, (5, 20, 20, 3), dtype=np.uint8)


@pytest.mark.parametrize("ingredient", INGREDIENTS)
def test_runs_are_exported_and_merge_into_one_model_of_the_same_size(
    trained: Train, tmp_path: Path, ingredient: str
) -> None:
    pytest.importorskip("onnxruntime")
    runs = [trained("digits/dmg", seed=seed, **INGREDIENTS[ingredient]) for seed in (0, 1)]
    run = unseen.load_run(runs[0].path)
    run.export(tmp_path / "model.onnx")
    exported = unseen.load(tmp_path / "model.onnx")
    np.testing.assert_allclose(exported.predict(PICTURES), run.predict(PICTURES), atol=1e-4)
    np.testing.assert_allclose(exported.opinions(PICTURES), run.model.opinions(PICTURES), atol=1e-4)
    found = unseen.merge([run.path for run in runs], tmp_path / "model")
    first, second = (load_file(run.weights("source")) for run in runs)
    for name, tensor in load_file(found.folder.weights("source")).items():
        by_hand = (first[name] + second[name]) / 2
        torch.testing.assert_close(tensor, by_hand.to(tensor.dtype))
    size = found.folder.weights("source").stat().st_size
    assert size == runs[0].weights("source").stat().st_size
    count = [sum(p.numel() for p in Model.from_run(r).method.parameters()) for r in runs]
    assert {sum(p.numel() for p in found.model.method.parameters())} == set(count)
