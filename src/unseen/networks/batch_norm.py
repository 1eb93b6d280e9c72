"""Batch norm whose statistics stay as they are: for good, or during some extra passes."""

from collections.abc import Generator
from contextlib import contextmanager

from torch import nn

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def hold_batch_norm(network: nn.Module) -> None:
    """Normalise by the recorded statistics until `train` is called again."""
    for module in network.modules():
        if isinstance(module, BATCH_NORMS):
            module.eval()


@contextmanager
def statistics_kept(*modules: nn.Module) -> Generator[None]:
    """Inside, batch norm in training mode still normalises by the batch but records nothing; frozen
    batch norm goes on as it is. So each network's statistics are those of its own images."""
    recording = [
        layer
        for module in modules
        for layer in module.modules()
        if isinstance(layer, BATCH_NORMS) and layer.track_running_stats
    ]
    for layer in recording:
        layer.track_running_stats = False
    try:
        yield
    finally:
        for layer in recording:
            layer.track_running_stats = True
