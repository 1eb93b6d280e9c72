"""DMG's mathematics against cases worked by hand."""

import math

import pytest
import torch
from tests.methods.batches import assert_loss, batch_of, build, network_of
from torch import Tensor, nn

from unseen.data.randomness import uniform
from unseen.methods.base import Progress
from unseen.methods.dmg import DMG, DomainStatistics, soft_iou, straight_through
from unseen.networks.stages import Network

LN3 = math.log(3)  # σ(ln 3) = 3/4, σ(−ln 3) = 1/4
STEP = Progress(0, 1)


def make(domains: int = 2, **settings) -> DMG:
    """Flattens 3×2×2 images to 12 numbers, then two linear layers with a site before each."""
    torch.manual_seed(0)
    stages = {
        "flatten": nn.Flatten(),
        "fc1": nn.Sequential(nn.Linear(12, 4), nn.ReLU()),
        "dropout": nn.Dropout(0.5),
        "fc2": nn.Linear(4, 3),
    }
    network = network_of(stages, sites=("fc1", "fc2"))
    return build("dmg", network, domains=domains, **settings)


def test_soft_iou_is_equation_1() -> None:
    """Of the last pair (.25 + .125) / (.75 + .625); of two empty masks zero, with a gradient."""
    a = torch.tensor([[1.0, 1, 0], [1, 0, 0], [1, 1, 0], [0.5, 0.5, 0]])
    b = torch.tensor([[1.0, 1, 0], [0, 1, 0], [0, 1, 1], [0.5, 0.25, 0]])
    assert soft_iou(a, b).tolist() == pytest.approx([1, 0, 1 / 3, 0.375 / 1.375], abs=1e-6)
    nothing = torch.zeros(3, requires_grad=True)
    assert soft_iou(nothing, nothing) == 0
    assert torch.autograd.grad(soft_iou(nothing, nothing), nothing)[0].isfinite().all()


def test_straight_through_is_binary_with_the_gradient_of_the_probs() -> None:
    logits = torch.tensor([LN3, -LN3, 0.0], requires_grad=True)
    probs = logits.sigmoid()
    mask = straight_through(probs, torch.tensor([0.7, 0.3, 0.4]))
    assert mask.tolist() == [1.0, 0.0, 1.0]
    (mask * torch.tensor([2.0, 3.0, 5.0])).sum().backward()
    # dL/dlogit = activation gradient × m (1 − m)
    expected = torch.tensor([2 * 0.75 * 0.25, 3 * 0.25 * 0.75, 5 * 0.25])
    torch.testing.assert_close(logits.grad, expected)


def test_each_image_is_masked_by_its_own_domain() -> None:
    """Domain 0 keeps everything, domain 1 nothing: only domain 1 sees constant scores."""
    method = make(start_kept=0.5, overlap_weight=0.0)
    with torch.no_grad():
        for logits in method.logits:
            logits[0], logits[1] = 50.0, -50.0
    batch = batch_of([0, 1, 0, 1])
    losses = method.loss(batch, STEP)
    scores = method.network(batch.images)
    scores[1::2] = method.network.stage("fc2").bias
    expected = nn.functional.cross_entropy(scores, batch.labels)
    torch.testing.assert_close(losses["loss"], expected)


@pytest.mark.parametrize(("pairs", "expected"), [("mean", 2 * 0.6), ("sum", 3 * 2 * 0.6)])
def test_overlap_adds_sites_and_averages_or_sums_pairs(pairs: str, expected: float) -> None:
    """All probs 3/4: sIoU = (9/16) / (3/2 − 9/16) = 0.6 for each of 3 pairs at 2 sites. Sparsity is
    the sum of all probs."""
    weights = {"overlap_weight": 1.0, "sparsity_weight": 0.1}
    method = make(domains=3, start_kept=0.75, overlap_pairs=pairs, **weights)
    losses = method.loss(batch_of([0, 1, 2], 3), STEP)
    assert losses["overlap"].item() == pytest.approx(expected, abs=1e-5)
    added = expected + 0.1 * 3 * (12 + 4) * 0.75
    assert (losses["loss"] - losses["task"]).item() == pytest.approx(added, abs=1e-4)


def by_hand(method: DMG, images: Tensor, masks: list[Tensor]) -> Tensor:
    hidden = images.flatten(1) * masks[0]
    hidden = method.network.stage("fc1")(hidden) * masks[1]
    return method.network.stage("fc2")(hidden)


def test_prediction_scales_by_each_domain_and_averages_the_scores() -> None:
    method = make(prediction="soft").eval()
    images = batch_of([0, 1]).images
    soft = [[logits[d].sigmoid() for logits in method.logits] for d in range(2)]
    each = [by_hand(method, images, masks) for masks in soft]
    torch.testing.assert_close(method.predict(images), (each[0] + each[1]) / 2)
    torch.testing.assert_close(method.predict(images, domain=1), each[1])


def test_gates_per_channel_and_per_unit() -> None:
    torch.manual_seed(0)
    stages = {"conv": nn.Conv2d(3, 5, 1), "last": nn.Sequential(nn.Flatten(), nn.Linear(20, 3))}
    network = network_of(stages, sites=("last",))
    images = batch_of([0, 1]).images
    for gates, width in (("channel", 5), ("unit", 20)):
        method = build("dmg", network, gates=gates).eval()
        assert method.logits[0].shape == (2, width)
        mask = method.logits[0][1].sigmoid()
        mask = mask.view(5, 1, 1) if gates == "channel" else mask.view(5, 2, 2)
        expected = network.stage("last")(network.stage("conv")(images) * mask)
        torch.testing.assert_close(method.predict(images, domain=1), expected)


def test_dropout_is_off_and_logits_start_as_told() -> None:
    method = make()
    assert method.network.stage("dropout").p == 0.0
    for logits in method.logits:
        assert 0 <= logits.min() < 0.2 < 0.8 < logits.max() < 1
    for probs in make(start_kept=0.95).probs().values():
        torch.testing.assert_close(probs, torch.full_like(probs, 0.95))


def test_the_weight_of_the_overlap_rises_over_its_share_of_the_run() -> None:
    """Half of ten steps: a fifth at the first step, all of it from the fifth on."""
    method = make(start_kept=0.75, overlap_weight=2.0, overlap_ramp=0.5)
    found = []
    for step in (0, 2, 4, 9):
        losses = method.loss(batch_of([0, 1]), Progress(step, 10))
        found.append(((losses["loss"] - losses["task"]) / losses["overlap"]).item())
    assert found == pytest.approx([2 * 0.2, 2 * 0.6, 2.0, 2.0], abs=1e-5)
    always = make(start_kept=0.75, overlap_weight=2.0).loss(batch_of([0, 1]), Progress(0, 10))
    torch.testing.assert_close(always["loss"] - always["task"], 2 * always["overlap"])


def test_a_mask_shared_by_all_domains_learns_from_all_and_has_no_overlap() -> None:
    method, batch = make(domains=3, masks="shared", overlap_weight=1.0), batch_of([0, 1, 2], 3)
    losses = method.loss(batch, STEP)
    masks = [
        straight_through(logits.sigmoid(), uniform(batch.keys, logits.shape[1], stream))
        for stream, logits in enumerate(method.logits, 1)
    ]
    expected = nn.functional.cross_entropy(by_hand(method, batch.images, masks), batch.labels)
    assert_loss(losses["loss"], expected, method)
    one = by_hand(method, batch.images, [logits[0].sigmoid() for logits in method.logits])
    for domain in (None, 2):
        torch.testing.assert_close(method.predict(batch.images, domain), one)


@pytest.mark.parametrize(("settings", "kept"), [({"start_kept": 0.9}, 0.9), ({}, 0.62)])
def test_dropout_keeps_its_probability_for_good(settings: dict[str, float], kept: float) -> None:
    method, images = make(masks="dropout", **settings), batch_of([0, 1]).images
    assert not any(logits.requires_grad for logits in method.logits)
    losses = method.loss(batch_of([0, 1]), STEP)
    assert losses["kept"].item() == pytest.approx(kept, abs=1e-3)
    assert losses["loss"] == losses["task"]
    scaled = by_hand(method, images, [losses["kept"].expand(width) for width in (12, 4)])
    torch.testing.assert_close(method.predict(images), scaled)


def convolution() -> Network:
    """One channel of 2×2 positions at the site `last`."""
    torch.manual_seed(0)
    stages = {"conv": nn.Conv2d(3, 1, 1), "last": nn.Sequential(nn.Flatten(), nn.Linear(4, 3))}
    return network_of(stages, sites=("last",))


def positions(*images: list[float]) -> Tensor:
    return torch.tensor(images).view(-1, 1, 2, 2)


def test_weights_by_the_distance_of_statistics() -> None:
    """Domain 0 has μ 2 and σ 1, domain 1 μ 4 and σ 0. An image of μ 2 and σ 0 is at a distance of 1
    from the first and 4 from the second: weights 4/5 and 1/5."""
    kept = DomainStatistics(convolution(), "last", 2)
    first, second = [1.0, 1.0, 3.0, 3.0], [4.0] * 4
    kept.observe(positions(first, second, second), torch.tensor([0, 1, 1]))
    image = positions([2.0] * 4)
    torch.testing.assert_close(kept.closeness(image), torch.tensor([[0.8], [0.2]]))
    torch.testing.assert_close(kept.closeness(positions(second)), torch.tensor([[0.0], [1.0]]))
    # a second step sees domain 0 alone: μ 5, σ 0
    kept.observe(positions([5.0] * 4), torch.tensor([0]))
    mean, deviation = (0.99 * 2 + 5) / 1.99, 0.99 * 1 / 1.99
    inverse = [1 / ((mean - 2) ** 2 + deviation**2), 1 / 4]
    expected = torch.tensor([[each / sum(inverse)] for each in inverse])
    torch.testing.assert_close(kept.closeness(image), expected)


def test_statistics_of_tokens_and_of_flat_features() -> None:
    stages = {"tokens": nn.Flatten(2), "flat": nn.Flatten(), "last": nn.Linear(12, 3)}
    network = network_of(stages, sites=("last",))
    tokens = torch.tensor([[[1.0, 5.0, 0.0, 0.0], [3.0, 5.0, 0.0, 0.0], [2.0, 5.0, 0.0, 3.0]]])
    found = DomainStatistics(network, "flat", 2).of_images(tokens)
    third = math.sqrt(2 / 3)
    torch.testing.assert_close(
        found, torch.tensor([[[2.0, 5.0, 0.0, 1.0], [third, 0.0, 0.0, math.sqrt(2)]]])
    )
    flat = DomainStatistics(network, "last", 2).of_images(torch.arange(24.0).view(2, 12))
    torch.testing.assert_close(flat[:, 0], torch.arange(24.0).view(2, 12))
    assert (flat[:, 1] == 0).all()


def test_routed_prediction_mixes_weights_with_uniform_ones() -> None:
    def on_maps(**settings) -> DMG:
        return build("dmg", convolution(), **settings).eval()

    batch = batch_of([0, 1, 0, 1])
    routed = on_maps(prediction="routed", uniform_share=0.25)
    routed.loss(batch, STEP)
    site = routed.network.run(batch.images, until="last")
    own = torch.stack([site.flatten(1).mean(1), site.flatten(1).std(1, correction=0)], 1)
    domains = torch.stack([own[0::2].mean(0), own[1::2].mean(0)])
    inverse = 1 / (own[None] - domains[:, None]).square().sum(-1)
    weights = 0.75 * inverse / inverse.sum(0) + 0.25 / 2
    opinions = torch.stack([routed.predict(batch.images, domain) for domain in (0, 1)])
    expected = (weights[..., None] * opinions).sum(0)
    torch.testing.assert_close(routed.predict(batch.images), expected)
    assert not torch.allclose(expected, opinions.mean(0))
    soft = on_maps()
    torch.testing.assert_close(opinions, soft.opinions(batch.images))
    uniform_ones = on_maps(prediction="routed", uniform_share=1.0)
    torch.testing.assert_close(uniform_ones.predict(batch.images), soft.predict(batch.images))
    with pytest.raises(ValueError, match="prediction=soft"):
        on_maps(prediction="routed", masks="shared")


def test_statistics_and_masks_by_name() -> None:
    method = make()
    probs = torch.tensor([[0.9, 0.9, 0.1, 0.1], [0.9, 0.1, 0.9, 0.1]])
    with torch.no_grad():
        method.logits[1].copy_(probs.logit())
    found = method.statistics()["fc2"]
    assert found["kept"]["k"] == {"soft": pytest.approx(0.5), "hard": 0.5}
    shared = 0.81 + 0.09 + 0.09 + 0.01
    assert found["iou"]["k|l"] == pytest.approx({"hard": 1 / 3, "soft": shared / (4 - shared)})
    assert list(method.arrays()) == ["mask.fc1", "mask.fc2"]
    assert method.arrays()["mask.fc2"] == pytest.approx(probs.numpy())


def test_masks_have_their_own_rate_and_decay() -> None:
    group, _ = make(mask_lr=0.01, mask_weight_decay=0.5).parameter_groups()
    assert (group["lr"], group["weight_decay"], len(group["params"])) == (0.01, 0.5, 2)
    group, _ = make().parameter_groups()
    assert (group["lr"], group["weight_decay"]) == (None, None)
