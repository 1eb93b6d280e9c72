"""Augmentation of batches against what it must do to single pixels."""

import pytest
import torch
from torch import Tensor

from unseen.data.augment import PixelScale, augment, to_input
from unseen.data.randomness import image_keys, uniform
from unseen.settings.experiment import AugmentSettings

PLAIN = PixelScale((0.0,) * 3, (1 / 255,) * 3)  # leaves 0..255 as it is
OFF = {"crop_scale": 1.0, "flip": 0.0, "jitter": 0.0, "grayscale": 0.0}


def images(n: int = 8, size: int = 12) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (n, size, size, 3), dtype=torch.uint8, generator=generator)
    return pixels.permute(0, 3, 1, 2)


def keys(n: int = 8, step: int = 0) -> Tensor:
    return image_keys(0, step, torch.arange(n))


def test_nothing_switched_on_changes_nothing() -> None:
    x = images()
    result = augment(x, keys(), AugmentSettings(**OFF), PLAIN)
    torch.testing.assert_close(result, x.float())


def test_scaling_is_what_the_network_asks_for() -> None:
    x = torch.full((1, 3, 2, 2), 51, dtype=torch.uint8)
    result = to_input(x, PixelScale((0.1, 0.2, 0.3), (0.5, 1.0, 2.0)))
    torch.testing.assert_close(
        result[0, :, 0, 0], torch.tensor([0.2, 0.0, -0.05]), atol=1e-6, rtol=0
    )


def test_a_flip_mirrors() -> None:
    x = images()
    result = augment(x, keys(), AugmentSettings(**(OFF | {"flip": 1.0})), PLAIN)
    torch.testing.assert_close(result, x.flip(3).float(), atol=1e-2, rtol=0)


def test_half_of_the_images_flip_at_one_half() -> None:
    x = images(400, 4)
    result = augment(x, keys(400), AugmentSettings(**(OFF | {"flip": 0.5})), PLAIN)
    flipped = (result - x.flip(3).float()).abs().amax(dim=(1, 2, 3)) < 0.1
    assert 0.4 < flipped.float().mean() < 0.6


def test_a_crop_shows_a_part_of_the_image_at_full_size() -> None:
    """On a ramp, a crop's corners lie inside the ramp, and its slope is flatter."""
    ramp = torch.arange(0, 240, 8, dtype=torch.uint8)
    x = ramp.expand(200, 3, 30, 30)
    settings = AugmentSettings(**(OFF | {"crop_scale": 0.5}))
    result = augment(x, keys(200), settings, PLAIN)[:, 0]
    span = (result[:, 15, -2] - result[:, 15, 1]) / (x[0, 0, 0, -2] - x[0, 0, 0, 1]).float()
    assert span.max() <= 1.01
    assert 0.6 < span.min() < 0.75  # sqrt(0.5 × 3/4) = 0.61
    assert result.min() >= 0
    assert result.max() <= 232


def test_grayscale_has_equal_channels_with_the_right_weights() -> None:
    x = images()
    result = augment(x, keys(), AugmentSettings(**(OFF | {"grayscale": 1.0})), PLAIN)
    grey = 0.299 * x[:, 0].float() + 0.587 * x[:, 1].float() + 0.114 * x[:, 2].float()
    for channel in range(3):
        torch.testing.assert_close(result[:, channel], grey, atol=0.05, rtol=0)


def test_jitter_leaves_grey_images_grey_and_stays_in_range() -> None:
    grey = images(64)[:, :1].expand(-1, 3, -1, -1)
    result = augment(grey, keys(64), AugmentSettings(**(OFF | {"jitter": 0.3})), PLAIN)
    torch.testing.assert_close(result[:, 0], result[:, 1], atol=0.3, rtol=0)
    assert result.min() >= 0
    assert result.max() <= 255
    coloured = augment(images(64), keys(64), AugmentSettings(**(OFF | {"jitter": 0.3})), PLAIN)
    assert (coloured - images(64).float()).abs().mean() > 5


def test_brightness_has_the_strength_it_was_given() -> None:
    """A flat grey has no contrast or colour to change, so only brightness acts on it."""
    x = torch.full((500, 3, 4, 4), 100, dtype=torch.uint8)
    result = augment(x, keys(500), AugmentSettings(**(OFF | {"jitter": 0.3})), PLAIN)[:, 0, 0, 0]
    assert 70 <= result.min() < 73
    assert 127 < result.max() <= 130.01


def test_an_image_is_augmented_alike_wherever_it_lies_in_a_batch() -> None:
    x, k = images(), keys()
    whole = augment(x, k, AugmentSettings(), PLAIN)
    part = augment(x[1::2], k[1::2], AugmentSettings(), PLAIN)
    torch.testing.assert_close(whole[1::2], part, atol=1e-3, rtol=0)


def test_steps_differ() -> None:
    assert not torch.equal(
        augment(images(), keys(), AugmentSettings(), PLAIN),
        augment(images(), keys(step=1), AugmentSettings(), PLAIN),
    )


@pytest.mark.parametrize("stream", [0, 1, 7])
def test_draws_are_uniform_and_independent(stream: int) -> None:
    draws = uniform(image_keys(3, 11, torch.arange(4000)), 8, stream)
    assert draws.min() >= 0
    assert draws.max() < 1
    torch.testing.assert_close(draws.mean(dim=0), torch.full((8,), 0.5), atol=0.02, rtol=0)
    torch.testing.assert_close(draws.var(dim=0), torch.full((8,), 1 / 12), atol=0.005, rtol=0)
    correlation = torch.corrcoef(draws.T) - torch.eye(8)
    assert correlation.abs().max() < 0.07
    shifted = torch.corrcoef(torch.stack([draws[:-1, 0], draws[1:, 0]]))
    assert shifted[0, 1].abs() < 0.07


def test_draws_are_the_same_for_ever() -> None:
    """A released version's runs are repeated by the next one only if these never change."""
    keys = image_keys(3, 5, torch.arange(2))
    assert keys.tolist() == [-5443507386912043379, 7508655366694536270]
    expected = [[0.6006012558937073, 0.7213506102561951], [0.4042736291885376, 0.9766281843185425]]
    assert uniform(keys, 2, stream=1).tolist() == expected
