"""Parts of networks that are written here."""

import torch
from torch import Tensor

from unseen.networks.layers import MeanPool


def test_the_mean_over_pixels_and_its_gradient() -> None:
    images = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last).requires_grad_()
    weights = torch.randn(2, 3)
    pooled = MeanPool()(images)
    torch.testing.assert_close(pooled, images.mean((2, 3)))
    with torch.no_grad():
        torch.testing.assert_close(MeanPool()(images), pooled)
    (pooled * weights).sum().backward()
    torch.testing.assert_close(images.grad, (weights / 20)[:, :, None, None].expand(2, 3, 4, 5))


def test_the_gradient_of_the_mean_is_laid_out_as_the_images_are() -> None:
    images = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last).requires_grad_()
    seen: list[Tensor] = []
    activations = images * 2
    activations.register_hook(seen.append)
    MeanPool()(activations).sum().backward()
    assert seen[0].is_contiguous(memory_format=torch.channels_last)
    assert not seen[0].is_contiguous()
