"""Training many runs at once: the loop of a stack; see loop.py for that of a single run."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import torch
from lightning_fabric import Fabric
from torch import Tensor

from unseen.data.dataset import OpenDatasets
from unseen.errors import UnseenError
from unseen.methods.base import Losses, Progress
from unseen.results.folder import RunBusy, RunFolder
from unseen.settings.experiment import Experiment
from unseen.training.devices import keep_freed_memory, launch
from unseen.training.display import Display
from unseen.training.execute import execute
from unseen.training.interruptions import (
    Interrupted,
    StopFlag,
    loss_diverged,
    stop_requests,
    weights_diverged,
)
from unseen.training.optimizers import schedule_factor
from unseen.training.stacked.groups import group_runs
from unseen.training.stacked.method import bundles
from unseen.training.stacked.optimizer import StackedOptimizer, clip
from unseen.training.stacked.results import validate, write_results
from unseen.training.stacked.stack import Stack, assemble_stack, stacked_batches


class RunsFailed(UnseenError):
    """Some of several runs could not be finished; the others are."""

    def __init__(self, errors: Mapping[Path, UnseenError]) -> None:
        super().__init__("\n".join(f"{path.name}: {error}" for path, error in errors.items()))
        self.errors = dict(errors)

    def __reduce__(self) -> tuple:
        return RunsFailed, (self.errors,)


def train_together(
    experiments: Sequence[Experiment],
    folders: Sequence[RunFolder],
    display: Display,
    datasets: OpenDatasets | None = None,
) -> None:
    """Train all runs to their end, with the files that `execute` would leave.

    Finished runs are skipped, ones with a checkpoint are resumed alone. A stack that is killed
    leaves nothing that would hinder the next attempt. Runs that diverge fail alone: `RunsFailed`
    is raised when all others are done.
    """
    datasets = datasets or OpenDatasets()
    waiting = [(e, f) for e, f in zip(experiments, folders, strict=True) if not f.finished]
    failed: dict[Path, UnseenError] = {}
    for numbers in group_runs([experiment for experiment, _ in waiting], datasets):
        members = [waiting[number] for number in numbers]
        fresh = [member for member in members if not member[1].checkpoint.is_file()]
        if len(fresh) > 1:
            failed |= _train_fresh(fresh, display, datasets)
        for experiment, folder in members:
            if folder.path in failed:
                continue
            try:
                execute(experiment, folder, display, datasets=datasets)
            except (Interrupted, RunBusy):
                raise
            except UnseenError as error:
                failed[folder.path] = error
    if failed:
        raise RunsFailed(failed)


def _train_fresh(
    members: Sequence[tuple[Experiment, RunFolder]], display: Display, datasets: OpenDatasets
) -> dict[Path, UnseenError]:
    with ExitStack() as locks:
        for _, folder in members:
            locks.enter_context(folder.locked())
        unfinished = [member for member in members if not member[1].finished]
        for experiment, folder in unfinished:
            folder.create(experiment)
        failed = {}
        if unfinished:
            failed = launch(members[0][0], train_stack, unfinished, display, datasets)
        for _, folder in unfinished:
            folder.clear_up()
        return failed


def train_stack(
    fabric: Fabric,
    members: Sequence[tuple[Experiment, RunFolder]],
    display: Display,
    datasets: OpenDatasets,
) -> dict[Path, UnseenError]:
    """Train from the first step to the last, measure, write; the errors of runs that diverged."""
    keep_freed_memory()
    stack = assemble_stack(fabric, members, display, datasets)
    with stop_requests() as stop:
        _fit(stack, stop)
    write_results(stack)
    return {run.folder.path: run.error for run in stack.runs if run.error is not None}


def training_steps(stack: Stack) -> Iterator[tuple[Losses, Tensor]]:
    """One forward, one backward, one update of all runs; their losses, and the factors of their
    learning rates at this step."""
    learning, device = stack.method.learning, stack.feed.process.device
    settings = [run.experiment.optimizer for run in stack.runs]
    optimizer = StackedOptimizer(learning, [run.rates for run in stack.runs], settings)
    factors = _factors(stack)
    longest = [run.experiment.clip_gradient for run in stack.runs]
    rectangles = bundles([stream.n_runs for stream in stack.streams])
    batches = stacked_batches(stack.features, stack.streams, stack.steps, device)
    for step, batch in enumerate(batches):
        losses = stack.method.losses(batch, Progress(step, stack.steps), rectangles)
        found = torch.autograd.grad(losses["loss"].sum(), list(learning.values()))
        gradients = dict(zip(learning, found, strict=True))
        if longest[0] is not None:
            clip(gradients, torch.tensor(longest))
        optimizer.step(gradients, factors[step])
        if stack.average is not None:
            stack.average.after_step(step + 1)
        yield losses, factors[step]


def _fit(stack: Stack, stop: StopFlag) -> None:
    """All steps; a run that diverges goes no further and leaves the others alone."""
    shared = stack.shared
    for done, (losses, factors) in enumerate(training_steps(stack), start=1):
        last = done == stack.steps
        _watch(stack, done, losses, factors)
        if last or done % shared.evaluate_every == 0:
            validate(stack, done)
        if last or done % shared.checkpoint_every == 0:
            _drop_diverged(stack, done)
        if stop.signal_number and not last:
            raise Interrupted(stack.runs[0].folder.path, done, stop.signal_number, alone=False)
        if not stack.active:
            return


def _factors(stack: Stack) -> Tensor:
    """Of the learning rates, `[steps, runs]`."""

    columns: dict[tuple[str, int], Tensor] = {}
    of_runs = []
    for run in stack.runs:
        schedule, epoch = run.experiment.schedule, run.sampler.steps_per_epoch
        key = (schedule.model_dump_json(), epoch)
        if key not in columns:
            values = [schedule_factor(schedule, s, stack.steps, epoch) for s in range(stack.steps)]
            columns[key] = torch.tensor(values, dtype=torch.float64)
        of_runs.append(columns[key])
    return torch.stack(of_runs, dim=1)


def _watch(stack: Stack, step: int, losses: Losses, factors: Tensor) -> None:
    """Record every so often; on a GPU look at the numbers only then, as a single run does."""
    due = step == stack.steps or step % stack.shared.log_every == 0
    if not due and stack.feed.process.device.type != "cpu":
        return
    values = torch.stack([value.detach().float() for value in losses.values()], dim=1).cpu()
    loss = values[:, list(losses).index("loss")]
    finite = loss.isfinite()
    if finite.any():
        stack.display.step(step * len(stack.runs), loss[finite].mean().item())
    if finite.all() and not due:
        return
    rows, shares = values.tolist(), factors.tolist()
    for number, run in stack.active:
        record = dict(zip(losses, rows[number], strict=True))
        if not finite[number]:
            run.error = loss_diverged(run.experiment, run.folder.path, step, record)
        elif due:
            lr = run.rates.recorded * shares[number]
            run.records.append({"step": step, **record, "lr": lr})


def _drop_diverged(stack: Stack, step: int) -> None:
    finite = [tensor.isfinite().flatten(1).all(dim=1) for tensor in stack.method.learning.values()]
    for number, good in enumerate(torch.stack(finite).all(dim=0).tolist()):
        run = stack.runs[number]
        if not good and run.error is None:
            run.error = weights_diverged(run.experiment, run.folder.path, step)
