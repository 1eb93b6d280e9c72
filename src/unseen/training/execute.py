"""Carry out one experiment: skip it, resume it or start it, on one device or several."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric
from rich.console import Console

from unseen.config import Experiment, complete_settings
from unseen.data.prepare import open_dataset
from unseen.data.roles import Roles, choose_roles
from unseen.errors import SettingsError, UnseenError
from unseen.recipe_files import build_experiment
from unseen.records import RunFolder
from unseen.training.build import build_sampler, count_steps, looks_at_target
from unseen.training.devices import is_first_process, launch
from unseen.training.display import Display
from unseen.training.loop import train


def execute(
    experiment: Experiment, folder: RunFolder, display: Display, log: Sequence[str] = ()
) -> None:
    """Bring the run in this folder to its end; nothing is done twice. `log` names trackers."""
    if folder.finished:
        return
    if experiment.selection == "oracle" and not experiment.data.unseen_domain:
        raise SettingsError("selection=oracle chooses on the unseen domain; set data.unseen_domain")
    _choose_roles(experiment)  # a missing dataset or a misspelt domain leaves no folder behind
    with folder.locked() if is_first_process() else nullcontext():
        if not folder.finished:  # another process may just have been quicker
            folder.create(experiment)
            _launch(experiment, folder, display, log)


def _launch(
    experiment: Experiment, folder: RunFolder, display: Display, log: Sequence[str]
) -> None:
    if experiment.devices.number == 1:
        launch(experiment, train, experiment, folder.path, display, log)
    else:
        with display.handed_over():
            settings = complete_settings(experiment)
            error = launch(experiment, _train_in_process, settings, folder.path, log)
        if error is not None:
            raise error


def _train_in_process(
    fabric: Fabric, settings: Mapping[str, Any], path: Path, log: Sequence[str] = ()
) -> UnseenError | None:
    """One of several processes: settings travel as plain data, rank 0 has a display of its own.

    Errors meant for the user are the same in all processes, and are handed back to the first.
    """
    console = Console(stderr=True, quiet=not fabric.is_global_zero)
    try:
        experiment = build_experiment(settings)
        with Display(console, length(experiment), path.name) as display:
            train(fabric, experiment, path, display, log)
    except UnseenError as error:
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
