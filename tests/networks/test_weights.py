"""Weight files: names, wrappers, classifiers of other sizes, and files that must be refused."""

from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import timm
import torch
import torchvision

from unseen.errors import UnseenError
from unseen.networks.backbones import build_network
from unseen.networks.pretrained import read_state
from unseen.networks.stages import Network
from unseen.settings.experiment import NetworkSettings

VIT = "vit_tiny_patch16_224"


def build(name: str, pretrained: Path, n_classes: int = 7, **settings: Any) -> Network:
    settings = {"image_size": 32} | settings
    return build_network(NetworkSettings(name=name, pretrained=pretrained, **settings), n_classes)


@pytest.fixture(scope="module")
def resnet() -> torchvision.models.ResNet:
    torch.manual_seed(5)
    return torchvision.models.resnet18(num_classes=10).eval()


def same_trunk(network: Network, original: torch.nn.Module, head: str) -> bool:
    here, there = network.state_dict(), original.state_dict()
    names = [name for name in there if not name.startswith(head)]
    return all(torch.equal(here[network.original_names[name]], there[name]) for name in names)


@pytest.mark.parametrize(("n_classes", "new"), [(7, ("fc",)), (10, ())])
def test_library_names_and_classifiers_that_fit_or_not(
    n_classes: int, new: tuple[str, ...], resnet: Any, tmp_path: Path
) -> None:
    safetensors.torch.save_file(resnet.state_dict(), tmp_path / "resnet.safetensors")
    network = build("resnet18", tmp_path / "resnet.safetensors", n_classes).eval()
    assert same_trunk(network, resnet, "fc." if new else "none")
    assert network.new_stages == new
    assert network(torch.zeros(2, 3, 32, 32)).shape == (2, n_classes)


def test_wrappers_prefixes_and_old_files_without_counters(resnet: Any, tmp_path: Path) -> None:
    state = resnet.state_dict().items()
    state = {f"module.{name}": tensor for name, tensor in state if "num_batches" not in name}
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "wrapped.pt")
    assert same_trunk(build("resnet18", tmp_path / "wrapped.pt"), resnet, "fc.")


def test_a_network_of_ours_reads_what_it_saved(tmp_path: Path) -> None:
    first = build_network(NetworkSettings(name="small_cnn"), 7)
    torch.save(first.state_dict(), tmp_path / "own.pth")
    second = build("small_cnn", tmp_path / "own.pth")
    assert second.new_stages == ()
    mine, theirs = first.state_dict(), second.state_dict()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    third = build("small_cnn", tmp_path / "own.pth", n_classes=3)
    assert third.new_stages == ("fc2",)
    assert torch.equal(third.state_dict()["stages.fc1.0.weight"], mine["stages.fc1.0.weight"])


def test_an_unusual_classifier_in_the_file_is_left_out(resnet: Any, tmp_path: Path) -> None:
    state = {k: v for k, v in resnet.state_dict().items() if not k.startswith("fc.")}
    state |= {"fc.0.weight": torch.zeros(4, 512), "fc.2.weight": torch.zeros(4, 4)}
    torch.save(state, tmp_path / "mlp.pth")
    assert build("resnet18", tmp_path / "mlp.pth").new_stages == ("fc",)


def test_positions_of_a_vit_are_resampled_as_timm_does(tmp_path: Path) -> None:
    large = timm.create_model(VIT, num_classes=10, img_size=64)
    torch.save(large.state_dict(), tmp_path / "vit.pth")
    network = build(VIT, tmp_path / "vit.pth")
    assert network.new_stages == ("head",)
    expected = timm.layers.resample_abs_pos_embed(large.pos_embed, [2, 2], num_prefix_tokens=1)
    assert network.input_shapes["blocks.0"] == (5, 192)
    assert torch.allclose(network.state_dict()["stages.embed.pos_embed"], expected)


@pytest.mark.parametrize(
    ("name", "other", "messages"),
    [
        ("small_cnn", {}, ["missing: stages.conv1.0.bias", "unknown: bn1.bias", "…"]),
        ("resnet18", {"conv1.weight": (64, 1, 7, 7)}, ["1 of another shape: ", "7), expected"]),
        ("resnet18", {"layer1.2.conv1.weight": (64,)}, ["unknown: layer1.2"]),
    ],
)
def test_another_network_in_the_file_is_an_error(
    resnet: Any, tmp_path: Path, name: str, other: dict[str, tuple], messages: list[str]
) -> None:
    others = {tensor: torch.zeros(shape) for tensor, shape in other.items()}
    torch.save(resnet.state_dict() | others, tmp_path / "other.pth")
    with pytest.raises(UnseenError, match=r"other\.pth does not hold the weights") as caught:
        build(name, tmp_path / "other.pth")
    assert all(message in str(caught.value) for message in messages)


class Executes:
    """Would create a file if it were unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_file_that_would_execute_code_is_refused(tmp_path: Path) -> None:
    evidence = tmp_path / "executed"
    torch.save({"state_dict": Executes(evidence)}, tmp_path / "bad.pth")
    with pytest.raises(UnseenError, match=r"could execute code: refused.*state_dict\(\)"):
        read_state(tmp_path / "bad.pth")
    assert not evidence.exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.pth", None, "there is no file"),
        ("text.pth", b"not weights at all", "is not a readable"),
        ("text.safetensors", b"not weights at all", "is not a readable"),
        ("empty.pth", b"", "is not a readable"),
        ("weights.h5", b"", r"\.safetensors, \.pth or \.pt, not as '\.h5'"),
        ("nothing.pth", {"epoch": 3}, "holds no state dict"),
        ("cut.pth", {"w": torch.zeros(1000)}, "is not a readable weight file"),
    ],
)
def test_files_that_are_no_weights(tmp_path: Path, name: str, content: Any, message: str) -> None:
    file = tmp_path / name
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content is not None:
        torch.save(content, file)
        if name == "cut.pth":
            file.write_bytes(file.read_bytes()[:1500])
    with pytest.raises(UnseenError, match=message):
        read_state(file)
