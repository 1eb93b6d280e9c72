"""Every family of backbones: its stages, its input, and equality with the library it comes from."""

from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch
import torchvision
from torch import nn

from unseen.errors import SettingsError, UnseenError
from unseen.networks.backbones import build_network
from unseen.networks.stages import Network
from unseen.settings.experiment import NetworkSettings

N_CLASSES = 7
SIZES = {
    "small_cnn": 32,
    "mnist_cnn": 28,
    "alexnet": 64,
    "resnet18": 64,
    "resnet50_v1": 64,
    "efficientnet_lite0": 64,
    "vit_tiny_patch16_224": 32,
    "vit_tiny_r_s16_p8_224": 32,
    "timm:mobilenetv3_small_050": 64,
    "timm:mobilenetv2_050": 64,
    "convnext_atto": 64,
    "timm:resnetv2_18": 64,
}


def build(name: str, image_size: int | None = None, **settings: Any) -> Network:
    return build_network(NetworkSettings(name=name, image_size=image_size, **settings), N_CLASSES)


@pytest.fixture(scope="module")
def networks() -> Callable[[str], Network]:
    """Built once; tests leave them as they are."""
    known: dict[str, Network] = {}

    def get(name: str) -> Network:
        if name not in known:
            torch.manual_seed(0)
            known[name] = build(name, SIZES[name]).eval()
        return known[name]

    return get


@pytest.mark.parametrize("name", SIZES)
def test_parts_make_the_whole(name: str, networks: Callable[[str], Network]) -> None:
    network = networks(name)
    x = torch.randn(2, 3, network.image_size, network.image_size)
    with torch.no_grad():
        whole = network(x)
        hidden = x
        for site in network.names:
            assert hidden.shape[1:] == network.input_shapes[site]
            kept = hidden.clone()
            assert torch.allclose(network.run(hidden, since=site), whole, atol=1e-6)
            assert torch.equal(hidden, kept)
            hidden = network.run(hidden, since=site, until=_following(network, site))
    assert whole.shape == (2, N_CLASSES)
    assert set(network.mask_sites) <= set(network.names)
    assert network.new_stages == ()
    assert network.training is False


def _following(network: Network, site: str) -> str | None:
    position = network.names.index(site) + 1
    return network.names[position] if position < len(network.names) else None


def _original(name: str) -> nn.Module:
    if name in ("alexnet", "resnet18"):
        return torchvision.models.get_model(name, num_classes=N_CLASSES)
    if name == "resnet50_v1":
        return _first_published()
    name = name.removeprefix("timm:")
    if name.startswith("efficientnet"):
        name = f"tf_{name}"
    options = {"img_size": SIZES[name]} if name.startswith("vit") else {}
    return timm.create_model(name, num_classes=N_CLASSES, **options)


def _first_published() -> nn.Module:
    """torchvision's ResNet-50 with the strides of 2015."""
    network = torchvision.models.resnet50(num_classes=N_CLASSES)
    for layer in (network.layer2, network.layer3, network.layer4):
        layer[0].conv1.stride = (2, 2)
        layer[0].conv2.stride = (1, 1)
    return network


ORIGINALS = [(name, size, False) for name, size in SIZES.items() if not name.endswith("_cnn")]
ORIGINALS += [(n, SIZES[n], True) for n in ("resnet18", "vit_tiny_patch16_224")]
ORIGINALS += [("efficientnet_lite0", 64, True)]
ORIGINALS += [("resnet50_v1", size, False) for size in (50, 72)]  # cannot be halved evenly


@pytest.mark.parametrize(("name", "size", "training"), ORIGINALS)
def test_same_weights_same_result_as_the_original(name: str, size: int, training: bool) -> None:
    """And in training the same statistics of batch norm."""
    torch.manual_seed(0)
    network, original = build(name, size).train(training), _original(name).train(training)
    tensors, names = network.state_dict(), network.original_names
    assert set(names.values()) == set(tensors)
    original.load_state_dict({old: tensors[new] for old, new in names.items()})
    x = torch.randn(4, 3, size, size)
    with torch.no_grad():
        assert torch.allclose(network(x), original(x), atol=1e-4 if training else 1e-5)
    after, tensors = original.state_dict(), network.state_dict()
    assert all(torch.allclose(after[old], tensors[new], atol=1e-5) for old, new in names.items())


@pytest.mark.parametrize("name", ["small_cnn", "vit_tiny_patch16_224", "efficientnet_lite0"])
def test_initial_weights_depend_on_the_seed_only(name: str) -> None:
    states = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        states.append(build(name, SIZES[name]).state_dict())
    one, same, other = states
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert any(not torch.equal(one[key], other[key]) for key in one)


STAGES = {
    "small_cnn": "conv1 conv2 conv3 pool fc1 fc2",
    "mnist_cnn": "normalise conv1 conv2 flatten fc1 fc2",
    "alexnet": "features pool flatten " + " ".join(f"classifier.{i}" for i in range(7)),
    "resnet18": "stem layer1 layer2 layer3 layer4 pool fc",
    "resnet50_v1": "stem layer1 layer2 layer3 layer4 pool fc",
    "efficientnet_lite0": "stem blocks.0 blocks.1 blocks.2 blocks.3 blocks.4 blocks.5 blocks.6 "
    "conv_head pool classifier",
    "vit_tiny_patch16_224": "embed "
    + " ".join(f"blocks.{i}" for i in range(12))
    + " norm_pool head",
    "timm:mobilenetv3_small_050": "features head",
}
MASK_SITES = {
    "small_cnn": [("fc1", 256, 1), ("fc2", 128, 1)],
    "mnist_cnn": [("fc1", 3136, 1), ("fc2", 128, 1)],
    "alexnet": [("classifier.1", 9216, 1), ("classifier.4", 4096, 1), ("classifier.6", 4096, 1)],
    "resnet18": [("layer4", 256, 1), ("fc", 512, 1)],
    "resnet50_v1": [("layer4", 1024, 1), ("fc", 2048, 1)],
    "efficientnet_lite0": [("blocks.6", 192, 1), ("classifier", 1280, 1)],
    "vit_tiny_patch16_224": [("blocks.11", 192, -1), ("head", 192, 1)],
    "timm:mobilenetv3_small_050": [("head", 1024, 1)],
}


@pytest.mark.parametrize("name", STAGES)
def test_stages_and_mask_sites_as_designed(name: str, networks: Callable[[str], Network]) -> None:
    network = networks(name)
    assert " ".join(network.names) == STAGES[name]
    sites = [(s, network.width(s), network.channel_axis(s)) for s in network.mask_sites]
    assert sites == MASK_SITES[name]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("small_cnn", (32, 0.5, 0.5)),
        ("mnist_cnn", (28, 0.5, 0.5)),
        ("resnet18", (224, 0.485, 0.229)),
        ("resnet50_v1", (224, 0.485, 0.229)),
        ("efficientnet_lite1", (240, 127 / 255, 128 / 255)),
        ("efficientnet_lite2", (260, 127 / 255, 128 / 255)),
        ("vit_tiny_patch16_224", (224, 0.5, 0.5)),
        ("timm:resnet10t", (176, 0.485, 0.229)),
    ],
)
def test_size_and_normalisation_come_with_the_network(name: str, expected: tuple) -> None:
    network = build(name)
    assert (network.image_size, network.mean[0], network.std[0]) == pytest.approx(expected)
    assert len(network.mean) == len(network.std) == 3


def test_the_small_network_is_small_and_shares_no_statistics() -> None:
    network = build("small_cnn")
    assert sum(p.numel() for p in network.parameters()) < 100_000
    assert not list(network.buffers())


def test_the_mnist_network_ignores_brightness_and_contrast_and_shares_statistics() -> None:
    torch.manual_seed(0)
    network = build("mnist_cnn", 32).eval()
    images = torch.rand(8, 3, 32, 32)
    colour = torch.tensor([0.1, -0.3, 0.2]).view(3, 1, 1)
    with torch.no_grad():
        assert torch.allclose(network(images * 0.5 + colour), network(images), atol=1e-4)
        assert not torch.allclose(network(1 - images), network(images), atol=1e-4)
        network.train().without_dropout()
        alone, together = network(images), network(torch.cat([images, images**4]))[:8]
    assert alone.shape == (8, N_CLASSES)
    assert not torch.allclose(alone, together, atol=1e-3)
    with pytest.raises(UnseenError, match="'mnist_cnn' has no ImageNet weights"):
        build("mnist_cnn", pretrained=True)


def own(settings: NetworkSettings, n_classes: int) -> Network:
    return build_network(settings.model_copy(update={"name": "small_cnn"}), n_classes)


def not_a_network(settings: NetworkSettings, n_classes: int) -> nn.Module:
    return nn.Linear(1, n_classes)


def test_an_import_string_brings_its_own_network() -> None:
    assert build(f"{__name__}:own").head == "fc2"
    with pytest.raises(SettingsError, match="gave a Linear, expected an unseen"):
        build(f"{__name__}:not_a_network")
    with pytest.raises(SettingsError, match="cannot be imported"):
        build("no_such_module:build")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet81", "unknown backbone 'resnet81'; did you mean 'resnet18'"),
        ("timm:vit_tiny_patch16_225", "did you mean 'vit_tiny_patch16_224'"),
        ("timm:resnet50.nothing", "timm cannot build 'resnet50.nothing'.*tag"),
        ("timm:deit_tiny_distilled_patch16_224", "does not end in one single classifier"),
    ],
)
def test_names_that_cannot_be_built(name: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        build(name)


def test_image_sizes_that_cannot_be_used() -> None:
    with pytest.raises(SettingsError, match="AlexNet needs at least 63 px, got 62"):
        build("alexnet", 62)
    with pytest.raises(SettingsError, match=r"network\.image_size|timm cannot build"):
        build("vit_tiny_patch16_224", 8)


@pytest.mark.parametrize("name", ["efficientnet_lite0", "resnet18", "timm:vit_tiny_patch16_224"])
def test_a_new_classifier_finds_all_classes_about_equally_likely(name: str) -> None:
    """timm's own start (weights of ±1/√classes) gave a first loss of 4 and spoiled the features."""
    torch.manual_seed(0)
    network = build_network(NetworkSettings(name=name, image_size=64), 7).eval()
    with torch.no_grad():
        probabilities = network(torch.randn(8, 3, 64, 64)).softmax(dim=1)
    assert probabilities.max() < 0.5
