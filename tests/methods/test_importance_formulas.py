"""Importance masks against cases worked by hand."""

import numpy as np
import pytest
import torch
from tests.methods import batches
from torch import Tensor, nn

from unseen.data.batch import DomainBatch, Task
from unseen.errors import SettingsError
from unseen.methods.base import Progress
from unseen.methods.importance import Importance, normalised, top_share
from unseen.networks.backbones import build_network
from unseen.settings.experiment import NetworkSettings, OptimizerSettings
from unseen.training.optimizers import build_optimizer

TASK = Task(("one", "two", "three"), ("photo", "sketch"))
FEATURES = 256  # of the small CNN before fc1
STEPS = 20  # phase 2 starts at step 10, freezes at 17


def make(**settings) -> Importance:
    torch.manual_seed(0)
    network = build_network(NetworkSettings(name="small_cnn", image_size=16), len(TASK.classes))
    network.freeze("fc1")
    return Importance(network, TASK, Importance.Config(name="importance", **settings))


def batch_of(domains: list[int], step: int = 0) -> DomainBatch:
    """Stored features, which are larger for a higher class."""
    batch = batches.batch_of(domains, step=step)
    generator = torch.Generator().manual_seed(step)
    noise = torch.randn(len(domains), FEATURES, generator=generator)
    return batch._replace(images=batch.labels[:, None] - 1 + 0.5 * noise)


def step(method: Importance, optimizer: torch.optim.Optimizer, number: int, steps: int = STEPS):
    progress = Progress(number, steps)
    losses = method(batch_of([0, 0, 0, 1, 1, 1], number), progress)
    losses["loss"].backward()
    method.edit_gradients(progress)
    optimizer.step()
    optimizer.zero_grad()
    method.after_update(progress)


def run(method: Importance, numbers: range, **optimizer_settings) -> torch.optim.Optimizer:
    optimizer = build_optimizer(method, OptimizerSettings(**{"lr": 1e-2} | optimizer_settings))
    for number in numbers:
        step(method, optimizer, number)
    return optimizer


def linear(method: Importance) -> list[nn.Linear]:
    return [layer for layer in method.classifier if isinstance(layer, nn.Linear)]


def tracked(method: Importance) -> Tensor:
    square = [layer.weight for layer in linear(method) if len(set(layer.weight.shape)) == 1]
    return torch.cat([weight.detach().flatten() for weight in square])


def end_first_phase(method: Importance) -> None:
    method.after_update(Progress(STEPS // 2 - 1, STEPS))
    method.preparing = False  # as the next step makes it


def test_normalisation_and_the_exact_share_also_among_equals() -> None:
    """Over all layers, for each row."""
    values = torch.tensor([[1.0, 3.0, 2.0, 5.0, 4.0], [0.0] * 5])
    expected = torch.tensor([[0.0, 0.5, 0.25, 1.0, 0.75], [0.0] * 5])
    torch.testing.assert_close(normalised(values), expected)
    masks = [[False, True, False, True, True], [True, True, True, False, False]]
    assert top_share(values, 0.6).tolist() == masks


@pytest.mark.parametrize(("aggregation", "third"), [("sum", False), ("union", True)])
def test_importance_is_the_absolute_change_of_all_domains(aggregation: str, third: bool) -> None:
    """Changes of opposite sign add up: 2 + 2 > 3 + 0, although their sum is zero; the union also
    has the weight that matters most to one domain."""
    method = make(width=1, depth=3, important_share=0.5, aggregation=aggregation)
    with torch.no_grad():  # w⁰ plus the changes of each domain, in layers 2 and 3
        for place, changes in enumerate([(2.0, -2.0), (3.0, 0.0)]):
            for domain, change in enumerate(changes):
                weights = method.domain_networks.weights[1 + place]
                weights[domain].fill_(method.initial[place] + change)
    end_first_phase(method)
    arrays = method.arrays()
    first = method.initial[0].item()
    for what, expected in {
        "initial": method.initial.tolist(),
        "final/sketch": [first - 2, method.initial[1].item()],
        "summed": [4, 3],
        "normalised": [1, 0],
        "mask": [True, third],
        "mask/photo": [False, True],
        "mask/sketch": [True, False],
        "importance/sketch": [1, 0],
    }.items():
        found = [arrays[f"{what}/layer{number}"].item() for number in (2, 3)]
        assert found == pytest.approx(expected, abs=1e-5), what


def test_domain_networks_start_alike_and_the_second_one_differs() -> None:
    method = make()
    for tensor in (*method.domain_networks.weights, *method.domain_networks.biases):
        assert torch.equal(tensor[0], tensor[1])
    assert not torch.isclose(method.initial, method.second_initial).any()
    assert torch.equal(method.initial.view(3, 10, 10)[1], method.domain_networks.weights[2][0])


def alone(method: Importance, features: Tensor, domain: int) -> Tensor:
    for place, weight in enumerate(method.domain_networks.weights):
        features = features if place == 0 else features.relu()
        bias = method.domain_networks.biases[place][domain]
        features = nn.functional.linear(features, weight[domain], bias)
    return features


@pytest.mark.parametrize("domains", [[0, 0, 1, 1], [1, 0, 1, 1, 0]])
def test_each_image_goes_through_its_own_domains_network(domains: list[int]) -> None:
    method = make(width=6)
    with torch.no_grad():
        method.domain_networks.weights[1][1].neg_()  # so that the networks differ
    batch = batch_of(domains)
    rows = zip(batch.images, domains, strict=True)
    scores = torch.stack([alone(method, image, domain) for image, domain in rows])
    expected = nn.functional.cross_entropy(scores, batch.labels)
    torch.testing.assert_close(method.loss(batch, Progress(0, STEPS))["loss"], expected)


def first_steps(gradient_factor: float, rate: float) -> tuple[Tensor, Tensor]:
    """The first step of phase 2 under Adam: of all tracked weights, and which are important."""
    method = make(unimportant_rate=rate, width=32)
    optimizer = run(method, range(10))
    before = tracked(method).clone()
    progress = Progress(10, STEPS)
    (gradient_factor * method(batch_of([0, 1, 0], 10), progress)["loss"]).backward()
    method.edit_gradients(progress)
    optimizer.step()
    method.after_update(progress)
    return tracked(method) - before, method.important


def test_the_step_is_scaled_where_adam_would_ignore_a_scaled_gradient() -> None:
    full, important = first_steps(1.0, rate=1.0)
    small_gradient, _ = first_steps(0.1, rate=1.0)
    ours, again = first_steps(1.0, rate=0.1)
    assert torch.equal(important, again)
    moved = full.abs() > 9.99e-3  # Adam's first step is ± lr wherever there is a gradient
    assert moved[~important].sum() > 100
    torch.testing.assert_close(small_gradient[moved], full[moved], rtol=2e-2, atol=0)
    scaled = moved & ~important
    torch.testing.assert_close(ours[scaled], 0.1 * full[scaled], rtol=1e-4, atol=1e-7)
    assert torch.equal(ours[important], full[important])


@pytest.mark.parametrize("layers", [(), (2,)])
def test_in_the_end_unimportant_weights_are_frozen_bit_for_bit(layers: tuple[int, ...]) -> None:
    method = make(tracked_layers=layers, width=32)
    optimizer = run(method, range(17), weight_decay=0.01)
    size = len(method.important)
    before, bias = tracked(method)[:size].clone(), linear(method)[1].bias.detach().clone()
    for number in range(17, 20):
        step(method, optimizer, number)
    after = tracked(method)[:size]
    assert torch.equal(after[~method.important], before[~method.important])
    assert (after != before)[method.important].float().mean() > 0.5
    assert not torch.equal(linear(method)[1].bias, bias)


def test_untracked_layers_learn_at_the_full_rate() -> None:
    method = make(important_share=0.01, unimportant_rate=0.0, tracked_layers=(2,), width=32)
    optimizer = run(method, range(10))
    before = [layer.weight.detach().clone() for layer in linear(method)]
    step(method, optimizer, 10)
    changed = [(a.weight != b).sum() for a, b in zip(linear(method), before, strict=True)]
    assert changed[1] <= round(0.01 * 32 * 32)
    assert changed[2] > 100


def test_rates_of_unimportant_weights_by_hand() -> None:
    """Phase 2 from step 100 on, 100 steps: tenths of 10 steps, frozen from step 170."""
    found = [make().unimportant_rate(Progress(n, 200)) for n in (100, 109, 110, 169, 170)]
    assert found == pytest.approx([0.1, 0.1, 0.09, 0.1 * 0.9**6, 0])
    settings = {"unimportant_rate": 0.5, "unimportant_decay": 0.5, "freeze_after": 1.0}
    rate = make(phase_share=0.25, **settings).unimportant_rate
    assert [rate(Progress(n, 100)) for n in (25, 99)] == pytest.approx([0.5, 0.5**10])


def test_the_rate_in_force_is_recorded() -> None:
    method = make()
    optimizer = run(method, range(10))
    assert method.statistics() == {"phase": 1}
    for number, rate in ((10, 0.1), (11, 0.09)):
        step(method, optimizer, number)
        found = method.statistics()
        assert (found["phase"], list(found["layers"])) == (2, ["layer2", "layer3", "layer4"])
        assert found["layers"]["layer2"]["unimportant_rate"] == pytest.approx(rate)


def test_prediction_is_that_of_the_phase() -> None:
    method = make(width=6).eval()
    with torch.no_grad():
        method.domain_networks.weights[1][1].neg_()
    features = batch_of([0, 1, 0]).images
    each = [alone(method, features, domain) for domain in (0, 1)]
    torch.testing.assert_close(method.predict(features), (each[0] + each[1]) / 2)
    end_first_phase(method)
    torch.testing.assert_close(method.predict(features), method.classifier(features))


def test_arrays_say_what_happened_in_both_phases() -> None:
    method = make()
    run(method, range(STEPS))
    found = method.arrays()
    assert found["phase_steps"].tolist() == [0, STEPS // 2, STEPS]
    layers = ("layer2", "layer3", "layer4")
    normal, masks = (np.stack([found[f"{w}/{n}"] for n in layers]) for w in ("normalised", "mask"))
    assert (normal.min(), normal.max()) == (0.0, 1.0)
    assert normal[masks].min() >= normal[~masks].max()
    assert (found["second_final/layer3"] != found["second_initial/layer3"]).mean() > 0.5


def test_width_depth_and_tracked_layers() -> None:
    method = make(width=7, depth=2, tracked_layers="1,3")
    assert [layer.weight.shape for layer in linear(method)] == [(7, FEATURES), (7, 7), (3, 7)]
    tracked = [name for name in method.arrays() if name.startswith("initial")]
    assert tracked == ["initial/layer1", "initial/layer3"]


def test_mistakes_are_named() -> None:
    network = build_network(NetworkSettings(name="small_cnn", image_size=16), 3)
    config = Importance.Config(name="importance")
    with pytest.raises(SettingsError, match=r"network\.freeze_until=STAGE.*freeze_until=fc2"):
        Importance(network, TASK, config)
    with pytest.raises(SettingsError, match=r"no linear layer 6.*from 1 to 5"):
        make(tracked_layers=(6,))
    with pytest.raises(SettingsError, match=r"depth=1 leaves no layer"):
        make(depth=1)
