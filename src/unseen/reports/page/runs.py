"""The records of runs as the page needs them: finished or not, named by what differs."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from unseen.atomic import read_object
from unseen.errors import UnseenError
from unseen.reports.gather import MethodKey, column_name
from unseen.results.files import read_arrays_if_whole
from unseen.results.folder import RunFolder, find_runs, read_run_list
from unseen.results.result import RunResult, labelled_bound
from unseen.settings.experiment import Metric
from unseen.settings.recipes import flattened

_ONE_STUDY = ("seed", "recipe", "data.unseen_domain", "data.training_domains", "data.root")
_ONE_STUDY += ("data.cache",)
"""Settings in which the runs of one method may differ and still fill one row of a table."""
_MOST_NAMED = 2  # settings in a row's name; forms that differ in more are numbered


@dataclass(frozen=True)
class Run:
    """One run folder; `label` is its recipe's name, or tells apart two forms of one recipe."""

    folder: RunFolder
    settings: Mapping[str, Any]
    metrics: Sequence[Mapping[str, Any]]
    result: RunResult | None
    label: str
    environment: Mapping[str, Any]
    timing: Mapping[str, Any]
    method: str
    backbone: str
    seed: int
    unseen_domains: tuple[str, ...]
    training_domains: tuple[str, ...]
    rule: str
    metric: Metric
    upper_bound: bool
    """Whether it was trained on labels of the domain that it is measured on."""
    place: int = 0
    """The place of its row, where a list of runs names the rows."""

    @property
    def name(self) -> str:
        return self.folder.path.name

    @property
    def row(self) -> MethodKey:
        return self.label, self.backbone

    @property
    def column(self) -> str:
        return column_name(self.unseen_domains)

    @cached_property
    def evaluations(self) -> list[Mapping[str, Any]]:
        return [record for record in self.metrics if "validation" in record]

    @property
    def steps_done(self) -> int:
        return max((record["step"] for record in self.metrics), default=0)

    @property
    def statistics(self) -> Mapping[str, Any]:
        """The method's own statistics at the step that the run's rule chose, or at the newest."""
        if not self.evaluations:
            return {}
        step = self.result.under(self.rule).step if self.result else self.steps_done
        chosen = [record for record in self.evaluations if record["step"] == step]
        return (chosen or self.evaluations)[-1].get("statistics") or {}

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns what its method handed over; empty without a whole file."""
        return read_arrays_if_whole(self.folder.arrays)


def load_runs(folder: Path) -> tuple[list[Run], list[tuple[Path, str]]]:
    """Reads every run below a folder. One that cannot be read hides no other: its folder is named,
    and why."""
    runs, problems = [], []
    listed = read_run_list(folder)
    rows = dict(zip(listed.runs, listed.rows, strict=False)) if listed else {}
    order = list(dict.fromkeys(rows.values()))
    for each in find_runs(folder):
        try:
            run = _load(each)
            if row := rows.get(each.path):
                run = replace(run, label=row, place=order.index(row))
            runs.append(run)
        except (UnseenError, KeyError, TypeError, AttributeError) as error:
            reason = str(error) if isinstance(error, UnseenError) else f"no {error} in its records"
            problems.append((each.path, reason))
    return runs, problems


def _load(folder: RunFolder) -> Run:
    settings = folder.read_settings()
    data = settings["data"]
    result = folder.read_result() if folder.finished else None
    environment, timing, images = (
        read_object(path) if path.is_file() else {}
        for path in (folder.environment, folder.timing, folder.data)
    )
    if timing:
        folder.read_seconds()
    if not all(isinstance(word, str) for word in environment.get("command") or ()):
        raise UnseenError(f"{folder.environment} is damaged: its command is not made of words")

    def domains(name: str, setting: str) -> tuple[str, ...]:
        known = getattr(result, name) if result else images.get(name)
        return tuple(known or data[setting])

    label = settings.get("recipe") or settings["method"]["name"]
    if data.get("train_on_unseen"):
        label = labelled_bound(label)
    run = Run(
        folder,
        settings,
        folder.read_metrics(),
        result,
        result.label if result else label,
        environment,
        timing,
        method=settings["method"]["name"],
        backbone=settings["network"]["name"],
        seed=result.seed if result else settings["seed"],
        unseen_domains=domains("unseen_domains", "unseen_domain"),
        training_domains=domains("training_domains", "training_domains"),
        rule=settings["selection"],
        metric=settings.get("metric", "accuracy"),
        upper_bound=bool(data.get("train_on_unseen")),
    )
    if not all((run.backbone, run.rule)) or run.seed is None:
        raise UnseenError(f"{folder.settings} lacks a setting")
    return run


def with_labels(runs: Iterable[Run]) -> list[Run]:
    """Names what distinguishes runs that would fill the same cell of a table."""
    by_row: dict[MethodKey, list[Run]] = {}
    for run in runs:
        by_row.setdefault(run.row, []).append(run)
    return [named for group in by_row.values() for named in _name_apart(group)]


def _name_apart(runs: list[Run]) -> list[Run]:
    """Distinguishes runs by settings, `dmg overlap_weight=0.1`, or by number where they differ in
    more than a row has room for."""
    if not _clash(runs):
        return runs
    flat = [flattened(run.settings) for run in runs]
    keys = sorted({key for settings in flat for key in settings} - set(_ONE_STUDY))
    keys = [key for key in keys if not key.startswith("devices.")]
    varying = [key for key in keys if len({str(settings.get(key)) for settings in flat}) > 1]
    forms = [
        " ".join(f"{key.rpartition('.')[2]}={settings.get(key)}" for key in varying)
        for settings in flat
    ]
    if len(varying) > _MOST_NAMED:
        order = list(dict.fromkeys(forms))
        forms = [str(order.index(form) + 1) for form in forms]
    named = [
        replace(run, label=f"{run.label} {form}".strip())
        for run, form in zip(runs, forms, strict=True)
    ]
    if _clash(named):
        named = [replace(run, label=f"{run.label} {run.name[-12:]}") for run in named]
    return named


def _clash(runs: Iterable[Run]) -> bool:
    places = Counter((run.label, run.column, run.seed) for run in runs)
    return any(number > 1 for number in places.values())
