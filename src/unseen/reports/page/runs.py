"""The records of runs as the page needs them: finished or not, told apart by what differs."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from unseen.atomic import read_json
from unseen.errors import UnseenError
from unseen.reports.gather import MethodKey, column_name
from unseen.results.folder import RunFolder, find_runs, read_run_list
from unseen.results.result import Merged, RunResult, labelled_bound
from unseen.settings.experiment import Metric
from unseen.settings.recipes import flattened

_ONE_STUDY = ("seed", "data.unseen_domain", "data.training_domains", "data.root", "data.cache")
"""Settings in which the runs of one method may differ and still fill one row of a table."""


@dataclass(frozen=True)
class Run:
    """One run folder; `label` is its method's name, or tells apart two forms of one method."""

    folder: RunFolder
    settings: Mapping[str, Any]
    metrics: Sequence[Mapping[str, Any]]
    result: RunResult | None
    label: str
    environment: Mapping[str, Any] = field(default_factory=dict)
    timing: Mapping[str, Any] = field(default_factory=dict)
    images: Mapping[str, Any] = field(default_factory=dict)
    place: int = 0
    """Of its row, where a list of runs names the rows."""

    @property
    def name(self) -> str:
        return self.folder.path.name

    @property
    def method(self) -> str:
        return self.settings["method"]["name"]

    @property
    def backbone(self) -> str:
        return self.settings["network"]["name"]

    @property
    def seed(self) -> int:
        return self.result.seed if self.result else self.settings["seed"]

    @property
    def row(self) -> MethodKey:
        return self.label, self.backbone

    @property
    def unseen_domains(self) -> tuple[str, ...]:
        known = self.result.unseen_domains if self.result else self.images.get("unseen_domains")
        return tuple(known or self.settings["data"]["unseen_domain"])

    @property
    def training_domains(self) -> tuple[str, ...]:
        known = self.result.training_domains if self.result else self.images.get("training_domains")
        return tuple(known or self.settings["data"]["training_domains"])

    @property
    def column(self) -> str:
        return column_name(self.unseen_domains)

    @property
    def merged(self) -> Merged | None:
        """What it was merged from, if it was not trained."""
        return self.result.merged if self.result else None

    @property
    def upper_bound(self) -> bool:
        """It was trained on labels of the domain that it is measured on."""
        return bool(self.settings["data"].get("train_on_unseen"))

    @property
    def rule(self) -> str:
        return self.settings["selection"]

    @property
    def metric(self) -> Metric:
        return self.settings.get("metric", "accuracy")

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


class Problem(NamedTuple):
    """A run that cannot be read, and why."""

    path: Path
    reason: str


def load_runs(folder: Path) -> tuple[list[Run], list[Problem]]:
    """Every run below a folder; one that is damaged is named, and does not hide the others."""
    runs, problems = [], []
    rows = _rows(folder)
    order = list(dict.fromkeys(rows.values()))
    for each in find_runs(folder):
        try:
            run = _load(each)
            if row := rows.get(each.path):
                run = replace(run, label=row, place=order.index(row))
            runs.append(run)
        except (UnseenError, KeyError, TypeError, AttributeError) as error:
            reason = str(error) if isinstance(error, UnseenError) else f"no {error} in its records"
            problems.append(Problem(each.path, reason))
    return runs, problems


def _rows(folder: Path) -> dict[Path, str]:
    """What a list of runs calls the rows that they belong to; empty where it does not say."""
    listed = read_run_list(folder)
    return dict(zip(listed.runs, listed.rows, strict=False)) if listed else {}


def _load(folder: RunFolder) -> Run:
    settings = folder.read_settings()
    result = folder.read_result() if folder.finished else None
    run = Run(
        folder,
        settings,
        folder.read_metrics(),
        result,
        result.label if result else _planned_label(settings),
        environment=_if_there(folder.environment),
        timing=_if_there(folder.timing),
        images=_if_there(folder.data),
    )
    if not all((run.backbone, run.rule)) or run.column is None or run.seed is None:
        raise UnseenError(f"{folder.settings} lacks a setting")
    return run


def _planned_label(settings: Mapping[str, Any]) -> str:
    """Of a run without a result yet."""
    method = settings["method"]["name"]
    return labelled_bound(method) if settings["data"].get("train_on_unseen") else method


def _if_there(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def with_labels(runs: Iterable[Run]) -> list[Run]:
    """Where two runs would fill the same cell of a table, name what tells them apart."""
    by_row: dict[MethodKey, list[Run]] = {}
    for run in runs:
        by_row.setdefault(run.row, []).append(run)
    return [named for group in by_row.values() for named in _name_apart(group)]


def _name_apart(runs: list[Run]) -> list[Run]:
    if not _clash(runs):
        return runs
    flat = {run.name: flattened(run.settings) for run in runs}
    keys = sorted({key for settings in flat.values() for key in settings} - set(_ONE_STUDY))
    varying = [
        key
        for key in keys
        if not key.startswith("devices.")
        and len({str(settings.get(key)) for settings in flat.values()}) > 1
    ]
    named = []
    for run in runs:
        settings = flat[run.name]
        parts = [f"{key.rpartition('.')[2]}={settings.get(key)}" for key in varying]
        named.append(replace(run, label=" ".join([run.label, *parts])))
    if _clash(named):
        named = [replace(run, label=f"{run.label} {run.name[-12:]}") for run in named]
    return named


def _clash(runs: Iterable[Run]) -> bool:
    places = Counter((run.label, run.column, run.seed) for run in runs)
    return any(number > 1 for number in places.values())
