"""Train experiments: skip, resume or start a run, on one device or several; many runs together,
where they fit into one stack."""

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric
from rich.console import Console
from torch import nn

from unseen.data.dataset import OpenDatasets
from unseen.data.index import Index
from unseen.data.roles import Roles, choose_roles, warnings_about_images
from unseen.errors import SettingsError, UnseenError
from unseen.methods.base import DatasetPassMethod, Method
from unseen.networks.layers import BATCH_NORMS
from unseen.networks.stages import DROPOUTS
from unseen.results.folder import RunBusy, RunFolder
from unseen.settings import catalog
from unseen.settings.experiment import Experiment, complete_settings
from unseen.settings.recipes import build_experiment
from unseen.training import build
from unseen.training.average import check_averaging
from unseen.training.devices import Interrupted, ProcessLost, is_first_process, launch
from unseen.training.display import Display
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
        error = errors.get(folder.path)
    else:
        own_errors: SimpleQueue[UnseenError] = get_context("spawn").SimpleQueue()
        settings = complete_settings(experiment)
        with display.handed_over():
            try:
                arguments = (settings, folder.path, log, own_errors, until, display.console.quiet)
                error = launch(experiment, _train_in_process, *arguments)
            except ProcessLost as lost:
                error = lost if own_errors.empty() else own_errors.get()
    if error is not None:
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
        experiment, datasets = build_experiment(settings), OpenDatasets()
        members = [(experiment, RunFolder(path))]
        with Display(console, length(experiment, datasets), path.name) as display:
            return train(fabric, members, display, log, until, datasets).get(path)
    except UnseenError as error:
        if own_errors is not None and not fabric.is_global_zero:
            own_errors.put(error)
        return error


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
        if not unfinished:
            return {}
        for experiment, folder in unfinished:
            folder.create(experiment)
        failed = launch(members[0][0], train, unfinished, display, (), None, datasets)
        for _, folder in unfinished:
            folder.clear_up()
        return failed


def length(experiment: Experiment, datasets: OpenDatasets | None = None) -> int:
    """Returns the steps of a run. Only a length in epochs needs the dataset, which is taken from
    `datasets`: with the same ones, the lengths of many runs cost one look at each dataset."""
    if experiment.steps is not None:
        return experiment.steps
    roles = _choose_roles(experiment, datasets or OpenDatasets())
    return build.count_steps(experiment, build.build_sampler(experiment, roles))


def remarks_before(experiment: Experiment, datasets: OpenDatasets) -> list[str]:
    """Returns what has to be said about the images of a run before it trains."""
    roles = _choose_roles(experiment, datasets)
    return warnings_about_images(datasets.open(experiment.data).index(), roles, experiment)


def _choose_roles(experiment: Experiment, datasets: OpenDatasets) -> Roles:
    build.check_target_use(experiment)
    index = datasets.open(experiment.data).index()
    roles = choose_roles(index, experiment.data, experiment.setting)
    build.check_augmentation(experiment, roles)
    return roles


LARGEST = 256
"""Runs in a stack."""
MEMORY = 2 * 2**30
"""Bytes that a stack may take, by a rough estimate."""
_COPIES = 8
"""Of a run's tensors and of its batch: gradients, moments, preferred weights, activations."""
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
"""Side by side they become one grouped convolution, many times slower than one after the other."""


def stackable_groups(
    experiments: Sequence[Experiment], datasets: OpenDatasets | None = None
) -> list[tuple[Experiment, ...]]:
    """Returns the runs that may be trained together, in order; every other one alone.

    Together train runs from stored features (`network.freeze_until`, generalization, balanced
    batches, one device, full precision, no `swad`) of a method that is `stackable`, does not need
    pixels and does nothing between steps. They differ in seed, unseen and training domains (of the
    same number) and in numbers with a fraction, such as rates and weights of losses; in nothing
    else.
    What learns must be the same function in training and prediction: a network with dropout, or
    with batch norm that adapts, behind the boundary trains alone, because its dropout is drawn from
    a generator that each run has to itself. So do methods that keep something from step to step in
    buffers, runs with random weights and other seeds (their frozen parts are not the same), and
    runs with MixStyle, which looks at one batch at a time.
    """
    groups = group_runs(experiments, datasets or OpenDatasets())
    return [tuple(experiments[number] for number in numbers) for numbers in groups]


def group_runs(experiments: Sequence[Experiment], datasets: OpenDatasets) -> list[list[int]]:
    """Returns the groups by the numbers of their runs."""
    found: dict[str, list[int]] = {}
    for number, experiment in enumerate(experiments):
        try:
            key = _key(experiment, datasets)
        except UnseenError:  # training it reports what is wrong
            key = None
        found.setdefault(key or f"alone {number}", []).append(number)
    groups = []
    for numbers in found.values():
        size = 1
        if len(numbers) > 1:
            first = experiments[numbers[0]]
            size = _largest(first, datasets.open(first.data).index())
        groups += [numbers[start : start + size] for start in range(0, len(numbers), size)]
    return sorted(groups)


def _key(experiment: Experiment, datasets: OpenDatasets) -> str | None:
    """Returns what is equal for runs of one stack, in which numbers with a fraction are hidden;
    None for a run that cannot be part of any."""
    kind: type[Method] = catalog.load("method", experiment.method.name)
    fits = (
        build.trains_from_features(experiment),
        experiment.setting == "generalization",
        experiment.sampling != "pooled",
        experiment.devices.number == 1,
        experiment.precision == "32",
        experiment.averaging.name != "swad",
        not experiment.compile,
        experiment.augment.mixstyle == 0,
        experiment.selection != "oracle" or experiment.data.unseen_domain,
        kind.traits.stackable,
        kind.edit_gradients is Method.edit_gradients,
        kind.after_update is Method.after_update,
        not issubclass(kind, DatasetPassMethod),
    )
    if not all(fits):
        return None
    index, views = datasets.open(experiment.data).index(), experiment.network.views
    roles = choose_roles(index, experiment.data)
    settings = complete_settings(experiment)
    # stored views depend on the augmentation, to its last digit
    for section in ("method", "optimizer", "schedule", *(() if views else ("augment",))):
        settings[section] = {name: _kind(value) for name, value in settings[section].items()}
    for name in ("unseen_domain", "training_domains"):
        settings["data"].pop(name, None)
    mixing = views > 0 and experiment.augment.amplitude_mix > 0
    del settings["epochs"]
    settings |= {
        "clip_gradient": _kind(experiment.clip_gradient),
        "seed": experiment.seed if experiment.network.pretrained is False else None,
        "steps": build.count_steps(experiment, build.build_sampler(experiment, roles)),
        "classes": index.classes_in(roles.training_domains),
        "training domains": roles.training_domains if mixing else len(roles.training_domains),
    }
    return json.dumps(settings, sort_keys=True)


def _kind(value: Any) -> Any:
    return "a number" if isinstance(value, float) else value


def _largest(experiment: Experiment, index: Index) -> int:
    """Returns how many such runs a stack may hold: one, if the part that learns is not made for
    it."""
    task = build.build_task(index, experiment)
    method = build.build_method(experiment, task).train()
    if not _fits(method):
        return 1
    network = method.network
    assert network.frozen_until is not None
    numbers = sum(tensor.numel() for _, tensor in build.own_tensors(method))
    batch = experiment.images_per_domain * len(task.domains)
    numbers += batch * math.prod(network.input_shapes[network.frozen_until])
    return max(1, min(LARGEST, MEMORY // (4 * _COPIES * numbers)))


def _fits(method: Method) -> bool:
    """Returns whether what learns is one function in training and prediction, of tensors that each
    have one name: no dropout, no batch norm that adapts, no shared weights, no buffers that
    prediction needs; and that nothing of it is slower together than one by one: no convolutions."""
    aside = {"network", *method.traits.training_only}
    if any(name.partition(".")[0] not in aside for name, _ in method.named_buffers()):
        return False
    own = [id(tensor) for _, tensor in build.own_tensors(method)]
    network = method.network
    frozen = {m for name in network.frozen_stages() for m in network.stage(name).modules()}
    return len(set(own)) == len(own) and not any(
        isinstance(module, _CONVOLUTIONS)
        or (isinstance(module, BATCH_NORMS) and module.training)
        or (isinstance(module, DROPOUTS) and module.p > 0)
        or any((getattr(module, name, 0.0) or 0.0) > 0 for name in ("drop_prob", "drop_rate"))
        for module in method.modules()
        if module not in frozen
    )
