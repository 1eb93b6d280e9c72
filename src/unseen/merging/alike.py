"""Which runs may be merged: those whose tensors mean the same and lie in one basin. No torch."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from unseen.atomic import read_json
from unseen.config import Experiment, complete_settings
from unseen.errors import UnseenError
from unseen.recipe_files import build_experiment
from unseen.records.folder import RunFolder
from unseen.records.result import RunResult
from unseen.records.run_list import find_runs
from unseen.selection import recorded_validation

_SHARED = ("setting", "selection", "metric", "precision")
_SHARED_NETWORK = ("name", "pretrained", "image_size", "freeze_until")
_FREE_DATA = ("name", "root", "cache", "bad_images", "training_domains", "unseen_domain")
"""Settings of the data that decide nothing, or that the records of a run show better."""


class Part(NamedTuple):
    """A finished run to be averaged with others."""

    folder: RunFolder
    experiment: Experiment
    result: RunResult
    validation: float
    """On source validation, of the weights that its rule chose, by the runs' metric."""
    seconds: float

    @property
    def name(self) -> str:
        return self.folder.path.name


def find_parts(paths: Iterable[str | Path]) -> list[Part]:
    """The runs that are named, and all finished ones below folders of runs; the best on source
    validation first. Raises unless they can be averaged."""
    folders = {each.path.resolve(): each for path in paths for each in _folders(Path(path))}
    parts = [_read(folder) for folder in folders.values()]
    if len(parts) < 2:
        raise UnseenError(
            f"there is nothing to merge: {len(parts)} finished run{'' if parts else 's'} found; "
            "name two or more, or a folder that holds them"
        )
    problems = [*problems_of(each.experiment for each in parts), *_problems_of_results(parts)]
    if problems:
        lines = "\n  ".join(problems)
        raise UnseenError(f"these runs cannot be merged:\n  {lines}")
    return sorted(parts, key=lambda part: (-part.validation, part.result.run))


def problems_of(experiments: Iterable[Experiment]) -> Iterator[str]:
    """What in their settings keeps runs from being averaged, with the remedy."""
    experiments = list(experiments)
    if any(each.network.pretrained is False for each in experiments):
        yield (
            "network.pretrained: weights from random starts do not lie in one basin, and their "
            "average is no model; train from ImageNet weights (true) or from a file"
        )
    if any(each.selection == "oracle" for each in experiments):
        yield (
            "selection: weights that were chosen by labels of the unseen domain are not merged; "
            "train with selection=source"
        )
    each_meaning = [_meaning(experiment) for experiment in experiments]
    for key in dict.fromkeys(key for meaning in each_meaning for key in meaning):
        if len({_comparable(key, meaning.get(key)) for meaning in each_meaning}) > 1:
            values = dict.fromkeys(_shown(meaning.get(key)) for meaning in each_meaning)
            yield f"{key}: {' and '.join(values)}; merge runs that share it"


def _meaning(experiment: Experiment) -> dict[str, Any]:
    """Settings that decide what a tensor means. Numbers of a method (a weight, a rate) may differ,
    its names (sites, kinds) may not."""
    settings = complete_settings(experiment)
    named = {key: value for key, value in settings["method"].items() if not _is_number(value)}
    data = {key: value for key, value in settings["data"].items() if key not in _FREE_DATA}
    return {
        **{key: settings[key] for key in _SHARED},
        "data.name": settings["data"]["name"],
        **{f"network.{key}": settings["network"][key] for key in _SHARED_NETWORK},
        **{f"method.{key}": value for key, value in named.items()},
        **{f"data.{key}": value for key, value in data.items()},
    }


def _problems_of_results(parts: Sequence[Part]) -> Iterator[str]:
    """What the records of finished runs tell apart."""
    seen: dict[str, str] = {}
    for part in parts:
        if part.result.merged is not None:
            yield (
                f"{part.name} was merged itself; name the runs that it was made from: "
                f"{', '.join(each.folder for each in part.result.merged.runs)}"
            )
        elif part.result.run in seen:
            yield f"{part.name} and {seen[part.result.run]} are the same run; name one of them"
        seen[part.result.run] = part.name
    for field in ("classes", "training_domains", "unseen_domains", "data"):
        values = {getattr(part.result, field): part.name for part in parts}
        if len(values) > 1:
            told = " and ".join(f"{_shown(value)} ({name})" for value, name in values.items())
            what = "images" if field == "data" else field.replace("_", " ")
            yield f"{what}: {told}; merge runs that share them"


def _folders(path: Path) -> Iterator[RunFolder]:
    """A run itself; of other folders the finished runs below that were trained, not merged."""
    folder = RunFolder(path)
    if folder.settings.is_file():
        yield folder
        return
    if not path.is_dir():
        raise UnseenError(f"there is no run {path}; name folders of finished runs")
    for each in find_runs(path):
        if each.finished and each.read_result().merged is None:
            yield each


def _read(folder: RunFolder) -> Part:
    result = folder.read_result()
    experiment = build_experiment(folder.read_settings(), str(folder.settings))
    seconds = read_json(folder.timing)["seconds"]
    return Part(folder, experiment, result, _validation(folder, result), seconds)


def _validation(folder: RunFolder, result: RunResult) -> float:
    step = result.under(result.selection).step
    for record in folder.read_metrics():
        if record["step"] == step and record.get("validation"):
            return fmean(recorded_validation(record).values())
    raise UnseenError(
        f"{folder.metrics} has no accuracy on source validation at step {step}, by which runs are "
        "sorted; train the run with data.validation_share above 0"
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _comparable(key: str, value: Any) -> str:
    """A file of weights is what it holds, or, where it is gone, the place that it was in."""
    if key == "network.pretrained" and isinstance(value, str):
        path = Path(value).expanduser()
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else value
    return repr(value)


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
