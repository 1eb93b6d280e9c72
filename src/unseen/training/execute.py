"""Carry out one experiment: skip it, resume it or start it, on one device or several."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric
from rich.console import Console

from unseen.config import Experiment, complete_settings
from unseen.data.prepare import open_dataset
from unseen.data.roles import Roles, choose_roles
from unseen.errors import SettingsError, UnseenError
from unseen.recipe_files import build_experiment
from unseen.records.folder import RunFolder
from unseen.training.build import build_sampler, count_steps, looks_at_target
from unseen.training.devices import ProcessLost, is_first_process, launch
from unseen.training.display import Display
from unseen.training.loop import train


def execute(
    experiment: Experiment,
    folder: RunFolder,
    display: Display,
    log: Sequence[str] = (),
    until: int | None = None,
) -> None:
    """Bring the run in this folder to its end; nothing is done twice. `log` names trackers.

    `until` is a step to pause at, with a checkpoint and without a result.
    """
    if folder.finished:
        return
    if experiment.selection == "oracle" and not experiment.data.unseen_domain:
        raise SettingsError("selection=oracle chooses on the unseen domain; set data.unseen_domain")
    _choose_roles(experiment)  # a missing dataset or a misspelt domain leaves no folder behind
    with folder.locked() if is_first_process() else nullcontext():
        if not folder.finished:  # another process may just have been quicker
            folder.create(experiment)
            _launch(experiment, folder, display, log, until)
            if folder.finished:
                folder.failure.unlink(missing_ok=True)


def _launch(
    experiment: Experiment,
    folder: RunFolder,
    display: Display,
    log: Sequence[str],
    until: int | None,
) -> None:
    if experiment.devices.number == 1:
        launch(experiment, train, experiment, folder.path, display, log, until)
    else:
        own_words: SimpleQueue[UnseenError] = get_context("spawn").SimpleQueue()
        settings = complete_settings(experiment)
        with display.handed_over():
            try:
                told = (settings, folder.path, log, own_words, until, display.silent)
                error = launch(experiment, _train_in_process, *told)
            except ProcessLost as lost:
                error = lost if own_words.empty() else own_words.get()
        if error is not None:
            raise error


def _train_in_process(
    fabric: Fabric,
    settings: Mapping[str, Any],
    path: Path,
    log: Sequence[str] = (),
    own_words: "SimpleQueue[UnseenError] | None" = None,
    until: int | None = None,
    silent: bool = False,
) -> UnseenError | None:
    """One of several processes: settings travel as plain data, rank 0 has a display of its own.

    Errors meant for the user are mostly the same in all processes, and rank 0 hands them back. One
    that another process has alone would end rank 0 by a broken connection: it goes to `own_words`.
    """
    console = Console(stderr=True, quiet=silent or not fabric.is_global_zero)
    try:
        experiment = build_experiment(settings)
        with Display(console, length(experiment), path.name) as display:
            train(fabric, experiment, path, display, log, until)
    except UnseenError as error:
        if own_words is not None and not fabric.is_global_zero:
            own_words.put(error)
        return error
    return None


def length(experiment: Experiment) -> int:
    """Steps of a run; looks at the dataset only where the length is given in epochs."""
    if experiment.steps is not None:
        return experiment.steps
    return count_steps(experiment, build_sampler(experiment, _choose_roles(experiment)))


def _choose_roles(experiment: Experiment) -> Roles:
    looks_at_target(experiment)
    index = open_dataset(experiment.data).index()
    return choose_roles(index, experiment.data, experiment.setting)
