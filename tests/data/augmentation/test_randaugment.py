"""Each operation of RandAugment against what it must do to pixels, chosen for every image."""

import pytest
import torch
from torch import Tensor

from unseen.data.augment import resample
from unseen.data.randaugment import OPERATIONS, Operations, affine, change_values, choose
from unseen.data.randomness import image_keys
from unseen.settings.experiment import AugmentSettings

OFF = {"crop_scale": 1.0, "flip": 0.0, "jitter": 0.0, "grayscale": 0.0}


def images(n: int = 4, size: int = 8) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8, generator=generator)


def only(*names: str, amount: float = 1.0, sign: float = 1.0, n: int = 4) -> Operations:
    which = torch.tensor([[OPERATIONS.index(name) for name in names]]).expand(n, -1)
    return Operations(which, torch.full(which.shape, amount), torch.full(which.shape, sign))


@pytest.mark.parametrize(
    ("name", "amount", "sign", "value", "expected"),
    [
        ("brightness", 1.0, 1.0, 100, 190),
        ("brightness", 0.5, -1.0, 100, 55),
        ("posterize", 1.0, 1.0, 100, 96),  # 4 of 8 bits
        ("posterize", 0.25, 1.0, 101, 100),  # 7 of them
        ("solarize", 0.5, 1.0, 127, 127),
        ("solarize", 0.5, 1.0, 129, 126),
        ("solarize", 1.0, 1.0, 0, 255),
        ("nothing", 1.0, 1.0, 77, 77),
    ],
)
def test_values(name: str, amount: float, sign: float, value: int, expected: int) -> None:
    pixels = torch.full((4, 3, 2, 2), float(value))
    result = change_values(pixels, only(name, amount=amount, sign=sign))
    assert result.unique().tolist() == [expected]


def test_contrast_turns_about_the_mean_brightness() -> None:
    pixels = torch.tensor([90.0, 110.0]).repeat(1, 3, 2, 1)
    result = change_values(pixels, only("contrast", n=1))
    assert result[0, 0, 0].tolist() == [81.0, 119.0]


def test_autocontrast_uses_the_whole_range_of_each_channel() -> None:
    pixels = images()[:, :, :2].float() / 4 + 50
    result = change_values(pixels, only("autocontrast"))
    assert result.amin(dim=(2, 3)).unique().tolist() == [0]
    assert result.amax(dim=(2, 3)).unique().tolist() == [255]
    flat = torch.full((1, 3, 2, 2), 9.0)
    assert change_values(flat, only("autocontrast", n=1)).equal(flat)


def test_equalize_spreads_values_by_their_rank() -> None:
    """Four values, one each: ranks 0 to 3 of 3; a single value has nothing to spread."""
    pixels = torch.tensor([10.0, 11, 200, 12]).view(1, 1, 2, 2).expand(1, 3, 2, 2)
    result = change_values(pixels, only("equalize", n=1))
    assert result[0, 0].flatten().tolist() == [0, 85, 255, 170]
    flat = torch.full((1, 3, 2, 2), 9.0)
    assert change_values(flat, only("equalize", n=1)).equal(flat)


def test_a_later_operation_sees_what_an_earlier_one_left() -> None:
    pixels = images().float()
    both = change_values(pixels, only("solarize", "equalize", amount=0.6))
    one_by_one = change_values(
        change_values(pixels, only("solarize", amount=0.6)), only("equalize", amount=0.6)
    )
    assert both.equal(one_by_one)
    other_way = change_values(pixels, only("equalize", "solarize", amount=0.6))
    assert not both.equal(other_way)


def test_sharpness_moves_away_from_the_smoothed_image() -> None:
    """One bright pixel, 130 on 0: smoothed it is 5/13 of itself, and 1/13 goes to each side."""
    pixels = torch.zeros(1, 3, 3, 3)
    pixels[:, :, 1, 1] = 130
    soft = change_values(pixels, only("sharpness", sign=-1.0, n=1))
    assert soft[0, 0, 1, 1] == round(130 - 0.9 * 80)
    assert soft[0, 0, 0, 0] == 9
    sharp = change_values(pixels, only("sharpness", n=1))
    assert sharp[0, 0, 1, 1] == 130 + 0.9 * 80
    assert sharp[0, 0, 0, 0] == 0


def moved(name: str, amount: float, sign: float = 1.0) -> Tensor:
    ramp = torch.arange(8.0).expand(1, 3, 8, 8)  # grows to the right
    draws = torch.zeros(1, 5)
    return resample(ramp, draws, AugmentSettings(**OFF), affine(only(name, amount=amount, n=1)))


def test_a_shift_moves_and_a_turn_turns() -> None:
    settings = AugmentSettings(**OFF)
    ramp = torch.arange(8.0).expand(1, 3, 8, 8)
    shifted = moved("shift_x", 0.25 / 0.9)  # a fourth of half of eight pixels
    torch.testing.assert_close(shifted[0, 0, 0], torch.tensor([1.0, 2, 3, 4, 5, 6, 7, 7]))
    thrice = only("turn", "turn", "turn", n=1)  # 3 · 30 degrees
    turned = resample(ramp, torch.zeros(1, 5), settings, affine(thrice))
    torch.testing.assert_close(turned[0, 0], ramp[0, 0].T.flip(0), atol=1e-4, rtol=0)


def test_a_shear_leaves_the_middle_row_and_leans_the_others() -> None:
    sheared = moved("shear_x", 1.0)
    rows = sheared[0, 0, :, 4]
    assert (rows.diff() > 0).all()  # 0.3 pixels to the right for each row down
    torch.testing.assert_close(rows.diff(), torch.full((7,), 0.3), atol=1e-4, rtol=0)


def test_the_crop_holds_with_and_without_operations() -> None:
    """Both ways to make the grid agree where nothing is moved."""
    x, draws = images().float(), torch.rand(4, 5, generator=torch.Generator().manual_seed(1))
    nothing = resample(x, draws, AugmentSettings(), affine(only("nothing")))
    torch.testing.assert_close(
        nothing, resample(x, draws, AugmentSettings(), None), atol=1e-3, rtol=0
    )


def test_all_operations_are_drawn_alike_and_amounts_stay_below_the_strength() -> None:
    choice = choose(image_keys(0, 0, torch.arange(3000)), AugmentSettings(randaugment=0.4))
    assert choice.which.shape == (3000, 2)
    counts = choice.which.flatten().bincount(minlength=len(OPERATIONS))
    assert counts.min() > 0.8 * 6000 / len(OPERATIONS)
    assert 0.39 < choice.amount.max() < 0.4
    assert abs(choice.sign.mean()) < 0.05
