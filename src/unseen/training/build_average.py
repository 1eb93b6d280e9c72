"""The average that a run's settings ask for, and what it is made of."""

import math

from torch import Tensor, nn

from unseen.errors import SettingsError
from unseen.methods.base import Method, TwoPhases
from unseen.networks.layers import BATCH_NORMS
from unseen.settings.experiment import Experiment
from unseen.training.average import Average, StepAverage, Tensors, ValleyAverage
from unseen.training.checkpoints import for_prediction
from unseen.training.stacked.method import own_tensors


def build_average(experiment: Experiment, method: Method, steps: int) -> Average | None:
    """None where the weights themselves count."""
    settings = experiment.averaging
    if settings.name == "none":
        return None
    if settings.name == "swad":
        return ValleyAverage(averaged_tensors(method), settings)
    preparing = method.boundary(steps) if isinstance(method, TwoPhases) else 0
    return average_of_steps(experiment, averaged_tensors(method), steps, preparing)


def average_of_steps(
    experiment: Experiment, live: Tensors, steps: int, preparing: int = 0
) -> StepAverage:
    """`preparing` steps make no model yet."""
    skipped = preparing + experiment.averaging.start * (steps - preparing)
    return StepAverage(live, experiment.averaging, skipped)


def averaged_tensors(method: Method) -> dict[str, Tensor]:
    """What prediction needs and training changes, each tensor once: parameters that learn, and
    buffers of numbers with a fraction, such as the statistics of batch norm."""
    still = {
        id(buffer)
        for module in method.train().modules()
        if isinstance(module, BATCH_NORMS) and not module.training
        for buffer in module.buffers()
    }
    needed = for_prediction(method).keys()
    found: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in own_tensors(method):
        changes = tensor.requires_grad or not isinstance(tensor, nn.Parameter)
        if changes and name in needed and tensor.is_floating_point() and id(tensor) not in still:
            found.setdefault(id(tensor), (name, tensor))
    return dict(found.values())


def check_averaging(experiment: Experiment, steps: int) -> None:
    """Raise where the average could never begin."""
    settings = experiment.averaging
    if settings.name != "swad":
        return
    evaluations = math.ceil(steps / experiment.evaluate_every)
    if evaluations < settings.valley_start:
        raise SettingsError(
            f"averaging.name=swad needs averaging.valley_start={settings.valley_start} evaluations "
            f"before it begins, but {steps} steps have {evaluations}; set evaluate_every="
            f"{max(1, steps // 20)}, say"
        )
