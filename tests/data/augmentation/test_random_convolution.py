"""Random convolutions: the filters, their mixing, and both ways to apply them."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from unseen.data.transforms import SIZES, random_convolution, random_filters

from unseen.data import transforms as module
from unseen.data.augment import PixelScale, augment
from unseen.data.randomness import image_keys, normal
from unseen.settings.experiment import AugmentSettings

MEAN = torch.tensor([120.0, 110.0, 100.0])


def images(n: int = 6, size: int = 9) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(n, 3, size, size, generator=generator) * 255


def test_normal_numbers_have_mean_zero_and_deviation_one() -> None:
    numbers = normal(image_keys(0, 0, torch.arange(400)), 100, stream=5)
    assert numbers.isfinite().all()
    assert abs(numbers.mean()) < 0.02
    assert abs(numbers.std() - 1) < 0.02
    assert abs((numbers.abs() < 1).float().mean() - 0.6827) < 0.01


def test_filters_have_their_size_and_keep_the_scale_of_values() -> None:
    sizes = torch.arange(4).repeat(200)
    filters = random_filters(image_keys(0, 0, torch.arange(800)), sizes)
    for number, size in enumerate(SIZES):
        own = filters[sizes == number]
        assert (own.abs().sum(dim=(0, 1, 2)) > 0).sum() == size**2
        middle = slice(3 - size // 2, 4 + size // 2)
        deviation = own[..., middle, middle].std()
        assert deviation == pytest.approx((3 * size**2) ** -0.5, rel=0.05)


def test_an_image_is_mixed_with_itself_under_one_filter() -> None:
    """Where nothing is cut off at 0 and 255: a share of (filtered − itself) is added."""
    x = images() * 0.01 + 110  # far from both ends
    keys = image_keys(0, 0, torch.arange(6))
    result = random_convolution(x, keys, 1.0, MEAN)
    draws = module.uniform(keys, 3, module.streams.RANDOM_CONVOLUTION)
    filters = random_filters(keys, (draws[:, 1] * 4).long())
    for i in range(6):
        centred = x[i : i + 1] - MEAN[:, None, None]
        filtered = functional.conv2d(centred, filters[i], padding=3)[0] + MEAN[:, None, None]
        alpha = draws[i, 2]
        expected = (alpha * x[i] + (1 - alpha) * filtered).clamp(0, 255)
        torch.testing.assert_close(result[i], expected, atol=1e-3, rtol=1e-4)


def test_one_by_one_and_in_groups_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU goes image by image; other devices take all at once."""

    class NoCPU:
        type = "other"

    keys = image_keys(0, 1, torch.arange(6))
    sizes = torch.tensor([0, 1, 2, 3, 3, 1])
    chosen = torch.ones(6, dtype=torch.bool)
    filters = random_filters(keys, sizes)
    alone = module._each_by_its_own(images(), filters, sizes, chosen)
    monkeypatch.setattr(Tensor, "device", NoCPU)
    together = module._each_by_its_own(images(), filters, sizes, chosen)
    monkeypatch.undo()
    torch.testing.assert_close(together, alone, atol=1e-3, rtol=1e-4)


def test_the_chance_is_that_of_an_image_and_values_stay_in_range() -> None:
    x = images(300)
    result = random_convolution(x, image_keys(0, 0, torch.arange(300)), 0.3, MEAN)
    changed = (result != x).flatten(1).any(dim=1)
    assert 0.2 < changed.float().mean() < 0.4
    assert 0 <= result.min() <= result.max() <= 255


def test_it_is_part_of_augmentation_as_a_function_of_the_key() -> None:
    x, keys = images().byte(), image_keys(0, 3, torch.arange(6))
    settings, scale = AugmentSettings(random_convolution=1.0), PixelScale((0.5,) * 3, (0.5,) * 3)
    whole = augment(x, keys, settings, scale)
    torch.testing.assert_close(augment(x[2:4], keys[2:4], settings, scale), whole[2:4])
    assert not torch.allclose(whole, augment(x, keys, AugmentSettings(), scale))
