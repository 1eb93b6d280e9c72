"""How long a run would take: a few steps and one evaluation, timed in a folder that is removed."""

import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import torch
from lightning_fabric import Fabric
from rich.console import Console

from unseen.config import Experiment
from unseen.data.roles import Roles
from unseen.methods.kinds import DomainAware
from unseen.training.devices import keep_freed_memory, launch
from unseen.training.display import Display
from unseen.training.loop import train_step
from unseen.training.measuring import validate
from unseen.training.state import RunState, assemble

_WARM_UP = 1
_STEPS = 3


class RunTimes(NamedTuple):
    """Seconds that the parts of a run take."""

    setup: float
    step: float
    validation: float
    """One evaluation on the source validation images."""
    final_evaluation: float
    """All views of the two checkpoints that count."""


def time_run(experiment: Experiment, threads: int, gpu: bool) -> RunTimes:
    """Time the parts of a run on this machine; images are prepared if they are not yet."""
    device = experiment.devices.model_copy(
        update={"number": 1, "accelerator": experiment.devices.accelerator if gpu else "cpu"}
    )
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with tempfile.TemporaryDirectory(prefix="unseen-timing-") as folder:
            single = experiment.model_copy(update={"devices": device})
            return launch(single, _measure, single, Path(folder))
    finally:
        torch.set_num_threads(before)


def _measure(fabric: Fabric, experiment: Experiment, path: Path) -> RunTimes:
    keep_freed_memory()
    started = time.monotonic()
    state = assemble(fabric, experiment, path, Display(Console(quiet=True), 1, ""))
    try:
        setup = time.monotonic() - started
        step = _time_steps(state)
        started = time.monotonic()
        validate(state)
        validation = time.monotonic() - started
    finally:
        if state.log is not None:
            state.log.close()
    views = _images_in_views(state.images.roles, isinstance(state.method, DomainAware))
    validated = sum(map(len, state.images.roles.validation.values()))
    return RunTimes(setup, step, validation, 2 * validation * views / validated)


def _time_steps(state: RunState) -> float:
    """The mean over some steps, after one that warms up; a short run has its own number of them."""
    steps = min(_WARM_UP + _STEPS, state.steps)
    started = time.monotonic()
    state.module.train()
    for batch in state.batches(range(steps)):
        losses = train_step(state, batch)
        losses["loss"].item()  # on a GPU: wait for it
        state.step += 1
        if state.step == _WARM_UP and steps > _WARM_UP:
            started = time.monotonic()
    return (time.monotonic() - started) / max(1, steps - _WARM_UP)


def _images_in_views(roles: Roles, uses_domain: bool) -> int:
    held_out = sum(map(len, roles.in_domain.values()))
    known = held_out if uses_domain else 0
    return sum(map(len, roles.out_of_domain.values())) + held_out + known
