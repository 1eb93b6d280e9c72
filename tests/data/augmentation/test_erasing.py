"""Random erasing: a rectangle, as large as was asked for, of the image's mean."""

import torch
from unseen.data.transforms import AREAS, erase

from unseen.data.randomness import image_keys


def test_one_rectangle_becomes_the_mean_and_the_rest_stays() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(200, 3, 40, 40, generator=generator) * 255
    result = erase(x, image_keys(0, 0, torch.arange(200)), 1.0)
    inside = (result != x).any(dim=1)
    rows, columns = inside.any(dim=2), inside.any(dim=1)
    assert (inside == (rows[:, :, None] & columns[:, None, :])).all()
    for span in (rows, columns):  # without a gap
        assert (span.int().diff(dim=1).abs().sum(dim=1) <= 2).all()
    for i in range(0, 200, 20):
        erased = result[i][:, inside[i]]
        torch.testing.assert_close(erased, x[i].mean(dim=(1, 2))[:, None].expand_as(erased))
    areas = inside.float().mean(dim=(1, 2))
    assert AREAS[0] * 0.7 < areas.min() < 0.06
    assert 0.25 < areas.max() < AREAS[1] * 1.1


def test_the_chance_and_places_vary() -> None:
    x = torch.rand(300, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    result = erase(x, image_keys(0, 0, torch.arange(300)), 0.25)
    inside = (result != x).any(dim=1)
    assert 0.18 < inside.flatten(1).any(dim=1).float().mean() < 0.32
    assert inside.any(dim=0).float().mean() > 0.95  # everywhere, the corners included
