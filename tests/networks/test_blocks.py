"""Blocks inside a stage as stages of their own: sites, names of tensors, what stays whole."""

import pytest
import torch
from torch import nn

from unseen.errors import SettingsError
from unseen.networks.backbones import build_network
from unseen.networks.pretrained import load_state
from unseen.networks.stages import ImageInput, Network
from unseen.settings.experiment import NetworkSettings

EXPECTS = ImageInput(8, (0.5,) * 3, (0.5,) * 3)


def blocks_of(width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, width, 3), nn.ReLU(inplace=True), nn.BatchNorm2d(width), nn.ReLU()
    )


@pytest.fixture
def network() -> Network:
    torch.manual_seed(0)
    layer, head = blocks_of(4), nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    original = nn.ModuleDict({"layer": layer, "fc": head}).state_dict(keep_vars=True)
    stages = {"layer": layer, "pool": nn.AdaptiveAvgPool2d(1), "head": head}
    return Network(stages, EXPECTS, mask_sites=("pool",), original=original)


def test_the_input_of_a_block_becomes_a_site(network: Network) -> None:
    network.eval()
    x = torch.randn(3, 3, 8, 8)
    whole = network(x)
    network.divide("layer.2")
    assert network.names == ("layer", "layer.2", "pool", "head")
    assert network.input_shapes["layer.2"] == (4, 6, 6)
    for site in network.names:
        assert torch.equal(network.run(network.run(x, until=site), since=site), whole)


def test_a_block_that_works_in_place_leaves_its_site_alone(network: Network) -> None:
    network.divide("layer.1")
    hidden = torch.full((2, 4, 6, 6), -1.0)
    network.run(hidden, since="layer.1", until="pool")
    assert (hidden == -1).all()


def test_tensors_are_found_by_their_original_names_after_it(network: Network) -> None:
    network.divide("layer.2")
    assert network.original_names["layer.2.weight"] == "stages.layer_2.2.weight"
    assert network.original_names["layer.0.weight"] == "stages.layer.0.weight"
    original = {"layer": blocks_of(4), "fc": nn.Sequential(nn.Flatten(), nn.Linear(4, 2))}
    state = nn.ModuleDict(original).state_dict()
    state["layer.2.running_mean"] += 3
    load_state(network, state, "a test")
    assert torch.equal(network.stage("layer.2")[0].running_mean, torch.full((4,), 3.0))  # type: ignore[index]


@pytest.mark.parametrize("names", [("layer.1", "layer.3"), ("layer.3", "layer.1")])
def test_a_stage_is_divided_more_than_once_in_any_order(
    network: Network, names: tuple[str, ...]
) -> None:
    assert network.in_order(names) == ("layer.1", "layer.3")
    assert network.names == ("layer", "layer.1", "layer.3", "pool", "head")
    assert [len(network.stage(n)) for n in network.names[:3]] == [1, 2, 1]  # type: ignore[arg-type]
    state = list(network.state_dict())
    network.divide("layer.1")
    assert list(network.state_dict()) == state


@pytest.mark.parametrize("name", ["layer.0", "layer.9", "head.1", "pool.1", "other.1", "layer"])
def test_there_is_nothing_else_to_divide(network: Network, name: str) -> None:
    network.divide(name)
    assert network.names == ("layer", "pool", "head")


def test_what_is_no_block_is_an_unknown_stage(network: Network) -> None:
    with pytest.raises(SettingsError, match=r"unknown stage 'layer\.9'.*layer"):
        network.freeze("layer.9")
    network.freeze("pool")
    with pytest.raises(SettingsError, match="frozen part"):
        network.in_order(["layer.2"])


def test_numbers_of_stages_are_not_mixed_up_with_those_of_blocks() -> None:
    """`blocks.9` is no block of `blocks.1`."""
    stages = {f"blocks.{n}": nn.Sequential(*[nn.ReLU() for _ in range(12)]) for n in range(3)}
    network = Network(stages | {"head": nn.Flatten()}, EXPECTS, ())
    network.divide("blocks.9")
    assert network.names == ("blocks.0", "blocks.1", "blocks.2", "head")
    network.divide("blocks.1.9")
    assert network.names[2] == "blocks.1.9"


def test_a_resnet_freezes_up_to_its_last_residual_block() -> None:
    settings = NetworkSettings(
        name="resnet50_v1", image_size=64, freeze_until="layer4.2", freeze_batch_norm=True
    )
    network = build_network(settings, n_classes=7)
    assert network.names[-4:] == ("layer4", "layer4.2", "pool", "fc")
    assert network.input_shapes["layer4.2"] == (2048, 2, 2)
    assert network.batch_norm_frozen
    learning = [name for name, p in network.named_parameters() if p.requires_grad]
    assert {name.split(".")[1] for name in learning} == {"layer4_2", "fc"}
    assert network.original_names["layer4.2.conv1.weight"] in learning
