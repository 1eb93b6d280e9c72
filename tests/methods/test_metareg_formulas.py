"""MetaReg's mathematics against closed forms and an independent computation, and its phases."""

import copy
from functools import partial

import pytest
import torch
from tests.methods import batches
from tests.methods.batches import assert_loss, build, network_of
from torch import Tensor, nn
from torch.nn import functional

from unseen.data.batch import DomainBatch
from unseen.methods.base import Progress
from unseen.methods.metareg import MetaReg

PHASE_1, PHASE_2 = Progress(3, 10), Progress(4, 10)
batch_of = partial(batches.batch_of, dtype=torch.float64)


def make(**settings) -> MetaReg:
    """Flattened 3×2×2 images, five features, three classes; heads and φ drawn at random."""
    torch.manual_seed(0)
    stages = {"body": nn.Sequential(nn.Flatten(), nn.Linear(12, 5)), "fc": nn.Linear(5, 3)}
    method = build("metareg", network_of(stages), **settings).double()
    with torch.no_grad():
        for parameter in (*method.heads.parameters(), *method.coefficients):
            parameter.normal_()
    return method


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
        features, other = method.network.run(batch.images, until="fc"), copy.deepcopy(method)
        with torch.no_grad():
            other.heads[a].fc.bias[0] += 1
        before, after = (
            each.meta_gradient(features.detach(), batch)[0] for each in (method, other)
        )
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
    (phi,) = method.coefficients
    return torch.autograd.grad(method.loss(batch, PHASE_1)["loss"], phi)[0]


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
        moved = torch.zeros_like(pair.phi)
        moved.view(-1)[place] = 1e-5
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
    loss = method.loss(batch, PHASE_1)["loss"]
    for part in (method.network.stage("body"), method.heads):
        assert_loss(loss, task, part)


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
    (phi,) = method.coefficients  # biases are not regularised
    task = functional.cross_entropy(method.network(batch.images), batch.labels)
    expected = task + (phi.detach() * method.network.stage("fc").weight.abs()).sum()
    assert_loss(method.loss(batch, PHASE_2)["loss"], expected, method.network)


def test_the_phase_decides_who_predicts() -> None:
    method, batch = make(), batch_of(BALANCED)
    for progress in (PHASE_1, PHASE_2, PHASE_1):
        method.loss(batch, progress)
        features = method.network.run(batch.images, until="fc")
        heads = (method.heads[0].fc(features) + method.heads[1].fc(features)) / 2
        expected = heads if progress == PHASE_1 else method.network(batch.images)
        torch.testing.assert_close(method.predict(batch.images), expected)
        torch.testing.assert_close(method.predict(batch.images, domain=1), expected)


@pytest.mark.parametrize(("share", "steps", "first"), [(0.4, 10, 4), (0, 10, 0), (0.9, 3, 2)])
def test_meta_share_places_the_change_of_phase(share: float, steps: int, first: int) -> None:
    assert make(meta_share=share).boundary(steps) == first


def test_coefficients_have_their_own_rate_and_no_decay() -> None:
    method = make(meta_lr=0.5)
    group = method.parameter_groups()[0]
    assert group["params"] == list(method.coefficients)
    assert (group["lr"], group["weight_decay"]) == (0.5, 0.0)
