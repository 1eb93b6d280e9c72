"""MLDG's mathematics against closed forms, autograd and finite differences."""

from functools import partial

import pytest
import torch
from tests.methods import batches
from tests.methods.batches import build
from tests.methods.side_by_side import rows
from torch import Tensor, nn
from torch.nn import functional

from unseen.data.batch import DomainBatch
from unseen.errors import SettingsError
from unseen.methods.base import Progress
from unseen.methods.mldg import MLDG
from unseen.networks.stages import Network

START = Progress(0, 10)
batch_of = partial(batches.batch_of, dtype=torch.float64)
make = partial(build, "mldg")


def network_of(*stages: nn.Module) -> Network:
    return batches.network_of({f"stage{number}": stage for number, stage in enumerate(stages)})


def linear() -> Network:
    torch.manual_seed(0)
    return network_of(nn.Flatten(), nn.Linear(12, 3, bias=False)).double()


def deep() -> Network:
    torch.manual_seed(0)
    return network_of(nn.Flatten(), nn.Sequential(nn.Linear(12, 5), nn.Tanh()), nn.Linear(5, 3))


def parts(method: MLDG, batch: DomainBatch) -> tuple[DomainBatch, DomainBatch]:
    """Meta-train and meta-test images of the step, as the method draws them."""
    tested = method._meta_test(batch).tolist()
    return (
        rows(batch, [place for place, test in enumerate(tested) if not test]),
        rows(batch, [place for place, test in enumerate(tested) if test]),
    )


def risk(weight: Tensor, batch: DomainBatch) -> Tensor:
    """Cross-entropy of the linear network."""
    return functional.cross_entropy(batch.images.flatten(1) @ weight.T, batch.labels)


def gradient_of(method: MLDG, batch: DomainBatch) -> Tensor:
    """By all weights of the method's network, in one row."""
    found = torch.autograd.grad(method.loss(batch, START)["loss"], list(method.parameters()))
    return torch.cat([gradient.flatten() for gradient in found])


@pytest.mark.parametrize("second_order", [True, False])
def test_the_gradient_has_the_hessian_term_in_second_order_only(second_order: bool) -> None:
    """∇F + β (I − α H_F) ∇G(θ'), with the closed form H_F = mean (diag p − p pᵀ) ⊗ z zᵀ."""
    alpha, beta = 0.7, 0.3
    method = make(linear(), inner_lr=alpha, meta_weight=beta, second_order=second_order)
    batch = batch_of([0, 0, 0, 1, 1, 1])
    train, test = parts(method, batch)
    (weight,) = (p.detach() for p in method.parameters())
    by_train = torch.func.grad(risk)(weight, train)
    by_test = torch.func.grad(risk)(weight - alpha * by_train, test).flatten()
    hessian = torch.zeros(36, 36, dtype=torch.float64)
    for image in train.images.flatten(1):
        p = (image @ weight.T).softmax(dim=0)
        hessian += torch.kron(p.diag() - p.outer(p), image.outer(image)) / len(train.images)
    through = by_test - alpha * hessian @ by_test if second_order else by_test
    assert (alpha * hessian @ by_test).norm() > 0.1 * by_test.norm()  # or nothing is tested
    torch.testing.assert_close(gradient_of(method, batch), by_train.flatten() + beta * through)


def test_the_loss_is_f_plus_beta_times_g_after_the_step() -> None:
    method = make(linear(), inner_lr=0.7, meta_weight=0.3)
    batch = batch_of([0, 0, 0, 1, 1])
    train, test = parts(method, batch)
    (weight,) = (p.detach() for p in method.parameters())
    moved = weight - 0.7 * torch.func.grad(risk)(weight, train)
    losses = method.loss(batch, START)
    torch.testing.assert_close(losses["meta_train"], risk(weight, train))
    torch.testing.assert_close(losses["meta_test"], risk(moved, test))
    torch.testing.assert_close(losses["loss"], risk(weight, train) + 0.3 * risk(moved, test))


def test_second_order_agrees_with_finite_differences_of_the_whole_loss() -> None:
    method = make(deep().double(), domains=3, inner_lr=0.5, meta_weight=2.0)
    batch = batch_of([0, 0, 1, 1, 2, 2], 3)
    expected = gradient_of(method, batch)
    vector = torch.cat([p.detach().flatten() for p in method.parameters()])
    step = 1e-5
    found = torch.empty_like(vector)
    for place in range(len(vector)):
        values = []
        for sign in (1, -1):
            moved = vector.clone()
            moved[place] += sign * step
            nn.utils.vector_to_parameters(moved, list(method.parameters()))
            values.append(method.loss(batch, START)["loss"].item())
        found[place] = (values[0] - values[1]) / (2 * step)
    torch.testing.assert_close(found, expected, atol=1e-7, rtol=1e-5)


def test_the_meta_test_domains_change_from_step_to_step_and_are_as_many_as_told() -> None:
    drawn = set()
    for number, domains in ((1, 3), (2, 3)):
        method = make(deep(), domains=domains, meta_test_domains=number)
        for step in range(40):
            tested = method._meta_test(batch_of([0, 1, 2, 0], 3, step)).tolist()
            assert sum(tested[:3]) == number
            assert tested[3] == tested[0]
            drawn.add(tuple(tested[:3]))
    assert len(drawn) == 6  # each single domain, and each pair


@pytest.mark.parametrize("present", [0, 1])
def test_a_batch_of_one_domain_still_trains(present: int) -> None:
    """Meta-train alone gives ∇F; meta-test alone gives β∇G, because there is no step to take."""
    method = make(linear(), inner_lr=0.7, meta_weight=0.3)
    batch = batch_of([present] * 3)
    (weight,) = (p.detach() for p in method.parameters())
    factor = 0.3 if method._meta_test(batch).all() else 1.0
    expected = factor * torch.func.grad(risk)(weight, batch).flatten()
    torch.testing.assert_close(gradient_of(method, batch), expected)


def test_attention_can_be_differentiated_twice() -> None:
    """The fused kernel that torch would take by itself has no second derivative."""

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project = nn.Linear(4, 12)

        def forward(self, images: Tensor) -> Tensor:
            query, key, value = self.project(images.flatten(2)).unsqueeze(1).chunk(3, dim=-1)
            return functional.scaled_dot_product_attention(query, key, value).flatten(1)

    torch.manual_seed(0)
    method = make(network_of(Attention(), nn.Linear(12, 3)).float())
    batch = batch_of([0, 0, 1, 1])
    gradient = gradient_of(method, batch._replace(images=batch.images.float()))
    assert gradient.isfinite().all()


def test_a_domain_has_to_be_left_for_meta_train() -> None:
    with pytest.raises(SettingsError, match=r"none of the 3 training domains.*at most 2"):
        make(deep(), domains=3, meta_test_domains=3)
