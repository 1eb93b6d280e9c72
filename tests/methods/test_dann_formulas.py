"""DANN's mathematics against cases worked by hand and against autograd."""

import math
from typing import Any

import pytest
import torch
from tests.methods.batches import gradients
from torch import nn
from torch.nn import functional

from unseen.data.batch import DomainBatch, Task
from unseen.data.randomness import image_keys
from unseen.errors import SettingsError
from unseen.methods.base import Progress
from unseen.methods.dann import DANN, mean_entropy
from unseen.networks.layers import reversal_strength, reverse_gradient
from unseen.networks.stages import ImageInput, Network
from unseen.settings.experiment import OptimizerSettings, ScheduleSettings
from unseen.training.optimizers import build_optimizer, schedule_factor

HALF = Progress(5, 10)
STRENGTH = 2 / (1 + math.exp(-5)) - 1  # at half of the run: 0.98661
SOURCES = Task(("a", "b", "c"), ("k", "l"))
ADAPTATION = Task(("a", "b", "c"), ("k", "l"), target="t")


def tiny_network(norm: bool = False) -> Network:
    """3×2×2 images, a hidden layer of 4, a classifier of 3."""
    torch.manual_seed(0)
    hidden: list[nn.Module] = [nn.Linear(12, 4), nn.Tanh()]
    stages = {
        "flatten": nn.Flatten(),
        "fc1": nn.Sequential(*hidden, nn.BatchNorm1d(4)) if norm else nn.Sequential(*hidden),
        "fc2": nn.Linear(4, 3),
    }
    return Network(stages, ImageInput(2, (0.5,) * 3, (0.5,) * 3), mask_sites=("fc2",))


def make(task: Task = ADAPTATION, norm: bool = False, **settings: Any) -> DANN:
    network = tiny_network(norm)
    return DANN(network, task, DANN.Config(name="dann", discriminator_width=8, **settings))


def batch_of(n_source: int = 4, n_target: int = 4) -> DomainBatch:
    generator = torch.Generator().manual_seed(1)
    places = torch.arange(n_source)
    return DomainBatch(
        torch.randn(n_source, 3, 2, 2, generator=generator),
        places % 3,
        places * 2 // n_source,
        image_keys(0, 0, places),
        2,
        places,
        image_keys(0, 0, places[:1]),
        torch.randn(n_target, 3, 2, 2, generator=generator) + 1 if n_target else None,
    )


def test_reversal_keeps_numbers_and_turns_gradients_round() -> None:
    x = torch.tensor([1.0, -2.0], requires_grad=True)
    same = reverse_gradient(x, 0.25)
    assert torch.equal(same, x)
    (same * torch.tensor([4.0, 8.0])).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [-1.0, -2.0]


@pytest.mark.parametrize(
    ("ratio", "steepness", "expected"),
    [
        (0.0, 10.0, 0.0),
        (0.5, 10.0, 0.986614),  # 2 / (1 + e^−5) − 1, e^−5 = 0.0067379
        (1.0, 10.0, 0.999909),  # e^−10 = 0.0000454
        (0.5, math.log(9), 0.5),  # e^(−ln 9 / 2) = 1/3, 2 / (4/3) − 1
    ],
)
def test_the_strength_of_the_reversal_by_hand(
    ratio: float, steepness: float, expected: float
) -> None:
    assert reversal_strength(ratio, steepness) == pytest.approx(expected, abs=1e-6)


def test_the_schedules_reach_the_loss() -> None:
    value = make(domain_weight=0.5).loss(batch_of(), HALF)["reversal"]
    assert value.item() == pytest.approx(0.5 * STRENGTH)
    value = make(schedule_steepness=math.log(9)).loss(batch_of(), HALF)["reversal"]
    assert value.item() == pytest.approx(0.5)


def test_the_rate_falls_as_in_the_paper() -> None:
    schedule = ScheduleSettings(name="inverse", gamma=10, power=0.75, unit="run")
    assert schedule_factor(schedule, 0, 10, 3) == 1.0
    assert schedule_factor(schedule, 5, 10, 3) == pytest.approx(6**-0.75)
    assert schedule_factor(schedule, 10, 10, 3) == pytest.approx(11**-0.75)


@pytest.mark.parametrize("task", [SOURCES, ADAPTATION])
@pytest.mark.parametrize("condition", ["none", "class"])
@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_who_gets_which_gradient(task: Task, condition: str, weight: float) -> None:
    """Features ∂task − λ ∂domain, label head ∂task, discriminator ∂domain as it is."""
    method = make(task, condition=condition, domain_weight=weight)
    batch = batch_of()
    images = torch.cat([batch.images, batch.target]) if task.target else batch.images
    domains = torch.tensor([0] * 4 + [1] * 4) if task.target else batch.domains
    network = method.network
    features = network.run(images, until="fc2")
    scores = network.run(features, since="fc2")
    task_loss = functional.cross_entropy(scores[:4], batch.labels)
    seen = features
    if condition == "class":
        seen = torch.einsum("nf,nc->nfc", features, scores.softmax(1).detach()).flatten(1)
    domain_loss = functional.cross_entropy(method.discriminator(seen), domains)

    losses = method.loss(batch, HALF)
    losses["loss"].backward()
    torch.testing.assert_close(losses["task"], task_loss)
    torch.testing.assert_close(losses["domain"], domain_loss)
    expected = {
        "fc1": [
            t - weight * STRENGTH * d
            for t, d in zip(
                gradients(task_loss, network.stage("fc1")),
                gradients(domain_loss, network.stage("fc1")),
                strict=True,
            )
        ],
        "fc2": gradients(task_loss, network.stage("fc2")),
    }
    for name, values in expected.items():
        found = [p.grad for p in network.stage(name).parameters()]
        torch.testing.assert_close(found, values)
    found = [p.grad for p in method.discriminator.parameters()]
    torch.testing.assert_close(found, gradients(domain_loss, method.discriminator))
    assert max(g.abs().max() for g in gradients(domain_loss, network.stage("fc1"))) > 1e-3


def test_nothing_is_reversed_at_the_first_step() -> None:
    method = make()
    method.loss(batch_of(), Progress(0, 10))["loss"].backward()
    plain = functional.cross_entropy(method.network(batch_of().images), batch_of().labels)
    found = [p.grad for p in method.network.parameters()]
    torch.testing.assert_close(found, gradients(plain, method.network))


def test_source_and_target_pass_the_network_together() -> None:
    """One call for each stage, and batch-norm statistics of all images at once."""
    method = make(norm=True).train()
    batch = batch_of(4, 6)
    sizes = []
    method.network.stage("fc1").register_forward_hook(
        lambda _, inputs, __: sizes.append(len(inputs[0]))
    )
    method.loss(batch, HALF)
    assert sizes == [10]
    assert batch.target is not None
    norm = method.network.stage("fc1")[2]
    hidden = method.network.stage("fc1")[:2](torch.cat([batch.images, batch.target]).flatten(1))
    torch.testing.assert_close(norm.running_mean, 0.1 * hidden.mean(0))
    torch.testing.assert_close(norm.running_var, 0.9 + 0.1 * hidden.var(0))


def test_both_sides_count_equally_whatever_their_numbers() -> None:
    method = make()
    batch = batch_of(2, 6)
    assert batch.target is not None
    guesses = [
        method.discriminator(method.network.run(images, until="fc2"))
        for images in (batch.images, batch.target)
    ]
    answers = [torch.full((len(g),), side) for side, g in enumerate(guesses)]
    parts = [functional.cross_entropy(g, a) for g, a in zip(guesses, answers, strict=True)]
    right = [(g.argmax(1) == a).float().mean() for g, a in zip(guesses, answers, strict=True)]
    losses = method.loss(batch, HALF)
    torch.testing.assert_close(losses["domain"], (parts[0] + parts[1]) / 2)
    torch.testing.assert_close(losses["domain_accuracy"], (right[0] + right[1]) / 2)
    pooled = functional.cross_entropy(torch.cat(guesses), torch.cat(answers))
    assert abs(losses["domain"] - pooled) > 1e-3


def test_target_images_do_not_enter_the_task_loss() -> None:
    method = make()
    batch = batch_of()
    assert batch.target is not None
    other = method.loss(batch._replace(target=batch.target * 3), HALF)
    same = method.loss(batch, HALF)
    assert torch.equal(other["task"], same["task"])
    assert not torch.equal(other["domain"], same["domain"])


def test_entropy_of_target_predictions() -> None:
    """Of two even chances ln 2, of certainty 0; the mean over images is added, with its weight."""
    scores = torch.tensor([[0.0, 0.0, -1e4], [1e4, 0.0, 0.0]])
    assert mean_entropy(scores).item() == pytest.approx(math.log(2) / 2)
    with_it, without = (make(target_entropy_weight=w).loss(batch_of(), HALF) for w in (0.2, 0.0))
    target = batch_of().target
    assert target is not None
    expected = mean_entropy(make().network(target))
    torch.testing.assert_close(with_it["target_entropy"], expected)
    torch.testing.assert_close(with_it["loss"] - without["loss"], 0.2 * expected)
    assert "target_entropy" not in without


def test_entropy_makes_target_predictions_surer() -> None:
    method = make(target_entropy_weight=1.0)
    plain = make()
    for each in (method, plain):
        each.loss(batch_of(), HALF)["loss"].backward()
    entropy = mean_entropy(method.network(batch_of().target))
    for parameter, without, expected in zip(
        method.network.parameters(),
        plain.network.parameters(),
        gradients(entropy, method.network),
        strict=True,
    ):
        torch.testing.assert_close(parameter.grad - without.grad, expected)


def test_the_discriminator_is_built_as_told() -> None:
    def shapes(method: DANN) -> list[tuple[int, ...]]:
        return [tuple(p.shape) for p in method.discriminator.parameters() if p.ndim == 2]

    assert shapes(make()) == [(8, 4), (2, 8)]
    assert shapes(make(discriminator_depth=2)) == [(8, 4), (8, 8), (2, 8)]
    assert shapes(make(condition="class")) == [(8, 12), (2, 8)]
    assert shapes(make(site="fc1")) == [(8, 12), (2, 8)]
    assert shapes(make(SOURCES._replace(domains=("k", "l", "m")), discriminator_depth=0)) == [
        (3, 4)
    ]
    dropouts = [m.p for m in make(discriminator_dropout=0.4).modules() if isinstance(m, nn.Dropout)]
    assert dropouts == [0.4]


def test_an_earlier_site_is_where_the_reversal_acts() -> None:
    """At the input of fc1 nothing learns before it: fc1 sees the task alone."""
    method = make(site="fc1")
    method.loss(batch_of(), HALF)["loss"].backward()
    plain = functional.cross_entropy(method.network(batch_of().images), batch_of().labels)
    found = [p.grad for p in method.network.parameters()]
    torch.testing.assert_close(found, gradients(plain, method.network))


def test_a_frozen_network_up_to_the_site_is_remarked_on() -> None:
    assert make().remarks == ()
    network = tiny_network()
    network.freeze("fc2")
    (remark,) = DANN(network, ADAPTATION, DANN.Config(name="dann")).remarks
    assert "nothing before 'fc2' learns" in remark
    with pytest.raises(SettingsError, match="lies in the frozen part"):
        DANN(network, ADAPTATION, DANN.Config(name="dann", site="fc1"))


def test_the_discriminator_has_its_own_rate() -> None:
    settings = OptimizerSettings(lr=0.1, new_layers_lr_factor=10)
    first = build_optimizer(make(discriminator_lr=0.03), settings).param_groups[0]
    assert (first["lr"], len(first["params"])) == (0.03, 4)
    first, second = build_optimizer(make(), settings).param_groups
    assert (first["lr"], len(first["params"]), second["lr"]) == (1.0, 4, 0.1)


def test_settings_that_ask_for_what_is_not_there() -> None:
    with pytest.raises(SettingsError, match=r"no target .*or more, found one \(k\)"):
        make(Task(("a", "b", "c"), ("k",)))
    with pytest.raises(SettingsError, match=r"target_entropy_weight=0.5 needs target images"):
        make(SOURCES, target_entropy_weight=0.5)
    assert make(Task(("a", "b", "c"), ("k",), target="t")).loss(batch_of(), HALF)["loss"].isfinite()


def test_prediction_is_the_network_alone() -> None:
    method = make().eval()
    images = batch_of().images
    assert torch.equal(method.predict(images), method.network(images))
    assert method.traits.training_only == ("discriminator",)
