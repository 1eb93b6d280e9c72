"""Amplitude mix: amplitudes mixed, phases kept, partners from other training domains only."""

import numpy as np
import pytest
import torch
from torch import Tensor

from unseen.data.randomness import AMPLITUDE_MIX, image_keys, uniform
from unseen.data.sampling import Sampler
from unseen.data.styles import amplitude_mix, partner_rows

ROWS = [np.arange(0, 10), np.arange(20, 25), np.arange(40, 47)]
KEYS = image_keys(0, 0, torch.arange(5))


def smooth(seed: int = 0) -> Tensor:
    """Far from 0 and 255, so that nothing is cut off."""
    generator = torch.Generator().manual_seed(seed)
    return 120 + 4 * torch.randn(5, 3, 8, 8, generator=generator)


def test_amplitudes_are_mixed_and_phases_kept() -> None:
    x, other = smooth(), smooth(seed=1)
    share = 0.6 * uniform(KEYS, 1, AMPLITUDE_MIX)[:, :, None, None]
    result = amplitude_mix(x, other, KEYS, 0.6)
    before, partner, after = (torch.fft.fft2(images.double()) for images in (x, other, result))
    expected = (1 - share) * before.abs() + share * partner.abs()
    torch.testing.assert_close(after.abs(), expected, atol=1e-2, rtol=1e-3)
    torch.testing.assert_close(after.angle().cos(), before.angle().cos(), atol=1e-3, rtol=0)
    assert share.std() > 0.05


def test_a_flat_partner_brings_its_brightness_and_pixels_stay_in_range() -> None:
    x = smooth()
    bright = torch.full((5, 3, 8, 8), 200, dtype=torch.uint8)
    result = amplitude_mix(x, bright, KEYS, 1.0)
    assert (result.mean(dim=(1, 2, 3)) > x.mean(dim=(1, 2, 3))).all()
    extreme = amplitude_mix(x * 0, bright, KEYS, 1.0)  # no phase to keep
    assert extreme.isfinite().all()
    assert 0 <= extreme.min() <= extreme.max() <= 255


def test_partners_are_training_images_of_another_domain_all_alike() -> None:
    domains = np.repeat([0, 1, 2, -1], 3000)
    rows = partner_rows(image_keys(0, 0, torch.arange(12000)), domains, ROWS)
    for domain in (0, 1, 2):
        found = rows[domains == domain]
        others = [d for d in range(3) if d != domain]
        assert set(found) == set(np.concatenate([ROWS[d] for d in others]))
        assert np.isin(found, ROWS[others[0]]).mean() == pytest.approx(0.5, abs=0.05)
    assert set(rows[domains == -1]) == set(np.concatenate(ROWS))


def test_a_partner_follows_from_the_key_alone() -> None:
    """However a batch is shared out among processes, and whatever else is in it."""
    keys, domains = image_keys(0, 7, torch.arange(30)), np.arange(30) % 3
    whole = partner_rows(keys, domains, ROWS)
    assert (partner_rows(keys[1::2], domains[1::2], ROWS) == whole[1::2]).all()
    assert not (partner_rows(image_keys(0, 8, torch.arange(30)), domains, ROWS) == whole).all()


@pytest.mark.parametrize("mode", ["balanced", "pooled"])
def test_a_sampler_finds_partners_for_labelled_and_target_images(mode: str) -> None:
    """Target images may take after any training domain; nobody takes after the target."""
    sampler = Sampler(ROWS, 4, mode, 0, (np.arange(100, 120), 6))  # pyright: ignore
    rows, domains, _ = sampler.positions(3)
    partners = sampler.partners(image_keys(0, 3, torch.arange(len(rows) + 6)), domains)
    assert len(partners) == 18
    assert np.isin(partners, np.concatenate(ROWS)).all()
    for partner, domain in zip(partners, domains, strict=False):
        assert partner not in ROWS[domain]
