"""Extra passes through a network that leave its batch-norm statistics alone."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


@contextmanager
def statistics_kept(*modules: nn.Module) -> Iterator[None]:
    """Inside, batch norm in training mode still normalises by the batch but records nothing; frozen
    batch norm goes on as it is. So each network's statistics are those of its own images."""
    recording = [
        layer
        for module in modules
        for layer in module.modules()
        if isinstance(layer, _BATCH_NORMS) and layer.track_running_stats
    ]
    for layer in recording:
        layer.track_running_stats = False
    try:
        yield
    finally:
        for layer in recording:
            layer.track_running_stats = True
