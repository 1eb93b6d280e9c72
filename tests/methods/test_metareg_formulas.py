"""MetaReg's mathematics against closed forms and an independent computation, and its phases."""

from functools import partial
from pathlib import Path

import pytest
import torch
from tests.methods import batches
from tests.methods.batches import assert_new
from tests.methods.side_by_side import gradients_of_one, gradients_of_two, rows
from torch import Tensor, nn
from torch.nn import functional

from unseen.data.batch import DomainBatch, Task
from unseen.errors import SettingsError
from unseen.methods.base import Progress
from unseen.methods.metareg import MetaReg
from unseen.networks.stages import ImageInput, Network
from unseen.settings.experiment import OptimizerSettings
from unseen.training.checkpoints import (
    Checkpoint,
    load_checkpoint,
    load_weights,
    save_checkpoint,
    save_weights,
)
from unseen.training.optimizers import build_optimizer

PHASE_1, PHASE_2 = Progress(3, 10), Progress(4, 10)
batch_of = partial(batches.batch_of, dtype=torch.float64)


TASK = Task(("a", "b", "c"), ("k", "l"))


def make(domains: int = 2, seed: int = 0, **settings) -> MetaReg:
    """Flattened 3×2×2 images, five features, three classes; heads and φ drawn at random."""
    torch.manual_seed(seed)
    stages = {"body": nn.Sequential(nn.Flatten(), nn.Linear(12, 5)), "fc": nn.Linear(5, 3)}
    network = Network(stages, ImageInput(2, (0.5,) * 3, (0.5,) * 3), mask_sites=())
    task = Task(("a", "b", "c"), tuple("klmn"[:domains]))
    method = MetaReg(network, task, MetaReg.Config(name="metareg", **settings)).double()
    with torch.no_grad():
        for parameter in (*method.heads.parameters(), *method.coefficients):
            parameter.normal_()
    return method.train()


class Pair:
    """What domain a and domain b bring to one step of a method, worked out apart from it."""

    def __init__(self, method: MetaReg, batch: DomainBatch) -> None:
        """a is the domain whose head the meta-gradient depends on."""
        features = method.network.run(batch.images, until="fc").detach()
        self.a = next(a for a in range(batch.n_domains) if self._matters(method, batch, a))
        (self.b,) = {0, 1} - {self.a}
        self.features = [features[batch.domains == d] for d in range(2)]
        self.labels = [batch.labels[batch.domains == d] for d in range(2)]
        self.theta = [p.detach().clone() for p in method.heads[self.a].parameters()]
        self.phi = method.coefficients[0].detach().clone()

    @staticmethod
    def _matters(method: MetaReg, batch: DomainBatch, a: int) -> bool:
        features = method.network.run(batch.images, until="fc").detach()
        before, _ = method.meta_gradient(features, batch)
        with torch.no_grad():
            method.heads[a].fc.bias[0] += 1
        after, _ = method.meta_gradient(features, batch)
        with torch.no_grad():
            method.heads[a].fc.bias[0] -= 1
        return bool(before != after)

    def risk(self, domain: int, weight: Tensor, bias: Tensor) -> Tensor:
        scores = functional.linear(self.features[domain], weight, bias)
        return functional.cross_entropy(scores, self.labels[domain])

    def by_hand(self, domain: int, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Gradient of `risk`, written out: residualsᵀ features / n and mean residuals."""
        scores = functional.linear(self.features[domain], weight, bias)
        residuals = scores.softmax(dim=1) - functional.one_hot(self.labels[domain], 3)
        return residuals.T @ self.features[domain] / len(residuals), residuals.mean(dim=0)

    def outside(self, phi: Tensor, steps: int, lr: float) -> Tensor:
        """CE_b after `steps` regularised steps on a, as a function of φ."""
        weight, bias = self.theta
        for _ in range(steps):
            by_weight, by_bias = self.by_hand(self.a, weight, bias)
            weight, bias = weight - lr * (by_weight + phi * weight.sign()), bias - lr * by_bias
        return self.risk(self.b, weight, bias)


BALANCED = [0, 0, 0, 0, 1, 1, 1, 1]


def phi_gradient(method: MetaReg, batch: DomainBatch) -> Tensor:
    method.zero_grad()
    method.loss(batch, PHASE_1)["loss"].backward()
    (phi,) = method.coefficients
    assert phi.grad is not None
    return phi.grad.clone()


def test_one_inner_step_has_the_closed_form() -> None:
    """∂CE_b/∂φ = −α · sign(θ_a) · ∂CE_b/∂β at β = θ_a − α(∇CE_a + φ·sign(θ_a))."""
    method, batch = make(inner_steps=1, inner_lr=0.3), batch_of(BALANCED)
    pair = Pair(method, batch)
    weight, bias = pair.theta
    by_weight, by_bias = pair.by_hand(pair.a, weight, bias)
    beta = weight - 0.3 * (by_weight + pair.phi * weight.sign())
    by_beta, _ = pair.by_hand(pair.b, beta, bias - 0.3 * by_bias)
    torch.testing.assert_close(phi_gradient(method, batch), -0.3 * weight.sign() * by_beta)


@pytest.mark.parametrize("steps", [2, 4])
def test_several_inner_steps_are_differentiated_through(steps: int) -> None:
    """Against finite differences of an inner loop that is written out by hand."""
    method, batch = make(inner_steps=steps, inner_lr=0.3), batch_of(BALANCED)
    pair = Pair(method, batch)
    expected = torch.empty_like(pair.phi)
    for place in range(pair.phi.numel()):
        moved = torch.zeros(pair.phi.numel(), dtype=torch.float64)
        moved[place] = 1e-5
        moved = moved.view_as(pair.phi)
        values = [pair.outside(pair.phi + sign * moved, steps, 0.3) for sign in (1, -1)]
        expected.view(-1)[place] = (values[0] - values[1]) / 2e-5
    torch.testing.assert_close(phi_gradient(method, batch), expected, atol=1e-8, rtol=1e-5)
    value = method.loss(batch, PHASE_1)["meta"]
    torch.testing.assert_close(value, pair.outside(pair.phi, steps, 0.3))


def test_phase_1_trains_features_and_heads_without_the_regulariser() -> None:
    method, batch = make(), batch_of([0, 1, 0, 1])
    features = method.network.run(batch.images, until="fc")
    own = torch.stack([method.heads[d].fc(z) for d, z in zip([0, 1, 0, 1], features, strict=True)])
    task = functional.cross_entropy(own, batch.labels)
    trained = [*method.network.stage("body").parameters(), *method.heads.parameters()]
    expected = torch.autograd.grad(task, trained)
    losses = method.loss(batch, PHASE_1)
    torch.testing.assert_close(losses["loss"], task)
    losses["loss"].backward()
    torch.testing.assert_close([p.grad for p in trained], list(expected))


def test_both_roles_are_drawn_and_always_differ() -> None:
    """a's head matters and b's does not, step by step; in six steps each domain is a."""
    method = make()
    seen = set()
    for step in range(6):
        batch = batch_of(BALANCED, step=step)
        pair = Pair(method, batch)
        assert not pair._matters(method, batch, pair.b)
        seen.add(pair.a)
    assert seen == {0, 1}


def test_phase_2_adds_the_weighted_l1_norm_of_the_new_head() -> None:
    method, batch = make(), batch_of(BALANCED)
    head = method.network.stage("fc")
    (phi,) = method.coefficients
    task = functional.cross_entropy(method.network(batch.images), batch.labels)
    by_weight, by_bias = torch.autograd.grad(task, [head.weight, head.bias])
    losses = method.loss(batch, PHASE_2)
    torch.testing.assert_close(losses["loss"], task + (phi * head.weight.abs()).sum())
    losses["loss"].backward()
    torch.testing.assert_close(head.weight.grad, by_weight + phi * head.weight.sign())
    torch.testing.assert_close(head.bias.grad, by_bias)  # biases are not regularised


def test_coefficients_start_at_zero_and_biases_have_none() -> None:
    torch.manual_seed(0)
    network = Network(
        {"body": nn.Flatten(), "fc": nn.Linear(12, 3)},
        ImageInput(2, (0.5,) * 3, (0.5,) * 3),
        mask_sites=(),
    )
    method = MetaReg(network, Task(("a", "b", "c"), ("k", "l")), MetaReg.Config(name="metareg"))
    assert [phi.shape for phi in method.coefficients] == [(3, 12)]
    assert not method.coefficients[0].any()
    assert method.statistics()["regulariser"] == {"mean_strength": 0.0, "negative_share": 0.0}


def train(method: MetaReg, optimizer: torch.optim.Optimizer, numbers: range) -> None:
    for step in numbers:
        progress = Progress(step, 10)
        method.loss(batch_of(BALANCED, step=step), progress)["loss"].backward()
        method.edit_gradients(progress)
        optimizer.step()
        optimizer.zero_grad()


def with_optimizer(seed: int = 0) -> tuple[MetaReg, torch.optim.Optimizer]:
    method = make(seed=seed)
    return method, build_optimizer(method, OptimizerSettings(lr=1e-2, weight_decay=0.1))


def copies(parameters) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in parameters]


def test_each_phase_leaves_what_it_does_not_train_bit_for_bit() -> None:
    """Under Adam with weight decay, four steps of phase 1 and six of phase 2."""
    method, optimizer = with_optimizer()
    new_head = list(method.network.stage("fc").parameters())
    learned = [*method.heads.parameters(), *method.coefficients]
    head_at_start, learned_at_start = copies(new_head), copies(learned)
    train(method, optimizer, range(4))
    assert all(map(torch.equal, new_head, head_at_start))
    assert not any(map(torch.equal, learned, learned_at_start))
    learned_then = copies(learned)
    train(method, optimizer, range(4, 10))
    assert all(map(torch.equal, learned, learned_then))
    assert not any(map(torch.equal, new_head, head_at_start))


@pytest.mark.parametrize("pause", [3, 4, 7])
def test_a_checkpoint_carries_regulariser_heads_and_phase(pause: int, tmp_path: Path) -> None:
    """Saved before, at and after the change of phase; it goes on as if it had never stopped."""
    first, first_optimizer = with_optimizer()
    train(first, first_optimizer, range(pause))
    file = tmp_path / "checkpoint.safetensors"
    save_checkpoint(file, first, first_optimizer, Checkpoint(pause, 0, [], 0.0))
    second, second_optimizer = with_optimizer(seed=5)
    load_checkpoint(file, second, second_optimizer)
    assert second.preparing == (pause <= 4)
    images = batch_of(BALANCED).images
    assert torch.equal(first.predict(images), second.predict(images))
    train(first, first_optimizer, range(pause, 10))
    train(second, second_optimizer, range(pause, 10))
    assert all(torch.equal(t, second.state_dict()[n]) for n, t in first.state_dict().items())


def test_the_phase_decides_who_predicts() -> None:
    method, batch = make(), batch_of(BALANCED)
    for progress in (PHASE_1, PHASE_2, PHASE_1):
        method.loss(batch, progress)
        features = method.network.run(batch.images, until="fc")
        heads = (method.heads[0].fc(features) + method.heads[1].fc(features)) / 2
        expected = heads if progress == PHASE_1 else method.network(batch.images)
        torch.testing.assert_close(method.predict(batch.images), expected)
        torch.testing.assert_close(method.predict(batch.images, domain=1), expected)


def test_a_finished_model_needs_neither_heads_nor_coefficients(tmp_path: Path) -> None:
    method, optimizer = with_optimizer()
    train(method, optimizer, range(10))
    save_weights(tmp_path / "model.safetensors", method)
    fresh = make(seed=5)
    load_weights(tmp_path / "model.safetensors", fresh)
    images = batch_of(BALANCED).images
    assert torch.equal(fresh.predict(images), method.network(images))
    assert not torch.equal(fresh.coefficients[0], method.coefficients[0])


@pytest.mark.parametrize(("share", "steps", "first"), [(0.4, 10, 4), (0, 10, 0), (0.9, 3, 2)])
def test_meta_share_places_the_change_of_phase(share: float, steps: int, first: int) -> None:
    """And weights are a candidate once a step of phase 2 was made; there is always one."""
    method = make(meta_share=share)
    phases = []
    for step in range(steps):
        method.loss(batch_of(BALANCED), Progress(step, steps))
        phases.append(not method.preparing)
    assert phases == [step >= first for step in range(steps)]


@pytest.mark.parametrize("present", [0, 1])
def test_a_missing_domain_gives_finite_gradients(present: int) -> None:
    method, batch = make(), batch_of([present] * 4)
    assert phi_gradient(method, batch).isfinite().all()
    for head in method.heads:
        assert head.fc.weight.grad is not None
        assert head.fc.weight.grad.any() == (head is method.heads[present])


@pytest.mark.parametrize("first", [[0, 1, 4, 5], [0, 1, 2, 3]], ids=["shared", "one domain each"])
@pytest.mark.parametrize("progress", [PHASE_1, PHASE_2], ids=["phase 1", "phase 2"])
def test_two_devices_compute_what_one_does(
    first: list[int], progress: Progress, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, batch = make(inner_steps=3, inner_lr=0.3), batch_of(BALANCED)
    second = [place for place in range(8) if place not in first]
    halves = [rows(batch, first), rows(batch, second)]
    found = gradients_of_two(method, halves, progress, monkeypatch)
    torch.testing.assert_close(found, gradients_of_one(method, batch, progress))


def test_coefficients_have_their_own_rate_and_no_decay() -> None:
    method = make(meta_lr=0.5)
    group = method.parameter_groups()[0]
    assert group["params"] == list(method.coefficients)
    assert (group["lr"], group["weight_decay"]) == (0.5, 0.0)


def test_heads_are_as_new_as_the_classifier_they_are_copied_from() -> None:
    assert_new(make())
    network = make().network
    network.new_stages = ("fc",)
    method = MetaReg(network, TASK, MetaReg.Config(name="metareg"))
    assert_new(method, network.stage("fc"), *method.heads)


def test_one_domain_has_no_pair() -> None:
    with pytest.raises(SettingsError, match=r"or more, found one \(k\).*method.name=aggregate"):
        make(domains=1)
