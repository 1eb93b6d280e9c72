"""Networks as named stages: parts, blocks in them, shapes, copies, frozen batch norm, dropout."""

import copy

import pytest
import torch
from torch import Tensor, nn

from unseen.errors import SettingsError
from unseen.networks.backbones import build_network
from unseen.networks.layers import MeanPool, statistics_kept
from unseen.networks.pretrained import load_state
from unseen.networks.stages import ImageInput, Network
from unseen.settings.experiment import NetworkSettings

EXPECTS = ImageInput(8, (0.5,) * 3, (0.5,) * 3)


@pytest.fixture
def network() -> Network:
    stages = {
        "stem": nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)),
        "relu": nn.ReLU(inplace=True),
        "pool": nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5)),
        "head.0": nn.BatchNorm1d(4),
        "head.1": nn.Linear(4, 2),
    }
    return Network(stages, EXPECTS, mask_sites=("pool", "head.1"))


def test_a_site_is_the_input_of_a_stage(network: Network) -> None:
    assert network.names == ("stem", "relu", "pool", "head.0", "head.1")
    assert network.head == "head.1"
    assert list(network.input_shapes.values()) == [(3, 8, 8), (4, 6, 6), (4, 6, 6), (4,), (4,)]
    assert [network.width(site) for site in network.names] == [3, 4, 4, 4, 4]
    assert {network.channel_axis(site) for site in network.names} == {1}


def test_a_stage_leaves_the_activation_at_its_site_alone(network: Network) -> None:
    hidden = torch.full((2, 4, 6, 6), -1.0)
    network.run(hidden, since="relu", until="pool")
    assert (hidden == -1).all()


def test_the_dry_run_leaves_statistics_and_mode_as_they_were(network: Network) -> None:
    assert network.training
    for name, buffer in network.named_buffers():
        if name.endswith("num_batches_tracked"):
            assert buffer == 0


def test_tokens_have_their_channels_last() -> None:
    to_tokens = nn.Sequential(nn.Flatten(1), nn.Unflatten(1, (24, 8)))
    network = Network({"embed": to_tokens, "head": nn.Linear(8, 2)}, EXPECTS, ())
    assert network.input_shapes["head"] == (24, 8)
    assert network.channel_axis("head") == -1
    assert network.width("head") == 8


def test_unknown_and_misordered_stages_are_named(network: Network) -> None:
    x = torch.zeros(1, 3, 8, 8)
    with pytest.raises(SettingsError, match=r"unknown stage 'head\.2'; did you mean 'head\.[01]'"):
        network.run(x, until="head.2")
    with pytest.raises(SettingsError, match="unknown stage 'fc'"):
        network.width("fc")
    with pytest.raises(SettingsError, match="'stem' is the network's first stage"):
        network.cut("stem")
    with pytest.raises(SettingsError, match="'pool' comes after 'stem'"):
        network.run(x, since="pool", until="stem")
    with pytest.raises(SettingsError, match="unknown stage 'layer4'"):
        Network({"head": nn.Flatten()}, EXPECTS, mask_sites=("layer4",))
    with pytest.raises(SettingsError, match="clash"):
        Network({"a.b": nn.Identity(), "a_b": nn.Identity()}, EXPECTS, ())


def test_an_image_size_that_does_not_fit_is_a_settings_error() -> None:
    with pytest.raises(SettingsError, match=r"8 px do not pass stage 'conv'.*network\.image_size"):
        Network({"conv": nn.Conv2d(3, 4, 11)}, EXPECTS, ())


def test_a_cloned_tail_is_independent(network: Network) -> None:
    network.eval()
    clone = network.clone_tail("pool")
    hidden = torch.randn(3, 4, 6, 6)
    expected = network.run(hidden, since="pool")
    assert torch.equal(clone(hidden), expected)
    mine = {id(p) for p in network.parameters()}
    assert not mine & {id(p) for p in clone.parameters()}
    assert len(list(clone.parameters())) == 4
    with torch.no_grad():
        clone.get_parameter("head_1.bias").add_(1)
    assert torch.equal(network.run(hidden, since="pool"), expected)
    assert torch.allclose(clone(hidden), expected + 1)


def test_frozen_batch_norm_survives_train_copies_and_clones(network: Network) -> None:
    network.set_batch_norm_frozen(True)
    network.train()
    duplicate = copy.deepcopy(network).train()
    tail = network.clone_tail("head.0").train()
    for module in [*network.modules(), *duplicate.modules(), *tail.modules()]:
        is_norm = isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d)
        assert module.training is not is_norm
    before = {name: buffer.clone() for name, buffer in network.named_buffers()}
    network(torch.randn(4, 3, 8, 8)).sum().backward()
    assert all(torch.equal(before[name], buffer) for name, buffer in network.named_buffers())
    assert network.get_parameter("stages.stem.1.weight").grad is not None
    network.set_batch_norm_frozen(False)
    assert all(module.training for module in network.modules())
    network(torch.randn(4, 3, 8, 8))
    assert network.get_buffer("stages.head_0.num_batches_tracked") == 1


def test_without_dropout_training_is_deterministic(network: Network) -> None:
    from timm.layers import DropPath

    network.stages["pool"].append(DropPath(0.5))  # type: ignore[operator]
    network.set_batch_norm_frozen(True)
    x = torch.randn(8, 3, 8, 8)
    assert not torch.equal(network(x), network(x))
    network.without_dropout()
    assert torch.equal(network(x), network(x))


@torch.no_grad()
def test_compiled_stages_give_the_same_result_and_names(network: Network) -> None:
    network.eval()
    x = torch.randn(2, 3, 8, 8)
    expected, names = network(x), list(network.state_dict())
    network.compile_stages(backend="eager")
    assert torch.allclose(network(x), expected)
    assert torch.allclose(network.run(network.run(x, until="pool"), since="pool"), expected)
    assert list(network.state_dict()) == names
    assert torch.allclose(copy.deepcopy(network)(x), expected)


def test_the_frozen_part_neither_learns_nor_changes(network: Network) -> None:
    network.freeze("head.0")
    network.train()
    stem = network.stage("stem")
    assert not any(p.requires_grad for p in stem.parameters())
    assert all(p.requires_grad for p in network.stage("head.1").parameters())
    before = stem[1].running_mean.clone()  # type: ignore[index]
    x = torch.randn(8, 3, 8, 8)
    assert torch.equal(network.run(x, until="head.0"), network.run(x, until="head.0"))  # no dropout
    assert torch.equal(stem[1].running_mean, before)  # type: ignore[index]
    assert network.stage("head.0").training
    assert network.mask_sites == ("head.1",)


@torch.no_grad()
def test_features_enter_where_the_frozen_part_ends(network: Network) -> None:
    network.freeze("head.0")
    network.eval()
    x = torch.randn(4, 3, 8, 8)
    features = network.start(x)
    assert features.shape == (4, 4)
    assert torch.equal(network.start(features), features)
    assert torch.equal(network(features), network(x))
    assert torch.equal(network.run(features, until="head.1"), network.run(x, until="head.1"))
    with pytest.raises(SettingsError, match=r"stage 'head\.0' comes after 'pool'"):
        network.run(features, until="pool")


@torch.no_grad()
def test_a_clone_is_what_learns(network: Network) -> None:
    network.freeze("head.0")
    network.eval()
    twin = network.clone()
    assert twin.names == ("head.0", "head.1")
    x = torch.randn(4, 3, 8, 8)
    assert torch.equal(twin(network.start(x)), network(x))
    nn.init.zeros_(twin.stage("head.1").weight)  # type: ignore[arg-type]
    assert not torch.equal(twin(network.start(x)), network(x))
    assert set(network.state_dict()) > set(twin.state_dict())


@torch.no_grad()
def test_all_that_learns_can_be_cut_off(network: Network) -> None:
    network.freeze("head.0")
    network.cut("head.0")
    network.train()
    x = torch.randn(4, 3, 8, 8)
    features = network.start(x)
    assert torch.equal(network(x), features)
    assert torch.equal(network(features), features)
    assert network.frozen_stages() == network.names == ("stem", "relu", "pool")


def blocks_of(width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, width, 3), nn.ReLU(inplace=True), nn.BatchNorm2d(width), nn.ReLU()
    )


@pytest.fixture
def blocks() -> Network:
    torch.manual_seed(0)
    layer, head = blocks_of(4), nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    original = nn.ModuleDict({"layer": layer, "fc": head}).state_dict(keep_vars=True)
    stages = {"layer": layer, "pool": nn.AdaptiveAvgPool2d(1), "head": head}
    return Network(stages, EXPECTS, mask_sites=("pool",), original=original)


def test_the_input_of_a_block_becomes_a_site(blocks: Network) -> None:
    blocks.eval()
    x = torch.randn(3, 3, 8, 8)
    whole = blocks(x)
    blocks.divide("layer.2")
    assert blocks.names == ("layer", "layer.2", "pool", "head")
    assert blocks.input_shapes["layer.2"] == (4, 6, 6)
    for site in blocks.names:
        assert torch.equal(blocks.run(blocks.run(x, until=site), since=site), whole)


def test_a_block_that_works_in_place_leaves_its_site_alone(blocks: Network) -> None:
    blocks.divide("layer.1")
    hidden = torch.full((2, 4, 6, 6), -1.0)
    blocks.run(hidden, since="layer.1", until="pool")
    assert (hidden == -1).all()


def test_tensors_are_found_by_their_original_names_after_it(blocks: Network) -> None:
    blocks.divide("layer.2")
    assert blocks.original_names["layer.2.weight"] == "stages.layer_2.2.weight"
    assert blocks.original_names["layer.0.weight"] == "stages.layer.0.weight"
    original = {"layer": blocks_of(4), "fc": nn.Sequential(nn.Flatten(), nn.Linear(4, 2))}
    state = nn.ModuleDict(original).state_dict()
    state["layer.2.running_mean"] += 3
    load_state(blocks, state, "a test")
    assert torch.equal(blocks.stage("layer.2")[0].running_mean, torch.full((4,), 3.0))  # type: ignore[index]


@pytest.mark.parametrize("names", [("layer.1", "layer.3"), ("layer.3", "layer.1")])
def test_a_stage_is_divided_more_than_once_in_any_order(
    blocks: Network, names: tuple[str, ...]
) -> None:
    assert blocks.in_order(names) == ("layer.1", "layer.3")
    assert blocks.names == ("layer", "layer.1", "layer.3", "pool", "head")
    assert [len(blocks.stage(n)) for n in blocks.names[:3]] == [1, 2, 1]  # type: ignore[arg-type]
    state = list(blocks.state_dict())
    blocks.divide("layer.1")
    assert list(blocks.state_dict()) == state


@pytest.mark.parametrize("name", ["layer.0", "layer.9", "head.1", "pool.1", "other.1", "layer"])
def test_there_is_nothing_else_to_divide(blocks: Network, name: str) -> None:
    blocks.divide(name)
    assert blocks.names == ("layer", "pool", "head")


def test_what_is_no_block_is_an_unknown_stage(blocks: Network) -> None:
    with pytest.raises(SettingsError, match=r"unknown stage 'layer\.9'.*layer"):
        blocks.freeze("layer.9")
    blocks.freeze("pool")
    with pytest.raises(SettingsError, match="frozen part"):
        blocks.in_order(["layer.2"])


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


ROWS = torch.tensor([[1.0, 10.0], [3.0, 30.0]])


def test_the_mean_over_pixels_and_its_gradient() -> None:
    """Its gradient is laid out as the images are, channels last."""
    images = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last).requires_grad_()
    weights, seen = torch.randn(2, 3), list[Tensor]()
    activations = images * 2
    activations.register_hook(seen.append)
    pooled = MeanPool()(activations)
    torch.testing.assert_close(pooled, activations.mean((2, 3)))
    with torch.no_grad():
        torch.testing.assert_close(MeanPool()(activations), pooled)
    (pooled * weights).sum().backward()
    torch.testing.assert_close(seen[0], (weights / 20)[:, :, None, None].expand(2, 3, 4, 5))
    assert seen[0].is_contiguous(memory_format=torch.channels_last)
    assert not seen[0].is_contiguous()


def test_passes_inside_normalise_by_the_batch_and_record_nothing() -> None:
    layer = nn.BatchNorm1d(2).train()
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    with statistics_kept(layer):
        found = layer(ROWS)
    torch.testing.assert_close(found, torch.tensor([[-1.0, -1.0], [1.0, 1.0]]), atol=1e-4, rtol=0)
    assert all(torch.equal(before[name], tensor) for name, tensor in layer.state_dict().items())
    layer(ROWS)
    torch.testing.assert_close(layer.running_mean, torch.tensor([0.2, 2.0]))
    assert layer.num_batches_tracked == 1


def test_frozen_batch_norm_goes_on_with_its_statistics() -> None:
    layer = nn.BatchNorm1d(2).eval()
    with statistics_kept(layer):
        torch.testing.assert_close(layer(ROWS), ROWS, atol=1e-3, rtol=0)  # mean 0, variance 1


@pytest.mark.parametrize("records", [True, False])
def test_recording_is_as_before_also_after_an_error(records: bool) -> None:
    layer = nn.BatchNorm1d(2, track_running_stats=records)
    with pytest.raises(ValueError, match="stop"), statistics_kept(layer):
        raise ValueError("stop")
    assert layer.track_running_stats == records
