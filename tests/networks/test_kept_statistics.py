"""Extra passes that leave batch-norm statistics alone."""

import pytest
import torch
from torch import nn

from unseen.networks.layers import statistics_kept


def test_passes_inside_normalise_by_the_batch_and_record_nothing() -> None:
    layer = nn.Sequential(nn.BatchNorm1d(2)).train()
    x = torch.tensor([[1.0, 10.0], [3.0, 30.0]])
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    with statistics_kept(layer):
        found = layer(x)
    torch.testing.assert_close(found, torch.tensor([[-1.0, -1.0], [1.0, 1.0]]), atol=1e-4, rtol=0)
    assert all(torch.equal(before[name], tensor) for name, tensor in layer.state_dict().items())
    layer(x)
    torch.testing.assert_close(layer[0].running_mean, torch.tensor([0.2, 2.0]))
    assert layer[0].num_batches_tracked == 1


def test_frozen_batch_norm_goes_on_with_its_statistics() -> None:
    layer = nn.BatchNorm1d(2).eval()
    x = torch.tensor([[1.0, 10.0], [3.0, 30.0]])
    with statistics_kept(layer):
        torch.testing.assert_close(layer(x), x, atol=1e-3, rtol=0)  # mean 0, variance 1


def test_recording_goes_on_after_an_error() -> None:
    layer = nn.BatchNorm1d(2)
    with pytest.raises(ValueError, match="stop"), statistics_kept(layer):
        raise ValueError("stop")
    assert layer.track_running_stats


def test_layers_without_statistics_stay_without() -> None:
    layer = nn.BatchNorm1d(2, track_running_stats=False)
    with statistics_kept(layer):
        pass
    assert not layer.track_running_stats
