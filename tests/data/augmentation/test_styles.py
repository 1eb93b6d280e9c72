"""Amplitude mix and MixStyle: what is mixed, what is kept, and which images are partners."""

import numpy as np
import pytest
import torch
from torch import Tensor

from unseen.data.batch import DomainBatch
from unseen.data.randomness import AMPLITUDE_MIX, image_keys, step_key, uniform
from unseen.data.sampling import Sampler
from unseen.data.styles import (
    Change,
    amplitude_mix,
    nth_allowed,
    partner_rows,
    statistics,
    style_changes,
    symmetric_beta,
)
from unseen.settings.experiment import AugmentSettings


def keys(n: int, step: int = 0) -> Tensor:
    return image_keys(0, step, torch.arange(n))


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# amplitude mix

ROWS = [np.arange(0, 10), np.arange(20, 25), np.arange(40, 47)]


def test_amplitudes_are_mixed_and_phases_kept() -> None:
    x, other = (120 + 4 * noise(5, 3, 8, 8, seed=seed) for seed in (0, 1))  # nothing is cut off
    share = 0.6 * uniform(keys(5), 1, AMPLITUDE_MIX)[:, :, None, None]
    result = amplitude_mix(x, other, keys(5), 0.6)
    before, partner, after = (torch.fft.fft2(images.double()) for images in (x, other, result))
    expected = (1 - share) * before.abs() + share * partner.abs()
    torch.testing.assert_close(after.abs(), expected, atol=1e-2, rtol=1e-3)
    torch.testing.assert_close(after.angle().cos(), before.angle().cos(), atol=1e-3, rtol=0)
    assert share.std() > 0.05
    bright = torch.full((5, 3, 8, 8), 200, dtype=torch.uint8)  # a flat one brings its brightness
    mixed = amplitude_mix(x, bright, keys(5), 1.0)
    assert (mixed.mean(dim=(1, 2, 3)) > x.mean(dim=(1, 2, 3))).all()
    extreme = amplitude_mix(x * 0, bright, keys(5), 1.0)  # no phase to keep
    assert extreme.isfinite().all()
    assert 0 <= extreme.min() <= extreme.max() <= 255


def test_partners_are_training_images_of_another_domain_all_alike() -> None:
    """A partner follows from the key alone, however a batch is shared out among processes."""
    domains = np.repeat([0, 1, 2, -1], 3000)
    rows = partner_rows(keys(12000), domains, ROWS)
    for domain in (0, 1, 2):
        found = rows[domains == domain]
        others = [d for d in range(3) if d != domain]
        assert set(found) == set(np.concatenate([ROWS[d] for d in others]))
        assert np.isin(found, ROWS[others[0]]).mean() == pytest.approx(0.5, abs=0.05)
    assert set(rows[domains == -1]) == set(np.concatenate(ROWS))
    assert (partner_rows(keys(12000)[1::2], domains[1::2], ROWS) == rows[1::2]).all()
    assert not (partner_rows(keys(12000, step=8), domains, ROWS) == rows).all()


@pytest.mark.parametrize("mode", ["balanced", "pooled"])
def test_a_sampler_finds_partners_for_labelled_and_target_images(mode: str) -> None:
    """Target images may take after any training domain; nobody takes after the target."""
    sampler = Sampler(ROWS, 4, mode, 0, (np.arange(100, 120), 6))  # pyright: ignore
    rows, domains, _ = sampler.positions(3)
    partners = sampler.partners(keys(len(rows) + 6, step=3), domains)
    assert len(partners) == 18
    assert np.isin(partners, np.concatenate(ROWS)).all()
    for partner, domain in zip(partners, domains, strict=False):
        assert partner not in ROWS[domain]


# MixStyle

N = 12
ALWAYS = AugmentSettings(mixstyle=1.0, mixstyle_stages=("conv2",), mixstyle_alpha=1.0)


def batch(places: Tensor, domains: Tensor | None = None) -> DomainBatch:
    domains = places % 3 if domains is None else domains
    nothing = torch.zeros(len(places))
    keys = image_keys(0, 0, places)
    return DomainBatch(nothing, places, domains, keys, 3, places, step_key(0, 0))


def activations(n: int = N) -> Tensor:
    return noise(n, 4, 5, 5) * 3 + 1


def change(given: DomainBatch, settings: AugmentSettings = ALWAYS) -> Change:
    return style_changes(settings, given, lambda rows: rows)["conv2"]


def test_an_image_keeps_its_shape_and_takes_statistics_between_its_own_and_a_partners() -> None:
    """Gradients pass, and statistics are constants."""
    x = activations().requires_grad_()
    mixed = change(batch(torch.arange(N)))(x, None)
    before, after = statistics(x), statistics(mixed)
    (gradient,) = torch.autograd.grad(mixed.sum(), x)
    scale = (after / before)[:, 1, :, None, None]
    torch.testing.assert_close(gradient, scale.expand_as(x), atol=1e-3, rtol=1e-3)
    moved = (x - before[:, 0, :, None, None]) * scale + after[:, 0, :, None, None]
    torch.testing.assert_close(mixed, moved, atol=1e-3, rtol=1e-3)
    for i in range(N):  # one share for means and deviations of all channels, of one other image
        others = [j for j in range(N) if j % 3 != i % 3]
        shares = [((after[i] - before[j]) / (before[i] - before[j])).flatten() for j in others]
        fitting = [s for s in shares if s.std() < 1e-2]
        assert len(fitting) == 1
        assert -0.01 <= fitting[0].mean() <= 1.01


def test_the_chance_leaves_images_exactly_as_they_are() -> None:
    settings = AugmentSettings(mixstyle=0.5, mixstyle_stages=("conv2",))
    x = activations(200)
    mixed = change(batch(torch.arange(200)), settings)(x, None)
    same = (mixed == x).flatten(1).all(dim=1)
    assert 0.4 < same.float().mean() < 0.6
    assert style_changes(AugmentSettings(), batch(torch.arange(3)), lambda rows: rows) == {}


@pytest.mark.parametrize("parts", [2, 4])
def test_devices_that_share_a_batch_mix_as_one_does(parts: int) -> None:
    """Each sees the statistics of all rows; which device has which rows makes no difference."""
    places, x = torch.arange(N), activations()
    whole = change(batch(places))(x, None)
    shares = [batch(places[rank::parts]) for rank in range(parts)]
    rows = torch.cat([share.positions for share in shares])
    for share in shares:

        def gather(values: Tensor, share: DomainBatch = share) -> Tensor:
            if values.dtype != torch.int64:
                return statistics(x)[rows]
            for name in ("keys", "domains"):
                if values.equal(getattr(share, name)):
                    return torch.cat([getattr(each, name) for each in shares])
            return torch.ones(N, dtype=torch.int64)  # all of them are here

        mix = style_changes(ALWAYS, share, gather)["conv2"]
        torch.testing.assert_close(mix(x[share.positions], None), whole[share.positions])


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
    single = batch(torch.arange(N), torch.zeros(N, dtype=torch.int64))
    mixed = change(single)(x, None)  # a single domain mixes among its own
    assert mixed.isfinite().all()
    assert not torch.equal(mixed, x)


def test_every_allowed_image_is_chosen_alike() -> None:
    allowed = torch.tensor([[False, True, True, False, True]]).expand(3000, -1)
    draws = uniform(keys(3000), 1, 3)[:, 0]
    found = nth_allowed(allowed, torch.ones(5, dtype=torch.bool), draws)
    counts = found.bincount(minlength=5)
    assert counts[[0, 3]].tolist() == [0, 0]
    assert counts[[1, 2, 4]].min() > 900
    none, present = torch.zeros(1, 3, dtype=torch.bool), torch.tensor([False, True, False])
    assert nth_allowed(none, present, draws[:1]).tolist() == [1]


@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0])
def test_shares_follow_the_beta_distribution(alpha: float) -> None:
    shares = symmetric_beta(uniform(keys(20000), 32, 3), alpha)
    assert 0 <= shares.min() <= shares.max() <= 1
    assert shares.mean() == pytest.approx(0.5, abs=0.01)
    assert shares.var() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.03)
