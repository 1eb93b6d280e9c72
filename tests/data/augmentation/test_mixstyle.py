"""MixStyle: statistics mixed by hand, partners of other domains, the same on shared batches."""

import pytest
import torch
from torch import Tensor

from unseen.data.batch import DomainBatch
from unseen.data.randomness import image_keys, step_key, uniform
from unseen.data.styles import Change, nth_allowed, statistics, style_changes, symmetric_beta
from unseen.settings.experiment import AugmentSettings

N = 12
ALWAYS = AugmentSettings(mixstyle=1.0, mixstyle_stages=("conv2",), mixstyle_alpha=1.0)


def batch(places: Tensor, domains: Tensor | None = None) -> DomainBatch:
    domains = places % 3 if domains is None else domains
    nothing = torch.zeros(len(places))
    keys = image_keys(0, 0, places)
    return DomainBatch(nothing, places, domains, keys, 3, places, step_key(0, 0))


def activations(n: int = N) -> Tensor:
    return torch.randn(n, 4, 5, 5, generator=torch.Generator().manual_seed(0)) * 3 + 1


def change(given: DomainBatch, settings: AugmentSettings = ALWAYS) -> Change:
    return style_changes(settings, given, lambda rows: rows)["conv2"]


def test_an_image_keeps_its_shape_and_takes_statistics_between_its_own_and_a_partners() -> None:
    x = activations()
    mixed = change(batch(torch.arange(N)))(x, None)
    before, after = statistics(x), statistics(mixed)
    own = (x - before[:, 0, :, None, None]) / before[:, 1, :, None, None]
    torch.testing.assert_close(
        mixed, own * after[:, 1, :, None, None] + after[:, 0, :, None, None], atol=1e-3, rtol=1e-3
    )
    for i in range(N):  # one share for means and deviations of all channels, of one other image
        shares = [
            ((after[i] - before[j]) / (before[i] - before[j])).flatten()
            for j in range(N)
            if j % 3 != i % 3
        ]
        fitting = [s for s in shares if s.std() < 1e-2]
        assert len(fitting) == 1
        assert -0.01 <= fitting[0].mean() <= 1.01


def test_gradients_pass_and_statistics_are_constants() -> None:
    x = activations().requires_grad_()
    mixed = change(batch(torch.arange(N)))(x, None)
    (gradient,) = torch.autograd.grad(mixed.sum(), x)
    scale = statistics(mixed)[:, 1] / statistics(x)[:, 1]
    torch.testing.assert_close(gradient, scale[:, :, None, None].expand_as(x), atol=1e-3, rtol=1e-3)


def test_the_chance_leaves_images_exactly_as_they_are() -> None:
    settings = AugmentSettings(mixstyle=0.5, mixstyle_stages=("conv2",))
    x = activations(200)
    mixed = change(batch(torch.arange(200)), settings)(x, None)
    same = (mixed == x).flatten(1).all(dim=1)
    assert 0.4 < same.float().mean() < 0.6


@pytest.mark.parametrize("parts", [2, 4])
def test_devices_that_share_a_batch_mix_as_one_does(parts: int) -> None:
    """Each sees the statistics of all rows; which device has which rows makes no difference."""
    places, x = torch.arange(N), activations()
    whole = change(batch(places))(x, None)
    shares = [batch(places[rank::parts]) for rank in range(parts)]
    rows = torch.cat([share.positions for share in shares])
    everything = {"table": statistics(x)[rows], "here": torch.ones(N)}

    def gather_for(share: DomainBatch) -> Change:
        def gather(values: Tensor) -> Tensor:
            if values.dtype == torch.int64 and values.equal(share.keys):
                return torch.cat([each.keys for each in shares])
            if values.dtype == torch.int64 and values.equal(share.domains):
                return torch.cat([each.domains for each in shares])
            if values.dtype == torch.int64:
                return everything["here"].long()
            return everything["table"]

        return style_changes(ALWAYS, share, gather)["conv2"]

    for share in shares:
        found = gather_for(share)(x[share.positions], None)
        torch.testing.assert_close(found, whole[share.positions])


def test_a_part_of_the_batch_mixes_with_itself_and_target_images_stay() -> None:
    """A method may run its network on some domains only, or on target images behind the batch."""
    given, x = batch(torch.arange(N)), activations()
    part = given.domains != 0
    alone = change(given)(x[part], part)
    outside = x.clone()
    outside[~part] = 1e6  # would show if it were a partner
    assert torch.equal(change(given)(outside[part], part), alone)
    assert torch.equal(change(given)(x[part], part.nonzero().squeeze(1)), alone)
    longer = torch.cat([x, x[:2] + 7])
    mixed = change(given)(longer, None)
    assert torch.equal(mixed[N:], longer[N:])
    torch.testing.assert_close(mixed[:N], change(given)(x, None))


def test_a_single_domain_mixes_among_its_own() -> None:
    x = activations()
    mixed = change(batch(torch.arange(N), torch.zeros(N, dtype=torch.int64)))(x, None)
    assert mixed.isfinite().all()
    assert not torch.equal(mixed, x)


def test_every_allowed_image_is_chosen_alike() -> None:
    allowed = torch.tensor([[False, True, True, False, True]]).expand(3000, -1)
    draws = uniform(image_keys(0, 0, torch.arange(3000)), 1, 3)[:, 0]
    found = nth_allowed(allowed, torch.ones(5, dtype=torch.bool), draws)
    counts = found.bincount(minlength=5)
    assert counts[[0, 3]].tolist() == [0, 0]
    assert counts[[1, 2, 4]].min() > 900
    none = nth_allowed(
        torch.zeros(1, 3, dtype=torch.bool), torch.tensor([False, True, False]), draws[:1]
    )
    assert none.tolist() == [1]


@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0])
def test_shares_follow_the_beta_distribution(alpha: float) -> None:
    draws = uniform(image_keys(0, 0, torch.arange(20000)), 32, 3)
    shares = symmetric_beta(draws, alpha)
    assert 0 <= shares.min() <= shares.max() <= 1
    assert shares.mean() == pytest.approx(0.5, abs=0.01)
    assert shares.var() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.03)


def test_off_it_does_nothing() -> None:
    assert style_changes(AugmentSettings(), batch(torch.arange(3)), lambda rows: rows) == {}
