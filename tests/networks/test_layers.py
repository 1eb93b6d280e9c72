"""Parts of networks that are written here, and passes that leave batch-norm statistics alone."""

import pytest
import torch
from torch import Tensor, nn

from unseen.networks.layers import MeanPool, statistics_kept

ROWS = torch.tensor([[1.0, 10.0], [3.0, 30.0]])


def test_the_mean_over_pixels_and_its_gradient() -> None:
    """Its gradient is laid out as the images are, channels last."""
    images = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last).requires_grad_()
    weights, seen = torch.randn(2, 3), list[Tensor]()
    activations = images * 2
    activations.register_hook(seen.append)
    pooled = MeanPool()(activations)
    torch.testing.assert_close(pooled, activations.mean((2, 3)))
    with torch.no_grad():
        torch.testing.assert_close(MeanPool()(activations), pooled)
    (pooled * weights).sum().backward()
    torch.testing.assert_close(seen[0], (weights / 20)[:, :, None, None].expand(2, 3, 4, 5))
    assert seen[0].is_contiguous(memory_format=torch.channels_last)
    assert not seen[0].is_contiguous()


def test_passes_inside_normalise_by_the_batch_and_record_nothing() -> None:
    layer = nn.BatchNorm1d(2).train()
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    with statistics_kept(layer):
        found = layer(ROWS)
    torch.testing.assert_close(found, torch.tensor([[-1.0, -1.0], [1.0, 1.0]]), atol=1e-4, rtol=0)
    assert all(torch.equal(before[name], tensor) for name, tensor in layer.state_dict().items())
    layer(ROWS)
    torch.testing.assert_close(layer.running_mean, torch.tensor([0.2, 2.0]))
    assert layer.num_batches_tracked == 1


def test_frozen_batch_norm_goes_on_with_its_statistics() -> None:
    layer = nn.BatchNorm1d(2).eval()
    with statistics_kept(layer):
        torch.testing.assert_close(layer(ROWS), ROWS, atol=1e-3, rtol=0)  # mean 0, variance 1


@pytest.mark.parametrize("records", [True, False])
def test_recording_is_as_before_also_after_an_error(records: bool) -> None:
    layer = nn.BatchNorm1d(2, track_running_stats=records)
    with pytest.raises(ValueError, match="stop"), statistics_kept(layer):
        raise ValueError("stop")
    assert layer.track_running_stats == records
