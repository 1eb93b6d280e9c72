"""What a run that has lost its way is told, whether it trains alone or with others."""

from collections.abc import Mapping
from pathlib import Path

from unseen.config import Experiment
from unseen.errors import UnseenError


def loss_is_lost(
    experiment: Experiment, folder: Path, step: int, record: Mapping[str, float]
) -> UnseenError:
    parts = ", ".join(f"{name} {value:.4g}" for name, value in record.items())
    return _diverged(experiment, folder, f"the loss is not finite at step {step} ({parts})")


def weights_are_lost(experiment: Experiment, folder: Path, step: int) -> UnseenError:
    """An endless gradient spoils the weights a step before the loss shows it."""
    return _diverged(experiment, folder, f"the weights are not finite after step {step}")


def _diverged(experiment: Experiment, folder: Path, what: str) -> UnseenError:
    return UnseenError(
        f"{what}.\nMost often the learning rate is too high: try optimizer.lr="
        f"{experiment.optimizer.lr / 10:g} or clip_gradient=1. "
        f"The last good checkpoint stays in {folder}."
    )
