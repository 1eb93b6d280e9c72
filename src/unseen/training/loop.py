"""The training loop: one page, plain functions. Whoever wants another loop copies this page."""

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from lightning_fabric import Fabric

from unseen.config import Experiment
from unseen.data.batch import DomainBatch
from unseen.errors import UnseenError
from unseen.methods.base import Losses, Progress
from unseen.training.devices import keep_freed_memory
from unseen.training.display import Display
from unseen.training.interruptions import Interrupted, StopFlag, stop_requests
from unseen.training.measuring import evaluate, write_result
from unseen.training.state import RunState, assemble, over_devices, save
from unseen.training.tracking import tracked


def train(
    fabric: Fabric, experiment: Experiment, path: Path, display: Display, log: Sequence[str] = ()
) -> None:
    """Train from the newest checkpoint to the end, then measure; everything goes to the folder.

    `log` names trackers that get the same records.
    """
    keep_freed_memory()
    state = assemble(fabric, experiment, path, display)
    try:
        with tracked(state, log):
            with stop_requests() as stop:
                fit(state, stop)
            write_result(state)
    finally:
        if state.log is not None:
            state.log.close()


def fit(state: RunState, stop: StopFlag) -> None:
    """All remaining steps."""
    experiment = state.experiment
    state.module.train()
    for batch in state.batches(range(state.step, state.steps)):
        losses = train_step(state, batch)
        state.step += 1
        last = state.step == state.steps
        _watch(state, losses, last)
        if last or state.step % experiment.evaluate_every == 0:
            evaluate(state)
        signal_number = _agree_to_stop(state, stop)
        if last or signal_number or state.step % experiment.checkpoint_every == 0:
            _stop_if_weights_are_lost(state)
            save(state)
        if signal_number and not last:
            raise Interrupted(state.folder.path, state.step, signal_number)


def train_step(state: RunState, batch: DomainBatch) -> Losses:
    """One forward, one backward, one update."""
    progress = Progress(state.step, state.steps)
    state.rates.apply(state.step)
    # Dropout and the like: a function of the step, so that a resume needs no generator's state
    torch.manual_seed((state.experiment.seed << 32) + state.step * 1021 + state.place.rank)
    losses: Losses = state.module(batch, progress)
    state.fabric.backward(losses["loss"])
    for name in state.method.synced:
        buffer = state.method.get_buffer(name)
        buffer.copy_(over_devices(state.fabric, buffer, "sum") / state.place.world)
    state.method.edit_gradients(progress)
    if state.experiment.clip_gradient is not None:
        parameters = state.method.parameters()
        torch.nn.utils.clip_grad_norm_(parameters, state.experiment.clip_gradient)
    state.optimizer.step()
    state.optimizer.zero_grad()
    state.method.after_update(progress)
    return losses


def _watch(state: RunState, losses: Losses, last: bool) -> None:
    """Record every so often; on a GPU only then, because looking at a number waits for it."""
    due = last or state.step % state.experiment.log_every == 0
    if not due and state.place.device.type != "cpu":
        return
    values = torch.stack([value.detach().float() for value in losses.values()])
    values = over_devices(state.fabric, values, "sum") / state.place.world
    record = dict(zip(losses, values.tolist(), strict=True))
    _stop_if_not_finite(state, record)
    if due and state.log is not None:
        lr = state.optimizer.param_groups[-1]["lr"]
        state.log.write({"step": state.step, **record, "lr": lr})
    if state.fabric.is_global_zero:
        state.display.step(state.step, record["loss"])


def _stop_if_not_finite(state: RunState, record: dict[str, float]) -> None:
    """The record is that of all devices, so all of them stop."""
    if not math.isfinite(record["loss"]):
        parts = ", ".join(f"{name} {value:.4g}" for name, value in record.items())
        raise _diverged(state, f"the loss is not finite at step {state.step} ({parts})")


def _stop_if_weights_are_lost(state: RunState) -> None:
    """An endless gradient spoils the weights a step before the loss shows it."""
    finite = [parameter.isfinite().all() for parameter in state.method.parameters()]
    if not torch.stack(finite).all():
        raise _diverged(state, f"the weights are not finite after step {state.step}")


def _diverged(state: RunState, what: str) -> UnseenError:
    return UnseenError(
        f"{what}.\nMost often the learning rate is too high: try optimizer.lr="
        f"{state.experiment.optimizer.lr / 10:g} or clip_gradient=1. "
        f"The last good checkpoint stays in {state.folder.path}."
    )


def _agree_to_stop(state: RunState, stop: StopFlag) -> int:
    """The signal that any process was sent, known to all of them."""
    if state.place.world == 1:
        return stop.signal_number
    flag = torch.tensor(stop.signal_number, device=state.place.device)
    return int(over_devices(state.fabric, flag, "max"))
