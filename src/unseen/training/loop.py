"""The training loop, for one run and for many: one page, plain functions."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean

import torch
from lightning_fabric import Fabric

from unseen.data.dataset import OpenDatasets
from unseen.errors import UnseenError
from unseen.methods.base import Losses, Progress
from unseen.reports.trackers import Subject, Trackers
from unseen.results.folder import MetricsLog, RunFolder
from unseen.settings.experiment import Experiment, complete_settings, identity
from unseen.training.build import Run
from unseen.training.checkpoints import Checkpoint
from unseen.training.devices import Interrupted, StopFlag, over_devices, stop_requests, tune_malloc
from unseen.training.display import Display
from unseen.training.session import Session, open_session
from unseen.training.validation import finish, validate


def train(
    fabric: Fabric,
    members: Sequence[tuple[Experiment, RunFolder]],
    display: Display,
    log: Sequence[str] = (),
    until: int | None = None,
    datasets: OpenDatasets | None = None,
) -> dict[Path, UnseenError]:
    """Trains to the end, then measure; everything goes to the folders. The errors of runs that
    diverged come back; the others are not affected.

    A single run begins at its newest checkpoint. `log` names trackers that get the same records;
    `until` is a step to pause at: its checkpoint is written, there is no result yet, and going on
    gives what a run without a pause gives.
    """
    tune_malloc()
    session = open_session(fabric, members, display, datasets)
    try:
        with tracked(session, log):
            with stop_requests() as stop:
                fit(session, stop, session.steps if until is None else min(until, session.steps))
            for run in session.runs if len(session.runs) > 1 else ():
                run.log = MetricsLog(run.folder.metrics, 0)
                for record in run.records:
                    run.log.write(record)
                run.log.sync()
                run.log.close()
            if session.step == session.steps and session.active:
                finish(session)
            fabric.barrier()  # no process looks for the result before it is there
    finally:
        for run in session.runs:
            if run.log is not None:
                run.log.close()
    return {run.folder.path: run.error for run in session.runs if run.error is not None}


def fit(session: Session, stop: StopFlag, end: int) -> None:
    """Makes all steps that remain until `end`; a run that diverges goes no further."""
    shared = session.shared
    for batch in session.batches(range(session.step, end)):
        losses = session.learner.step(batch, Progress(session.step, session.steps))
        session.step += 1
        watch(session, losses)
        if not session.active:
            return
        if session.step == session.steps or session.step % shared.evaluate_every == 0:
            validate(session)
        signal_number = _agree_to_stop(session, stop)
        pause = session.step == end or signal_number
        if pause or session.step % shared.checkpoint_every == 0:
            # an infinite gradient spoils the weights a step before the loss shows it
            finite = session.learner.finite()
            for number, run in session.active:
                if not finite[number]:
                    _diverge(run, f"the weights are not finite after step {session.step}")
            if not session.active:
                return
            save(session)
        if signal_number and session.step < end:
            alone = len(session.runs) == 1
            raise Interrupted(session.runs[0].folder.path, session.step, signal_number, alone)


def watch(session: Session, losses: Losses) -> None:
    """Records losses every so often; on a GPU and on several devices only then, because looking at
    a number waits for it."""
    due, devices = session.log_due, session.fabric.world_size
    if not due and (session.fabric.device.type != "cpu" or devices > 1):
        return
    values = torch.stack([value.detach().float() for value in losses.values()])
    values = over_devices(session.fabric, values, "sum") / devices
    by_run = values.reshape(len(losses), -1).T.tolist()
    rates = session.learner.rates() if due else []
    finite = []
    for number, run in session.active:
        record = dict(zip(losses, by_run[number], strict=True))
        if not math.isfinite(record["loss"]):  # on all devices, so all of them stop
            parts = ", ".join(f"{name} {value:.4g}" for name, value in record.items())
            _diverge(run, f"the loss is not finite at step {session.step} ({parts})")
            continue
        finite.append(record["loss"])
        if due and session.fabric.is_global_zero:
            run.record({"step": session.step, **record, "lr": rates[number]})
    if finite and session.fabric.is_global_zero:
        session.display.step(session.step * len(session.runs), fmean(finite))


def _diverge(run: Run, what: str) -> None:
    run.error = UnseenError(
        f"{what}.\nMost often the learning rate is too high: try optimizer.lr="
        f"{run.experiment.optimizer.lr / 10:g} or clip_gradient=1. "
        f"The last good checkpoint stays in {run.folder.path}."
    )


def _agree_to_stop(session: Session, stop: StopFlag) -> int:
    """Returns the signal that any process was sent, known to all of them: several ask each other
    where they meet anyhow."""
    if session.fabric.world_size == 1:
        return stop.signal_number
    if not session.log_due:
        return 0
    flag = torch.tensor(stop.signal_number, device=session.fabric.device)
    return int(over_devices(session.fabric, flag, "max"))


def save(session: Session) -> None:
    """Writes a checkpoint of this very step; runs that train together have none."""
    run = session.runs[0]
    if run.log is not None:
        evaluations = [evaluation._asdict() for evaluation in run.evaluations]
        seconds, of_processors = session.times().values()
        session.learner.save(
            Checkpoint(session.step, run.log.sync(), evaluations, seconds, of_processors)
        )


@contextmanager
def tracked(session: Session, names: Sequence[str]) -> Iterator[None]:
    """Sends what this process records of a single run to trackers, from the beginning; then the
    result."""
    run = session.runs[0]
    if run.log is None or not names:
        yield
        return
    folder, experiment = run.folder, run.experiment
    subject = Subject(
        folder.path.name, identity(experiment), complete_settings(experiment), folder.path.parent
    )
    trackers = Trackers(names, subject, session.display.line)
    finished = False
    try:
        for record in folder.read_metrics():
            trackers.record(record)
        run.log.listener = trackers.record
        yield
        if folder.finished:  # not where it pauses
            trackers.result(folder.read_result())
            finished = True
    finally:
        trackers.close(finished)
