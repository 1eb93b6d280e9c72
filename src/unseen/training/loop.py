"""The training loop: one page, plain functions. Whoever wants another loop copies this page."""

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from lightning_fabric import Fabric

from unseen import across_devices
from unseen.data.batch import DomainBatch
from unseen.data.dataset import OpenDatasets
from unseen.data.styles import style_changes
from unseen.methods.base import Losses, Progress
from unseen.settings.experiment import Experiment
from unseen.training.devices import keep_freed_memory
from unseen.training.display import Display
from unseen.training.interruptions import (
    Interrupted,
    StopFlag,
    loss_diverged,
    stop_requests,
    weights_diverged,
)
from unseen.training.measuring import validate, write_result
from unseen.training.state import RunState, assemble, over_devices, save
from unseen.training.tracking import tracked


def train(
    fabric: Fabric,
    experiment: Experiment,
    path: Path,
    display: Display,
    log: Sequence[str] = (),
    until: int | None = None,
    datasets: OpenDatasets | None = None,
) -> None:
    """Train from the newest checkpoint to the end, then measure; everything goes to the folder.

    `log` names trackers that get the same records; `until` a step to pause at: its checkpoint is
    written, there is no result yet, and going on gives what a run without a pause gives.
    """
    keep_freed_memory()
    state = assemble(fabric, experiment, path, display, datasets)
    try:
        with tracked(state, log):
            with stop_requests() as stop:
                fit(state, stop, state.steps if until is None else min(until, state.steps))
            if state.step == state.steps:
                write_result(state)
            state.fabric.barrier()  # no process looks for the result before it is there
    finally:
        if state.log is not None:
            state.log.close()


def fit(state: RunState, stop: StopFlag, end: int) -> None:
    """All steps that remain until `end`."""
    experiment = state.experiment
    state.module.train()
    for batch in state.batches(range(state.step, end)):
        losses = train_step(state, batch)
        state.step += 1
        last = state.step == state.steps
        _watch(state, losses, last)
        if last or state.step % experiment.evaluate_every == 0:
            validate(state)
        signal_number = _agree_to_stop(state, stop)
        pause = state.step == end or signal_number
        if pause or state.step % experiment.checkpoint_every == 0:
            _stop_if_weights_diverged(state)
            save(state)
        if signal_number and state.step < end:
            raise Interrupted(state.folder.path, state.step, signal_number)


def train_step(state: RunState, batch: DomainBatch) -> Losses:
    """One forward, one backward, one update."""
    progress = Progress(state.step, state.steps)
    state.set_rates()
    # Dropout and the like: a function of the step, so that a resume needs no generator's state
    _seed(state, (state.experiment.seed << 32) + state.step * 1021 + state.process.rank)
    changes = style_changes(state.experiment.augment, batch, across_devices.gather)
    with state.method.network.changed_inputs(changes):
        losses: Losses = state.module(batch, progress)
    state.fabric.backward(losses["loss"])
    state.method.edit_gradients(progress)
    if state.experiment.clip_gradient is not None:
        parameters = state.method.parameters()
        torch.nn.utils.clip_grad_norm_(parameters, state.experiment.clip_gradient)
    state.optimizer.step()
    state.optimizer.zero_grad()
    state.method.after_update(progress)
    if state.average is not None and not state.method.preparing:
        state.average.after_step(state.step + 1)
    return losses


def _seed(state: RunState, seed: int) -> None:
    """On a CPU its own generator alone: seeding those of absent GPUs costs as much as a step."""
    if state.process.device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


def _watch(state: RunState, losses: Losses, last: bool) -> None:
    """Record every so often; on a GPU only then, because looking at a number waits for it."""
    due = last or state.step % state.experiment.log_every == 0
    if not due and state.process.device.type != "cpu":
        return
    values = torch.stack([value.detach().float() for value in losses.values()])
    values = over_devices(state.fabric, values, "sum") / state.process.world_size
    record = dict(zip(losses, values.tolist(), strict=True))
    if not math.isfinite(record["loss"]):  # on all devices, so all of them stop
        raise loss_diverged(state.experiment, state.folder.path, state.step, record)
    if due and state.log is not None:
        lr = state.optimizer.param_groups[-1]["lr"]
        state.log.write({"step": state.step, **record, "lr": lr})
    if state.fabric.is_global_zero:
        state.display.step(state.step, record["loss"])


def _stop_if_weights_diverged(state: RunState) -> None:
    finite = [parameter.isfinite().all() for parameter in state.method.parameters()]
    if not torch.stack(finite).all():
        raise weights_diverged(state.experiment, state.folder.path, state.step)


def _agree_to_stop(state: RunState, stop: StopFlag) -> int:
    """The signal that any process was sent, known to all of them."""
    if state.process.world_size == 1:
        return stop.signal_number
    flag = torch.tensor(stop.signal_number, device=state.process.device)
    return int(over_devices(state.fabric, flag, "max"))
