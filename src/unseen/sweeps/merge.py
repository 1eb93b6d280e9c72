"""Merge finished runs into one model: their weights averaged, measured and kept like a run."""

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor

from unseen.atomic import link_file, write_json
from unseen.data.cache import building, remove_leftovers
from unseen.data.dataset import open_dataset
from unseen.errors import DataError, UnseenError
from unseen.methods.base import DatasetPassMethod
from unseen.results.files import digest_of
from unseen.results.folder import MetricsLog, RunFolder, find_runs
from unseen.results.result import Merged, MergedRun, RuleResult, RunResult
from unseen.results.rules import recorded_validation
from unseen.serve.model import trained_method
from unseen.settings.experiment import METRICS, Experiment, complete_settings
from unseen.settings.recipes import flattened, open_experiment
from unseen.training.build import build_images, describe_images, rules_of
from unseen.training.checkpoints import load_tensors, save_weights
from unseen.training.devices import launch
from unseen.training.display import Display
from unseen.training.session import Session, open_trained
from unseen.training.validation import (
    evaluate,
    evaluation_record,
    measure_rules,
    rule_result,
    write_files,
)

if TYPE_CHECKING:
    from lightning_fabric import Fabric


_SHARED = ("setting", "selection", "metric", "precision", "data.", "method.")
_SHARED += tuple(f"network.{each}" for each in ("name", "pretrained", "image_size", "freeze_until"))
_FREE = tuple(f"data.{each}" for each in ("root", "cache", "bad_images"))
_FREE += ("data.training_domains", "data.unseen_domain")
"""Settings of the data that decide nothing, or that the records of a run show better."""


def average(files: Sequence[Path]) -> dict[str, Tensor]:
    """Return the mean of files of weights.

    It is summed in double precision, so that tensors that are the same in all runs, such as those
    of frozen stages, stay the same to the last bit. Of counts of batches the largest stays; what is
    a choice (a selected unit, a phase) has no mean and has to be the same.
    """
    first = load_tensors(files[0])
    sums = {n: t.double() if t.is_floating_point() else t for n, t in first.items()}
    for file in files[1:]:
        tensors = load_tensors(file)
        shapes, others = ({n: [*t.shape] for n, t in each.items()} for each in (first, tensors))
        for name in sorted(n for n in shapes | others if shapes.get(n) != others.get(n)):
            raise UnseenError(
                f"{name} is {others.get(name, 'missing')} in {file}, and "
                f"{shapes.get(name, 'missing')} in the runs before; merge runs of one network and "
                "method with the same parts"
            )
        for name, tensor in tensors.items():
            if tensor.is_floating_point():
                sums[name] += tensor
            elif name.endswith("num_batches_tracked"):
                sums[name] = torch.maximum(sums[name], tensor)
            elif not torch.equal(sums[name], tensor):
                raise UnseenError(
                    f"{name} in {file} is not what it is in the runs before, and such a choice has "
                    "no mean: these runs cannot be merged"
                )
    floats = (name for name, tensor in first.items() if tensor.is_floating_point())
    return sums | {name: (sums[name] / len(files)).to(first[name].dtype) for name in floats}


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

    @property
    def weights(self) -> Path:
        return self.folder.checked(self.folder.weights(self.result.selection))


def find_parts(paths: Iterable[str | Path]) -> list[Part]:
    """Return the runs that are named, and all finished ones below folders of runs that were not
    merged themselves; the best on source validation first. Raises unless they can be averaged."""
    folders: dict[Path, RunFolder] = {}
    for path in map(Path, paths):
        found = [RunFolder(path)]
        if not found[0].settings.is_file():
            if not path.is_dir():
                raise UnseenError(f"there is no run {path}; name folders of finished runs")
            runs = (each for each in find_runs(path) if each.finished)
            found = [each for each in runs if each.read_result().merged is None]
        folders |= {each.path.resolve(): each for each in found}
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


def _read(folder: RunFolder) -> Part:
    result = folder.read_result()
    experiment = open_experiment(folder.read_settings(), folder.settings)
    seconds, step = folder.read_seconds(), result.under(result.selection).step
    for record in folder.read_metrics():
        if record["step"] == step and record.get("validation"):
            validation = fmean(recorded_validation(record).values())
            return Part(folder, experiment, result, validation, seconds)
    raise UnseenError(
        f"{folder.metrics} has no accuracy on validation images at step {step}, by which runs are "
        "sorted; train the run with data.validation_share above 0"
    )


def problems_of(experiments: Iterable[Experiment]) -> Iterator[str]:
    """Say what in their settings keeps runs from being averaged, with the remedy. Numbers of a
    method (a weight, a rate) may differ, its names (sites, kinds) may not; a file of weights is
    what it holds, or, where it is gone, the place that it was in."""
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
    found = [
        {
            key: value
            for key, value in flattened(complete_settings(experiment)).items()
            if key.startswith(_SHARED) and key not in _FREE
            if not (key.startswith("method.") and type(value) in (int, float))
        }
        for experiment in experiments
    ]
    for key in dict.fromkeys(key for each in found for key in each):
        told = {_content(key, each.get(key)): _shown(each.get(key)) for each in found}
        if len(told) > 1:
            yield f"{key}: {' and '.join(told.values())}; merge runs that share it"


def _content(key: str, value: Any) -> str:
    path = Path(str(value)).expanduser()
    return digest_of(path) if key == "network.pretrained" and path.is_file() else repr(value)


def _problems_of_results(parts: Sequence[Part]) -> Iterator[str]:
    """Say what the records of finished runs tell apart."""
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
    folder, experiment = RunFolder(output), parts[0].experiment
    if folder.finished and folder.read_result().run == _merged(parts, choose, parts).identity:
        return folder
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UnseenError(
            f"{output} is there already, and not the model that these runs give; choose another "
            "folder (-o), or remove that one"
        )
    alone = experiment.devices.model_copy(update={"number": 1})
    experiment = experiment.model_copy(update={"devices": alone})
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
    """Merge with the images of the runs, or their stored features where they trained from those."""
    remove_leftovers(output.parent)  # of a merge that was killed
    with building(output.parent) as temporary:
        folder, best = RunFolder(temporary), parts[0]
        result = best.result
        classes, domains = result.classes, result.training_domains
        method = trained_method(experiment, classes, domains, best.weights)
        dataset, size = open_dataset(experiment.data), method.network.image_size
        images = build_images(dataset, experiment, size, display.preparing)
        if images.prepared.content != result.data:
            raise DataError(
                f"the images have changed since {best.name} was trained; put them back to merge"
            )
        session = open_trained(fabric, experiment, method, images, folder, display)
        session.steps, method = result.steps, session.learner.method
        chosen = _greedily(session, parts, display) if choose == "greedy" else list(parts)
        merged = _merged(parts, choose, chosen)
        folder.create(experiment)
        write_json(folder.data, describe_images(images))
        if isinstance(method, DatasetPassMethod):  # what it found before its first step
            device = next(method.parameters()).device
            found = load_tensors(best.folder.dataset_pass)
            method.use_dataset_pass({name: tensor.to(device) for name, tensor in found.items()})
            link_file(best.folder.dataset_pass, folder.dataset_pass)
        results = _measure_rules(session, chosen, folder)
        method.remarks = (merged.description, *result.remarks)
        write_files(session, 0, results, {"seconds": merged.seconds}, merged)
        temporary.replace(output)


def _greedily(session: Session, parts: Sequence[Part], display: Display) -> list[Part]:
    """Return the best run, and each next one with which the average is at least as good."""
    chosen: list[Part] = []
    best = -math.inf
    for part in parts:
        _load(session, average([each.weights for each in (*chosen, part)]))
        found = evaluate(session)[0].score
        if chosen:
            verdict = "added" if found >= best else "left out"
            what = f"{METRICS[session.shared.metric]} on validation images"
            display.line(f"{verdict} {part.name}: {found:.2%} {what}, before {best:.2%}")
        if found >= best:
            best = found
            chosen.append(part)
    return chosen


def _load(session: Session, weights: dict[str, Tensor]) -> None:
    session.learner.method.load_state_dict(weights, strict=False)


def _measure_rules(
    session: Session, chosen: Sequence[Part], folder: RunFolder
) -> dict[str, RuleResult]:
    """Measure the average under each rule that the runs kept weights for; that of their own rule
    last, so that it is in memory afterwards."""
    experiment = chosen[0].experiment
    rules = [r for r in rules_of(experiment) if all(r in part.result.rules for part in chosen)]
    rules.sort(key=lambda rule: rule == experiment.selection)
    for rule in rules:
        _load(session, average([p.folder.checked(p.folder.weights(rule)) for p in chosen]))
        save_weights(folder.weights(rule), session.learner.method)
    at_steps = {rule: tuple(part.result.under(rule).step for part in chosen) for rule in rules}
    measured = measure_rules(session, at_steps)
    session.learner.use(experiment.selection)
    session.step = session.steps
    log = MetricsLog(folder.metrics, 0)
    statistics = session.learner.statistics(0)
    log.write(evaluation_record(evaluate(session)[0]) | {"statistics": statistics})
    log.close()
    return {rule: rule_result(session.steps, measured[rule][0]) for rule in rules}


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
