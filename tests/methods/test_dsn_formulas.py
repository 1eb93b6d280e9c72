"""DSN's mathematics against cases worked by hand and against autograd."""

import math
from itertools import combinations
from typing import Any

import pytest
import torch
from tests.methods import batches
from tests.methods.batches import build, gradients, largest, network_of
from torch import Tensor, nn
from torch.nn import functional

from unseen.data.batch import DomainBatch
from unseen.methods.base import Progress, kernel_discrepancies
from unseen.methods.dsn import BANDWIDTHS, DSN, difference_loss, mmd_loss, reconstruction_loss

LATE = Progress(9, 10)


def make(target: str | None = None, **settings: Any) -> DSN:
    torch.manual_seed(0)
    features = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 6), nn.Tanh(), nn.BatchNorm1d(6))
    network = network_of({"features": features, "fc": nn.Linear(6, 3)}, size=8)
    return build("dsn", network, domains=3, target=target, discriminator_width=8, **settings)


def batch_of(n_target: int = 4) -> DomainBatch:
    return batches.batch_of([0, 0, 0, 1, 1, 1, 2, 2, 2], 3, size=8, n_target=n_target)


def discrepancy(a: Tensor, b: Tensor, bandwidths: tuple[float, ...]) -> Tensor:
    groups = torch.tensor([0] * len(a) + [1] * len(b))
    gammas = [1 / (2 * bandwidth) for bandwidth in bandwidths]
    member = functional.one_hot(groups).to(a)
    return kernel_discrepancies(torch.cat([a, b]), member, gammas)[0, 1]


def test_reconstruction_by_hand() -> None:
    """Errors 1, 2, 3, 6: 50 / 4 − 12² / 16 = 3.5; errors 0, 0, 2, 2: 8 / 4 − 4² / 16 = 1."""
    images = torch.tensor([[[[1.0, 2.0], [3.0, 6.0]]], [[[0.0, 0.0], [2.0, 2.0]]]])
    value = reconstruction_loss(images, torch.zeros(2, 1, 2, 2))
    assert value.item() == pytest.approx((3.5 + 1.0) / 2)


def test_difference_by_hand() -> None:
    """Shared rows (3, 0), (1, 0) less their mean are (±1, 0). Private rows (0, 5), (6, −3) less
    their mean are (−3, 4), (3, −4), of length one ∓(.6, −.8). H_cᵀ H_p = ((−1.2, 1.6), (0, 0)), and
    the mean of its squares is (1.44 + 2.56) / 4 = 1."""
    shared = torch.tensor([[3.0, 0.0], [1.0, 0.0]])
    private = torch.tensor([[0.0, 5.0], [6.0, -3.0]])
    groups = torch.zeros(2, dtype=torch.int64)
    assert difference_loss(shared, private, groups).item() == pytest.approx(1.0, abs=1e-6)


def test_difference_is_zero_for_orthogonal_codes_and_a_mean_over_groups() -> None:
    """Columns ±1 over the images: (1, 1, −1, −1) against (1, −1, 1, −1), or against itself."""
    ones, turns = torch.tensor([[1.0, 1.0, -1.0, -1.0], [1.0, -1.0, 1.0, -1.0]])[:, :, None]
    groups = torch.tensor([0] * 4 + [2] * 4)
    for first, second, expected in ((turns, turns, 0), (ones, ones, 16), (turns, ones, 8)):
        found = difference_loss(torch.cat([ones, ones]), torch.cat([first, second]), groups)
        assert found.item() == pytest.approx(expected, abs=1e-10)


def test_difference_of_a_single_or_constant_row_is_zero_with_finite_gradient() -> None:
    shared = torch.ones(3, 2, requires_grad=True)
    value = difference_loss(shared, torch.ones(3, 2), torch.tensor([0, 0, 1]))
    assert value.item() == 0
    assert torch.autograd.grad(value, shared)[0].isfinite().all()


def test_discrepancy_by_hand_for_two_kernels() -> None:
    """Points 0 and 2 against 1, with exp(−d² / 2b): k(a, a) = (1 + e^(−4/2b)) / 2, k(b, b) = 1,
    k(a, b) = e^(−1/2b). The authors have 19 bandwidths b from 10⁻⁶ to 10⁶."""
    expected = (1 + math.exp(-2)) / 2 + 1 - 2 * math.exp(-0.5)
    expected += (1 + math.exp(-0.2)) / 2 + 1 - 2 * math.exp(-0.05)
    found = discrepancy(torch.tensor([[0.0], [2.0]]), torch.tensor([[1.0]]), (1.0, 10.0))
    assert found.item() == pytest.approx(expected, abs=1e-6)
    assert (len(BANDWIDTHS), min(BANDWIDTHS), max(BANDWIDTHS)) == (19, 1e-6, 1e6)


def test_mmd_is_the_mean_over_pairs() -> None:
    generator = torch.Generator().manual_seed(0)
    codes = torch.randn(9, 2, generator=generator) + torch.arange(3).repeat(3)[:, None]
    groups = torch.arange(3).repeat(3)
    by_group = [codes[groups == group] for group in range(3)]
    pairs = [discrepancy(*pair, BANDWIDTHS) for pair in combinations(by_group, 2)]
    torch.testing.assert_close(mmd_loss(codes, groups, 3), torch.stack(pairs).mean())


def test_mmd_has_a_floor_and_needs_a_pair() -> None:
    codes = torch.randn(4, 2, generator=torch.Generator().manual_seed(0))
    twice = torch.cat([codes, codes]).requires_grad_()
    value = mmd_loss(twice, torch.tensor([0] * 4 + [1] * 4), 2)
    assert value.item() == pytest.approx(1e-4)
    assert not torch.autograd.grad(value, twice)[0].any()
    assert mmd_loss(codes, torch.zeros(4, dtype=torch.int64), 2).item() == 0


def parts(method: DSN, batch: DomainBatch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Task loss, shared codes, private codes and groups, put together image by image."""
    images, groups = batch.images, batch.domains
    if method.task.target is not None:
        images = torch.cat([images, batch.target])
        groups = torch.tensor([0] * len(batch.images) + [1] * len(batch.target))
    shared = method.network.run(images, until="fc")
    scores = method.network.run(shared, since="fc")[: len(batch.labels)]
    private = torch.cat(
        [method.private_encoders[g](image[None]) for g, image in zip(groups, images, strict=True)]
    )
    return functional.cross_entropy(scores, batch.labels), shared, private, groups


@pytest.mark.parametrize("target", [None, "t"])
@pytest.mark.parametrize("similarity", ["adversarial", "mmd"])
def test_the_loss_is_equation_1_and_its_gradient_too(target: str | None, similarity: str) -> None:
    """The discriminator's loss falls for itself, and rises for the shared encoder."""
    weights = {"reconstruction_weight": 0.5, "difference_weight": 0.7, "similarity_weight": 0.3}
    method = make(target, similarity=similarity, warm_up=0.0, schedule_steepness=2.0, **weights)
    batch = batch_of()
    task_loss, shared, private, groups = parts(method, batch)
    images = torch.cat([batch.images, batch.target]) if target else batch.images
    reconstruction = reconstruction_loss(images, method.decoder(shared + private))
    difference = difference_loss(shared, private, groups)
    strength = -1.0
    if similarity == "mmd":
        likeness = mmd_loss(shared, groups, len(method.private_encoders))
    else:
        guesses = method.discriminator(shared)
        each = functional.cross_entropy(guesses, groups, reduction="none")
        likeness = torch.stack([each[groups == g].mean() for g in groups.unique()]).mean()
        strength = 2 / (1 + math.exp(-2 * 0.9)) - 1

    losses = method.loss(batch, LATE)
    for name, value in {
        "task": task_loss,
        "reconstruction": reconstruction,
        "difference": difference,
        "similarity": likeness,
        "loss": task_loss + 0.5 * reconstruction + 0.7 * difference + 0.3 * likeness,
    }.items():
        torch.testing.assert_close(losses[name], value, atol=1e-6, rtol=1e-5)
    friendly = task_loss + 0.5 * reconstruction + 0.7 * difference
    for module, weight in (
        (method.network, -0.3 * strength),
        (method.private_encoders, 0.3),
        (method.decoder, 0.3),
        (method.discriminator, 0.3),
    ):
        theirs = gradients(likeness, module)
        pairs = zip(gradients(friendly, module), theirs, strict=True)
        expected = [ours + weight * its for ours, its in pairs]
        torch.testing.assert_close(
            gradients(losses["loss"], module), expected, atol=1e-6, rtol=1e-4
        )
    shared_layers = method.network.stage("features")
    for term in (task_loss, reconstruction, difference, likeness):
        assert largest(gradients(term, shared_layers)) > 1e-5  # none of them is idle
    for term in (reconstruction, difference):
        assert largest(gradients(term, method.private_encoders)) > 1e-5


@pytest.mark.parametrize("similarity", ["adversarial", "mmd"])
def test_the_warm_up_leaves_codes_alone(similarity: str) -> None:
    """Before its end the shared encoder sees task and reconstruction only; the discriminator, which
    is to be of use afterwards, learns from the first step on."""
    method = make(warm_up=0.5, similarity=similarity, difference_weight=9.0, similarity_weight=9.0)
    batch = batch_of()
    task_loss, shared, private, _ = parts(method, batch)
    rebuilt = method.decoder(shared + private)
    plain = task_loss + 0.01 * reconstruction_loss(batch.images, rebuilt)
    expected = gradients(plain, method.network)
    loss = method.loss(batch, Progress(4, 10))["loss"]
    found = gradients(loss, method.network)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)
    if similarity == "adversarial":
        assert largest(gradients(loss, method.discriminator)) > 1e-3
    after = gradients(method.loss(batch, Progress(6, 10))["loss"], method.network)
    assert largest([a - b for a, b in zip(after, expected, strict=True)]) > 1e-3


@pytest.mark.parametrize(("wanted", "size"), [(8, 8), (11, 11), (12, 12), (32, 20)])
def test_images_are_rebuilt_at_the_wanted_size_but_no_larger(wanted: int, size: int) -> None:
    stages = {"flatten": nn.Flatten(), "fc": nn.Linear(3 * 20 * 20, 3)}
    method = build("dsn", network_of(stages, size=20), domains=3, reconstruction_size=wanted)
    seen = []
    method.private_encoders[0].register_forward_hook(lambda _, x, __: seen.append(x[0].shape[2:]))
    method.decoder.register_forward_hook(lambda _, __, image: seen.append(image.shape[1:]))
    images = functional.interpolate(batch_of().images, size=20)
    assert method.loss(batch_of()._replace(images=images), LATE)["loss"].isfinite()
    assert seen == [(size, size), (3, size, size)]
