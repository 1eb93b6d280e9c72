"""Merge finished runs into one model: their weights averaged, measured and kept like a run."""

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from torch import Tensor

from unseen.atomic import link_file, write_json
from unseen.config import Experiment
from unseen.data.opening import open_dataset
from unseen.errors import DataError, UnseenError
from unseen.evaluation.checkpoint import Measurement
from unseen.evaluation.protocol import Evaluator
from unseen.merging.alike import Part, find_parts
from unseen.merging.average import Average
from unseen.methods.base import Method
from unseen.methods.kinds import SurveyingMethod
from unseen.records.folder import RunFolder
from unseen.records.log import MetricsLog
from unseen.records.merged import Merged, MergedRun
from unseen.records.result import RuleResult
from unseen.selection import Evaluation, SelectBy
from unseen.serving.model import trained_method
from unseen.settings.metrics import METRICS, Metric
from unseen.training.build import Images, build_images, describe_images
from unseen.training.checkpoints import load_tensors, save_weights
from unseen.training.devices import launch
from unseen.training.display import Display
from unseen.training.last_pass.profile import Answerer, make_profile
from unseen.training.measuring import (
    Times,
    Trained,
    evaluation_record,
    measure_models,
    measure_step,
    rule_result,
    rules_of,
    write_files,
)
from unseen.training.pictures import draw
from unseen.training.state import open_feed

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from unseen.data.feed import Feed

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


class _Measure(NamedTuple):
    """What weights are loaded into and measured by."""

    fabric: "Fabric"
    method: Method
    images: Images
    feed: "Feed"
    evaluator: Evaluator
    metric: Metric

    def predict(self, images: Tensor, domain: int | None) -> Tensor:
        with self.fabric.autocast():
            return self.method.predict(images, domain)

    def load(self, average: Average) -> None:
        self.method.load_state_dict(average.tensors(), strict=False)

    def validation(self, step: int) -> Evaluation:
        """On the source validation images."""
        roles, by = self.images.roles, SelectBy("source", self.metric)
        [evaluation] = measure_step(self.evaluator, self.predict, roles, by, step)
        return evaluation

    def model(self) -> Measurement:
        """The weights that are loaded."""
        roles = self.images.roles
        [found] = measure_models(self.evaluator, self.predict, roles, self.method)
        return found


def _merge(
    fabric: "Fabric",
    experiment: Experiment,
    parts: Sequence[Part],
    output: Path,
    choose: Choice,
    display: Display,
) -> None:
    measure = _open(fabric, experiment, parts[0], display)
    chosen = _greedily(measure, parts, display) if choose == "greedy" else list(parts)
    merged = _merged(parts, choose, chosen)
    with _new_folder(output) as folder:
        folder.create(experiment)
        write_json(folder.data, describe_images(measure.images))
        _use_survey(measure.method, parts[0], folder)
        results = _write_weights(measure, chosen, folder)
        measure.method.remarks = (merged.description, *parts[0].result.remarks)
        steps = parts[0].result.steps
        times = Times(merged.seconds)
        trained = Trained(experiment, folder, measure.images, steps, times, merged)
        pictures = draw(measure.method, measure.feed, measure.images, fabric.autocast)
        answerer = Answerer(measure.method, measure.feed, fabric.autocast)
        profile = make_profile(answerer, measure.images)
        write_files(trained, measure.method, results, pictures, profile)


def _open(fabric: "Fabric", experiment: Experiment, best: Part, display: Display) -> _Measure:
    """With the images of the runs, or their stored features where they trained from those."""
    result = best.result
    weights = best.folder.weights(result.selection)
    method = trained_method(experiment, result.classes, result.training_domains, weights)
    method = method.to(fabric.device).eval()
    dataset = open_dataset(experiment.data)
    images = build_images(dataset, experiment, method.network.image_size, display.preparing)
    if images.prepared.content != result.data:
        raise DataError(
            f"the images have changed since {best.name} was trained; put them back to merge"
        )
    feed = open_feed(fabric, experiment, images, method, display)
    evaluator = Evaluator(feed.evaluation, len(result.classes), feed.process, lambda each: each)
    return _Measure(fabric, method, images, feed, evaluator, experiment.metric)


def _greedily(measure: _Measure, parts: Sequence[Part], display: Display) -> list[Part]:
    """The best run, and each next one with which the average is at least as good."""
    first, *others = parts
    average, chosen = Average.of(_weights(first)), [first]
    best = _score(measure, average)
    for part in others:
        larger = average.with_file(_weights(part))
        found = _score(measure, larger)
        verdict = "added" if found >= best else "left out"
        what = f"{METRICS[measure.metric]} on source validation"
        display.line(f"{verdict} {part.name}: {found:.2%} {what}, before {best:.2%}")
        if found >= best:
            average, best = larger, found
            chosen.append(part)
    return chosen


def _score(measure: _Measure, average: Average) -> float:
    measure.load(average)
    return measure.validation(step=0).score


def _write_weights(
    measure: _Measure, chosen: Sequence[Part], folder: RunFolder
) -> dict[str, RuleResult]:
    """The average under each rule that the runs kept weights for; that of their own rule last, so
    that it is in memory afterwards."""
    experiment, steps = chosen[0].experiment, chosen[0].result.steps
    results: dict[str, RuleResult] = {}
    measured: dict[tuple[int, ...], Measurement] = {}
    rules = [r for r in rules_of(experiment) if all(r in part.result.rules for part in chosen)]
    for rule in sorted(rules, key=lambda rule: rule == experiment.selection):
        measure.load(Average.of(*(part.folder.weights(rule) for part in chosen)))
        save_weights(folder.weights(rule), measure.method)
        at = tuple(part.result.under(rule).step for part in chosen)
        if at not in measured:
            measured[at] = measure.model()
        results[rule] = rule_result(steps, measured[at])
    log = MetricsLog(folder.metrics, 0)
    statistics = measure.method.statistics()
    log.write(evaluation_record(measure.validation(steps), True, statistics))
    log.close()
    return results


def _use_survey(method: Method, best: Part, folder: RunFolder) -> None:
    """What the method found before its first step is that of the best run."""
    if isinstance(method, SurveyingMethod):
        device = next(method.parameters()).device
        found = load_tensors(best.folder.survey)
        method.use_survey({name: tensor.to(device) for name, tensor in found.items()})
        link_file(best.folder.survey, folder.survey)


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
