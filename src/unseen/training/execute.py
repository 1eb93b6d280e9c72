"""Train experiments: skip, resume or start a run, on one device or several; many runs together."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric
from rich.console import Console

from unseen.data.dataset import OpenDatasets
from unseen.data.roles import Roles, choose_roles, warnings_about_images
from unseen.errors import SettingsError, UnseenError
from unseen.results.folder import RunBusy, RunFolder
from unseen.settings.experiment import Experiment, complete_settings
from unseen.settings.recipes import build_experiment
from unseen.training.average import check_averaging
from unseen.training.build import build_sampler, check_augmentation, check_target_use, count_steps
from unseen.training.devices import ProcessLost, is_first_process, launch
from unseen.training.display import Display
from unseen.training.groups import group_runs
from unseen.training.interruptions import Interrupted
from unseen.training.loop import train


def execute(
    experiment: Experiment,
    folder: RunFolder,
    display: Display,
    log: Sequence[str] = (),
    until: int | None = None,
    datasets: OpenDatasets | None = None,
) -> None:
    """Train the run in this folder to its end; finished work is not repeated. `log` names trackers.

    `until` is a step to pause at, with a checkpoint and without a result. Runs that share
    `datasets` index each dataset only once.
    """
    if folder.finished:
        return
    if experiment.selection == "oracle" and not experiment.data.unseen_domain:
        raise SettingsError("selection=oracle chooses on the unseen domain; set data.unseen_domain")
    datasets = datasets or OpenDatasets()
    _choose_roles(experiment, datasets)  # a misspelt domain leaves no folder behind
    check_averaging(experiment, length(experiment, datasets))
    first = is_first_process()
    with folder.locked() if first else nullcontext():
        if not folder.finished:  # another process may just have been quicker
            if first:  # what another process is writing would be taken for a leftover
                folder.create(experiment)
            _launch(experiment, folder, display, log, until, datasets)
            if first:
                folder.clear_up()


def _launch(
    experiment: Experiment,
    folder: RunFolder,
    display: Display,
    log: Sequence[str],
    until: int | None,
    datasets: OpenDatasets,
) -> None:
    if experiment.devices.number == 1:
        members = [(experiment, folder)]
        errors = launch(experiment, train, members, display, log, until, datasets)
        raise_first(errors)
        return
    own_errors: SimpleQueue[UnseenError] = get_context("spawn").SimpleQueue()
    settings = complete_settings(experiment)
    with display.handed_over():
        try:
            arguments = (settings, folder.path, log, own_errors, until, display.silent)
            error = launch(experiment, _train_in_process, *arguments)
        except ProcessLost as lost:
            error = lost if own_errors.empty() else own_errors.get()
    if error is not None:
        raise error


def raise_first(errors: Mapping[Path, UnseenError]) -> None:
    """Raises the error of a single run, if it has one."""
    for error in errors.values():
        raise error


def _train_in_process(
    fabric: Fabric,
    settings: Mapping[str, Any],
    path: Path,
    log: Sequence[str] = (),
    own_errors: "SimpleQueue[UnseenError] | None" = None,
    until: int | None = None,
    silent: bool = False,
) -> UnseenError | None:
    """One of several processes: settings travel as plain data, rank 0 has a display of its own.

    Errors meant for the user are mostly the same in all processes, and rank 0 hands them back. One
    that another process has alone would end rank 0 by a broken connection: it goes to `own_errors`.
    """
    console = Console(stderr=True, quiet=silent or not fabric.is_global_zero)
    try:
        experiment = build_experiment(settings)
        datasets = OpenDatasets()
        members = [(experiment, RunFolder(path))]
        with Display(console, length(experiment, datasets), path.name) as display:
            raise_first(train(fabric, members, display, log, until, datasets))
    except UnseenError as error:
        if own_errors is not None and not fabric.is_global_zero:
            own_errors.put(error)
        return error
    return None


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

    Finished runs are skipped, ones with a checkpoint are resumed alone. A session of many runs that
    is killed leaves nothing that would hinder the next attempt. Runs that diverge fail alone:
    `RunsFailed` is raised when all others are done.
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
            arguments = (unfinished, display, (), None, datasets)
            failed = launch(members[0][0], train, *arguments)
        for _, folder in unfinished:
            folder.clear_up()
        return failed


def length(experiment: Experiment, datasets: OpenDatasets | None = None) -> int:
    """Returns the steps of a run. Only a length in epochs needs the dataset, which is taken from
    `datasets`: with the same ones, the lengths of many runs cost one look at each dataset."""
    if experiment.steps is not None:
        return experiment.steps
    roles = _choose_roles(experiment, datasets or OpenDatasets())
    return count_steps(experiment, build_sampler(experiment, roles))


def remarks_before(experiment: Experiment, datasets: OpenDatasets) -> list[str]:
    """Returns what has to be said about the images of a run before it trains."""
    roles = _choose_roles(experiment, datasets)
    return warnings_about_images(datasets.open(experiment.data).index(), roles, experiment)


def _choose_roles(experiment: Experiment, datasets: OpenDatasets) -> Roles:
    check_target_use(experiment)
    index = datasets.open(experiment.data).index()
    roles = choose_roles(index, experiment.data, experiment.setting)
    check_augmentation(experiment, roles)
    return roles
