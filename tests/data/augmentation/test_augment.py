"""Augmentation of batches against what it must do to single pixels."""

from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from unseen.data.augment import (
    ERASED_AREAS,
    FILTER_SIZES,
    PixelScale,
    augment,
    erase,
    random_convolution,
    random_filters,
    resample,
    to_input,
)
from unseen.data.randaugment import OPERATIONS, Operations, affine, change_values, choose
from unseen.data.randomness import RANDOM_CONVOLUTION, image_keys, normal, uniform
from unseen.settings.experiment import AugmentSettings

PLAIN = PixelScale((0.0,) * 3, (1 / 255,) * 3)  # leaves 0..255 as it is
OFF = {"crop_scale": 1.0, "flip": 0.0, "jitter": 0.0, "grayscale": 0.0}


def images(n: int = 8, size: int = 12) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (n, size, size, 3), dtype=torch.uint8, generator=generator)
    return pixels.permute(0, 3, 1, 2)


def keys(n: int = 8, step: int = 0) -> Tensor:
    return image_keys(0, step, torch.arange(n))


def augmented(x: Tensor, **switched_on: float) -> Tensor:
    return augment(x, keys(len(x)), AugmentSettings(**(OFF | switched_on)), PLAIN)


def test_nothing_switched_on_changes_nothing_but_the_scale() -> None:
    torch.testing.assert_close(augmented(images()), images().float())
    x = torch.full((1, 3, 2, 2), 51, dtype=torch.uint8)
    result = to_input(x, PixelScale((0.1, 0.2, 0.3), (0.5, 1.0, 2.0)))
    expected = torch.tensor([0.2, 0.0, -0.05])
    torch.testing.assert_close(result[0, :, 0, 0], expected, atol=1e-6, rtol=0)


def test_a_flip_mirrors_as_many_images_as_its_chance_says() -> None:
    x = images(400, 4)
    torch.testing.assert_close(augmented(x, flip=1.0), x.flip(3).float(), atol=1e-2, rtol=0)
    flipped = (augmented(x, flip=0.5) - x.flip(3).float()).abs().amax(dim=(1, 2, 3)) < 0.1
    assert 0.4 < flipped.float().mean() < 0.6


def test_a_crop_shows_a_part_of_the_image_at_full_size() -> None:
    """On a ramp, a crop's corners lie inside the ramp, and its slope is flatter."""
    x = torch.arange(0, 240, 8, dtype=torch.uint8).expand(200, 3, 30, 30)
    result = augmented(x, crop_scale=0.5)[:, 0]
    span = (result[:, 15, -2] - result[:, 15, 1]) / (x[0, 0, 0, -2] - x[0, 0, 0, 1]).float()
    assert span.max() <= 1.01
    assert 0.6 < span.min() < 0.75  # sqrt(0.5 × 3/4) = 0.61
    assert 0 <= result.min() <= result.max() <= 232


def test_grayscale_has_equal_channels_with_the_right_weights() -> None:
    x = images()
    grey = 0.299 * x[:, 0].float() + 0.587 * x[:, 1].float() + 0.114 * x[:, 2].float()
    expected = grey[:, None].expand(-1, 3, -1, -1)
    torch.testing.assert_close(augmented(x, grayscale=1.0), expected, atol=0.05, rtol=0)


def test_jitter_leaves_grey_images_grey_and_stays_in_range() -> None:
    result = augmented(images(64)[:, :1].expand(-1, 3, -1, -1), jitter=0.3)
    torch.testing.assert_close(result[:, 0], result[:, 1], atol=0.3, rtol=0)
    assert 0 <= result.min() <= result.max() <= 255
    assert (augmented(images(64), jitter=0.3) - images(64).float()).abs().mean() > 5
    flat = torch.full((500, 3, 4, 4), 100, dtype=torch.uint8)  # brightness alone acts on it
    result = augmented(flat, jitter=0.3)[:, 0, 0, 0]
    assert 70 <= result.min() < 73
    assert 127 < result.max() <= 130.01


def noise(n: int, size: int) -> Tensor:
    return torch.rand(n, 3, size, size, generator=torch.Generator().manual_seed(0)) * 255


def test_erasing_one_rectangle_becomes_the_mean_and_the_rest_stays() -> None:
    x = noise(200, 40)
    result = erase(x, keys(200), 1.0)
    inside = (result != x).any(dim=1)
    rows, columns = inside.any(dim=2), inside.any(dim=1)
    assert (inside == (rows[:, :, None] & columns[:, None, :])).all()
    for span in (rows, columns):  # without a gap
        assert (span.int().diff(dim=1).abs().sum(dim=1) <= 2).all()
    for i in range(0, 200, 20):
        erased = result[i][:, inside[i]]
        torch.testing.assert_close(erased, x[i].mean(dim=(1, 2))[:, None].expand_as(erased))
    areas = inside.float().mean(dim=(1, 2))
    assert ERASED_AREAS[0] * 0.7 < areas.min() < 0.06
    assert 0.25 < areas.max() < ERASED_AREAS[1] * 1.1


def test_chances_are_those_of_an_image_and_values_stay_in_range() -> None:
    x = noise(300, 16)
    inside = (erase(x, keys(300), 0.25) != x).any(dim=1)
    assert 0.18 < inside.flatten(1).any(dim=1).float().mean() < 0.32
    assert inside.any(dim=0).float().mean() > 0.95  # everywhere, the corners included
    filtered = random_convolution(x, keys(300), 0.3, MEAN)
    assert 0.2 < (filtered != x).flatten(1).any(dim=1).float().mean() < 0.4
    assert 0 <= filtered.min() <= filtered.max() <= 255


MEAN = torch.tensor([120.0, 110.0, 100.0])[:, None, None]


def test_random_filters_have_their_size_and_keep_the_scale_of_values() -> None:
    sizes = torch.arange(4).repeat(200)
    filters = random_filters(keys(800), sizes)
    for number, size in enumerate(FILTER_SIZES):
        own = filters[sizes == number]
        assert (own.abs().sum(dim=(0, 1, 2)) > 0).sum() == size**2
        middle = slice(3 - size // 2, 4 + size // 2)
        deviation = own[..., middle, middle].std()
        assert deviation == pytest.approx((3 * size**2) ** -0.5, rel=0.05)


@pytest.mark.parametrize("device", ["cpu", "other"])
def test_an_image_is_mixed_with_itself_under_one_filter(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing is cut off at 0 and 255: a share of (filtered − itself) is added. A CPU goes
    image by image; other devices take all at once."""
    x = noise(6, 9) * 0.01 + 110  # far from both ends
    draws = uniform(keys(6), 3, RANDOM_CONVOLUTION)
    filters = random_filters(keys(6), (draws[:, 1] * 4).long())
    expected = []
    for i in range(6):
        filtered = functional.conv2d(x[i : i + 1] - MEAN, filters[i], padding=3)[0] + MEAN
        expected.append(draws[i, 2] * x[i] + (1 - draws[i, 2]) * filtered)
    if device == "other":
        monkeypatch.setattr("unseen.data.augment.ON_ITS_OWN", ())
    with patch.object(functional, "conv2d", wraps=functional.conv2d) as conv2d:
        result = random_convolution(x, keys(6), 1.0, MEAN)
    assert conv2d.call_count == (6 if device == "cpu" else 1)
    torch.testing.assert_close(result, torch.stack(expected).clamp(0, 255), atol=1e-3, rtol=1e-4)


# RandAugment: each operation against what it must do to pixels, chosen for every image


def only(*names: str, amount: float = 1.0, sign: float = 1.0, n: int = 1) -> Operations:
    which = torch.tensor([[OPERATIONS.index(name) for name in names]]).expand(n, -1)
    return Operations(which, torch.full(which.shape, amount), torch.full(which.shape, sign))


@pytest.mark.parametrize(
    ("name", "amount", "sign", "values", "expected"),
    [
        ("brightness", 1.0, 1.0, [100], [190]),
        ("brightness", 0.5, -1.0, [100], [55]),
        ("posterize", 1.0, 1.0, [100], [96]),  # 4 of 8 bits
        ("posterize", 0.25, 1.0, [101], [100]),  # 7 of them
        ("solarize", 0.5, 1.0, [127, 129], [127, 126]),
        ("solarize", 1.0, 1.0, [0], [255]),
        ("nothing", 1.0, 1.0, [77], [77]),
        ("contrast", 1.0, 1.0, [90, 110], [81, 119]),  # about the mean brightness
        ("autocontrast", 1.0, 1.0, [50, 60, 100], [0, 51, 255]),  # the whole range
        ("autocontrast", 1.0, 1.0, [9, 9], [9, 9]),
        ("equalize", 1.0, 1.0, [10, 11, 200, 12], [0, 85, 255, 170]),  # ranks 0 to 3 of 3
        ("equalize", 1.0, 1.0, [9, 9], [9, 9]),  # nothing to spread
    ],
)
def test_values(name: str, amount: float, sign: float, values: Any, expected: Any) -> None:
    pixels = torch.tensor(values, dtype=torch.float32).expand(1, 3, 2, -1)
    result = change_values(pixels, only(name, amount=amount, sign=sign))
    assert result[0].tolist() == [[expected] * 2] * 3


def test_a_later_operation_sees_what_an_earlier_one_left() -> None:
    pixels = images(4).float()
    first, then = (only(name, amount=0.6, n=4) for name in ("solarize", "equalize"))
    both = change_values(pixels, only("solarize", "equalize", amount=0.6, n=4))
    assert both.equal(change_values(change_values(pixels, first), then))
    assert not both.equal(change_values(pixels, only("equalize", "solarize", amount=0.6, n=4)))


def test_sharpness_moves_away_from_the_smoothed_image() -> None:
    """One bright pixel, 130 on 0: smoothed it is 5/13 of itself, and 1/13 goes to each side."""
    pixels = torch.zeros(1, 3, 3, 3)
    pixels[:, :, 1, 1] = 130
    for sign, middle, corner in ((-1.0, round(130 - 0.9 * 80), 9), (1.0, 130 + 0.9 * 80, 0)):
        result = change_values(pixels, only("sharpness", sign=sign))[0, 0]
        assert (result[1, 1], result[0, 0]) == (middle, corner)


def test_a_shift_moves_a_turn_turns_and_a_shear_leans() -> None:
    ramp = torch.arange(8.0).expand(1, 3, 8, 8)  # grows to the right

    def moved(*names: str, amount: float = 1.0) -> Tensor:
        operations = affine(only(*names, amount=amount))
        return resample(ramp, torch.zeros(1, 5), AugmentSettings(**OFF), operations)[0, 0]

    shifted = moved("shift_x", amount=0.25 / 0.9)  # a fourth of half of eight pixels
    torch.testing.assert_close(shifted[0], torch.tensor([1.0, 2, 3, 4, 5, 6, 7, 7]))
    turned = moved("turn", "turn", "turn")  # 3 · 30 degrees
    torch.testing.assert_close(turned, ramp[0, 0].T.flip(0), atol=1e-4, rtol=0)
    leaning = moved("shear_x")[:, 4].diff()  # 0.3 pixels to the right for each row down
    torch.testing.assert_close(leaning, torch.full((7,), 0.3), atol=1e-4, rtol=0)


def test_the_crop_holds_with_and_without_operations() -> None:
    """Both ways to make the grid agree where nothing is moved."""
    x, draws = images(4).float(), torch.rand(4, 5, generator=torch.Generator().manual_seed(1))
    two = (affine(only("nothing", n=4)), None)
    one, other = (resample(x, draws, AugmentSettings(), moved) for moved in two)
    torch.testing.assert_close(one, other, atol=1e-3, rtol=0)


def test_all_operations_are_drawn_alike_and_amounts_stay_below_the_strength() -> None:
    choice = choose(keys(3000), AugmentSettings(randaugment=0.4))
    assert choice.which.shape == (3000, 2)
    counts = choice.which.flatten().bincount(minlength=len(OPERATIONS))
    assert counts.min() > 0.8 * 6000 / len(OPERATIONS)
    assert 0.39 < choice.amount.max() < 0.4
    assert abs(choice.sign.mean()) < 0.05


# keys and what is drawn from them


@pytest.mark.parametrize(
    "changed",
    [{}, {"random_convolution": 1.0}, {"randaugment": 1.0, "randaugment_operations": 4}],
)
def test_an_image_is_augmented_alike_wherever_it_lies_in_a_batch(changed: dict[str, float]) -> None:
    x, settings = images(), AugmentSettings(**changed)
    whole = augment(x, keys(), settings, PLAIN)
    part = augment(x[1::2], keys()[1::2], settings, PLAIN)
    torch.testing.assert_close(whole[1::2], part, atol=1e-3, rtol=1e-5)
    assert not torch.equal(whole, augment(x, keys(step=1), settings, PLAIN))
    if changed:
        assert not torch.allclose(whole, augment(x, keys(), AugmentSettings(), PLAIN))


@pytest.mark.parametrize("stream", [0, 1, 7])
def test_draws_are_uniform_or_normal_and_independent(stream: int) -> None:
    draws = uniform(image_keys(3, 11, torch.arange(4000)), 8, stream)
    assert 0 <= draws.min() <= draws.max() < 1
    torch.testing.assert_close(draws.mean(dim=0), torch.full((8,), 0.5), atol=0.02, rtol=0)
    torch.testing.assert_close(draws.var(dim=0), torch.full((8,), 1 / 12), atol=0.005, rtol=0)
    correlation = torch.corrcoef(draws.T) - torch.eye(8)
    assert correlation.abs().max() < 0.07
    shifted = torch.corrcoef(torch.stack([draws[:-1, 0], draws[1:, 0]]))
    assert shifted[0, 1].abs() < 0.07
    numbers = normal(keys(400), 100, stream)
    assert numbers.isfinite().all()
    assert max(abs(numbers.mean()), abs(numbers.std() - 1)) < 0.02
    assert abs((numbers.abs() < 1).float().mean() - 0.6827) < 0.01


def test_draws_are_the_same_for_ever() -> None:
    """A released version's runs are repeated by the next one only if these never change."""
    keys = image_keys(3, 5, torch.arange(2))
    assert keys.tolist() == [-5443507386912043379, 7508655366694536270]
    expected = [[0.6006012558937073, 0.7213506102561951], [0.4042736291885376, 0.9766281843185425]]
    assert uniform(keys, 2, stream=1).tolist() == expected
