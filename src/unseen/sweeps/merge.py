"""Merge finished runs into one model: their weights averaged, measured and kept like a run."""

import hashlib
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor

from unseen.atomic import link_file, read_json, write_json
from unseen.data.dataset import open_dataset
from unseen.errors import DataError, UnseenError
from unseen.methods.base import DatasetPassMethod, Method
from unseen.results.folder import MetricsLog, RunFolder, find_runs
from unseen.results.result import Merged, MergedRun, RuleResult, RunResult
from unseen.results.rules import recorded_validation
from unseen.serve.model import trained_method
from unseen.settings.experiment import METRICS, Experiment, complete_settings
from unseen.settings.recipes import open_experiment
from unseen.training.build import build_images
from unseen.training.checkpoints import load_tensors, save_weights
from unseen.training.devices import launch
from unseen.training.display import Display
from unseen.training.finish import measure_rules, rule_result, write_files
from unseen.training.run import describe_images, rules_of
from unseen.training.session import Session, open_trained
from unseen.training.validation import evaluate, evaluation_record

if TYPE_CHECKING:
    from lightning_fabric import Fabric


_COUNTER = "num_batches_tracked"


class Average:
    """A mean that grows by one file of weights at a time.

    It is summed in double precision, so that tensors that are the same in all runs, such as those
    of frozen stages, stay the same to the last bit.
    """

    def __init__(self, tensors: Mapping[str, Tensor], number: int = 1) -> None:
        self._sums = {n: t.double() if t.is_floating_point() else t for n, t in tensors.items()}
        self._kinds = {name: tensor.dtype for name, tensor in tensors.items()}
        self._number = number

    @classmethod
    def of(cls, *files: Path) -> "Average":
        first, *others = files
        average = cls(load_tensors(first))
        for file in others:
            average = average.with_file(file)
        return average

    def with_file(self, file: Path) -> "Average":
        """A larger average; this one stays as it is."""
        tensors = load_tensors(file)
        self._check_alike(tensors, file)
        larger = Average(self._sums, self._number + 1)
        larger._kinds = self._kinds
        for name, tensor in tensors.items():
            larger._sums[name] = _together(name, self._sums[name], tensor, file)
        return larger

    def tensors(self) -> dict[str, Tensor]:
        return {
            name: (total / self._number).to(self._kinds[name])
            if total.is_floating_point()
            else total
            for name, total in self._sums.items()
        }

    def _check_alike(self, tensors: Mapping[str, Tensor], file: Path) -> None:
        for name in sorted(self._sums.keys() | tensors.keys()):
            here, there = (each.get(name) for each in (self._sums, tensors))
            if here is None or there is None:
                raise UnseenError(
                    f"{file} {'has' if here is None else 'lacks'} the tensor {name}, unlike the "
                    "runs before; merge runs of one method with the same parts"
                )
            if here.shape != there.shape:
                raise UnseenError(
                    f"{name} is {list(there.shape)} in {file}, and {list(here.shape)} in the runs "
                    "before; merge runs of one network with the same parts"
                )


def _together(name: str, total: Tensor, tensor: Tensor, file: Path) -> Tensor:
    """Numbers are summed; of counts of batches the largest stays; what is a choice (a selected
    unit, a phase) has no mean and has to be the same."""
    if tensor.is_floating_point():
        return total + tensor
    if name.endswith(_COUNTER):
        return torch.maximum(total, tensor)
    if not torch.equal(total, tensor):
        raise UnseenError(
            f"{name} in {file} is not what it is in the runs before, and such a choice has no "
            "mean: these runs cannot be merged"
        )
    return total


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
    experiment = open_experiment(folder.read_settings(), folder.settings)
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


Choice = Literal["all", "greedy"]


def merge_runs(
    runs: Iterable[str | Path], output: Path, choose: Choice, display: Display
) -> RunFolder:
    """Average the weights that each run's selection rule chose, and write a run folder.

    `all` averages all runs. `greedy` begins with the best on source validation and takes in one
    after the other, unless the average gets worse there. The unseen domain is never looked at.
    """
    parts = find_parts(runs)
    folder = RunFolder(output)
    if not _is_there(folder, _merged(parts, choose, parts)):
        experiment = _on_one_device(parts[0].experiment)
        launch(experiment, _merge, experiment, parts, output, choose, display)
    return folder


def _merge(
    fabric: "Fabric",
    experiment: Experiment,
    parts: Sequence[Part],
    output: Path,
    choose: Choice,
    display: Display,
) -> None:
    with _new_folder(output) as folder:
        session = _open(fabric, experiment, parts[0], folder, display)
        chosen = _greedily(session, parts, display) if choose == "greedy" else list(parts)
        merged = _merged(parts, choose, chosen)
        folder.create(experiment)
        write_json(folder.data, describe_images(session.runs[0].images))
        method = session.learner.method
        _use_dataset_pass(method, parts[0], folder)
        results = _measure_rules(session, chosen, folder)
        method.remarks = (merged.description, *parts[0].result.remarks)
        write_files(session, 0, results, {"seconds": merged.seconds}, merged)


def _open(
    fabric: "Fabric", experiment: Experiment, best: Part, folder: RunFolder, display: Display
) -> Session:
    """With the images of the runs, or their stored features where they trained from those."""
    result = best.result
    weights = best.folder.checked(best.folder.weights(result.selection))
    method = trained_method(experiment, result.classes, result.training_domains, weights)
    dataset = open_dataset(experiment.data)
    images = build_images(dataset, experiment, method.network.image_size, display.preparing)
    if images.prepared.content != result.data:
        raise DataError(
            f"the images have changed since {best.name} was trained; put them back to merge"
        )
    session = open_trained(fabric, experiment, method, images, folder, display)
    session.steps = result.steps
    return session


def _greedily(session: Session, parts: Sequence[Part], display: Display) -> list[Part]:
    """The best run, and each next one with which the average is at least as good."""
    first, *others = parts
    average, chosen = Average.of(_weights(first)), [first]
    best = _score(session, average)
    for part in others:
        larger = average.with_file(_weights(part))
        found = _score(session, larger)
        verdict = "added" if found >= best else "left out"
        what = f"{METRICS[session.shared.metric]} on source validation"
        display.line(f"{verdict} {part.name}: {found:.2%} {what}, before {best:.2%}")
        if found >= best:
            average, best = larger, found
            chosen.append(part)
    return chosen


def _score(session: Session, average: Average) -> float:
    _load(session, average)
    return evaluate(session)[0].score


def _load(session: Session, average: Average) -> None:
    session.learner.method.load_state_dict(average.tensors(), strict=False)


def _measure_rules(
    session: Session, chosen: Sequence[Part], folder: RunFolder
) -> dict[str, RuleResult]:
    """The average under each rule that the runs kept weights for; that of their own rule last, so
    that it is in memory afterwards."""
    experiment = chosen[0].experiment
    rules = [r for r in rules_of(experiment) if all(r in part.result.rules for part in chosen)]
    rules.sort(key=lambda rule: rule == experiment.selection)
    for rule in rules:
        _load(
            session,
            Average.of(*(part.folder.checked(part.folder.weights(rule)) for part in chosen)),
        )
        save_weights(folder.weights(rule), session.learner.method)
    at_steps = {rule: tuple(part.result.under(rule).step for part in chosen) for rule in rules}
    measured = measure_rules(session, at_steps)
    session.learner.use(experiment.selection)
    session.step = session.steps
    log = MetricsLog(folder.metrics, 0)
    statistics = session.learner.statistics(0)
    log.write(evaluation_record(evaluate(session)[0], True, statistics))
    log.close()
    return {rule: rule_result(session.steps, measured[rule][0]) for rule in rules}


def _use_dataset_pass(method: Method, best: Part, folder: RunFolder) -> None:
    """What the method found before its first step is that of the best run."""
    if isinstance(method, DatasetPassMethod):
        device = next(method.parameters()).device
        found = load_tensors(best.folder.dataset_pass)
        method.use_dataset_pass({name: tensor.to(device) for name, tensor in found.items()})
        link_file(best.folder.dataset_pass, folder.dataset_pass)


def _merged(parts: Sequence[Part], choose: Choice, chosen: Sequence[Part]) -> Merged:
    runs = tuple(
        MergedRun(
            run=part.result.run,
            folder=part.name,
            seed=part.result.seed,
            steps=part.result.steps,
            seconds=part.seconds,
            validation=part.validation,
            averaged=part in chosen,
        )
        for part in parts
    )
    return Merged(choose=choose, runs=runs)


def _is_there(folder: RunFolder, merged: Merged) -> bool:
    """Whether these runs were merged into this folder before; another use of it is refused."""
    if folder.finished and folder.read_result().run == merged.identity:
        return True
    if folder.path.exists() and (not folder.path.is_dir() or any(folder.path.iterdir())):
        raise UnseenError(
            f"{folder.path} is there already, and not the model that these runs give; choose "
            "another folder (-o), or remove that one"
        )
    return False


@contextmanager
def _new_folder(output: Path) -> Iterator[RunFolder]:
    """A folder that gets its name when everything is in it."""
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".merging-", dir=output.parent))
    try:
        yield RunFolder(temporary)
        temporary.chmod(0o755)
        temporary.replace(output)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _on_one_device(experiment: Experiment) -> Experiment:
    device = experiment.devices.model_copy(update={"number": 1})
    return experiment.model_copy(update={"devices": device})


def _weights(part: Part) -> Path:
    return part.folder.weights(part.result.selection)
