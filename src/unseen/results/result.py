"""The result of a run: what was counted, by selection rule, view and domain. No torch.

result = RunFolder(path).read_result()
for domain, measured in result.view("source", "out_of_domain").items():
    print(domain, measured.accuracy, measured.confusion)
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializationInfo,
    ValidationError,
    ValidationInfo,
    computed_field,
    model_validator,
)

from unseen.atomic import read_json, write_json
from unseen.errors import SettingsError, UnseenError, unknown_name
from unseen.results.files import FORMAT, Array, check_format, read_array, write_arrays
from unseen.settings.experiment import METRICS, Metric

View = Literal["out_of_domain", "in_domain", "known_domain"]


class ViewTexts(NamedTuple):
    title: str
    meaning: str
    """What is measured, to follow the title."""
    table_note: str
    """What a number means in a table whose columns are the domains left out of training."""

    def table_title(self, metric: Metric) -> str:
        return f"{self.title.replace(' ', '-').capitalize()} {METRICS[metric]}"


_OTHER_DOMAINS = "mean over these domains. The column names the domain left out of training."

VIEWS: dict[View, ViewTexts] = {
    "out_of_domain": ViewTexts(
        "out of domain",
        "images of a domain that training never saw",
        "Images of the unseen domain, which names the column.",
    ),
    "in_domain": ViewTexts(
        "in domain",
        "test images of the training domains",
        f"Test images of the training domains; the model is not told the domain; {_OTHER_DOMAINS}",
    ),
    "known_domain": ViewTexts(
        "known domain",
        "the same images, with the domain given to the model",
        f"Test images of the training domains; the model is told the domain; {_OTHER_DOMAINS}",
    ),
}
"""In the order of tables."""


_UPPER_BOUND_VIEWS: dict[View, ViewTexts] = {
    **VIEWS,
    "out_of_domain": VIEWS["out_of_domain"]._replace(
        title="upper bound",
        meaning="test images of a domain whose other images trained, with their labels",
    ),
}


class Confusion:
    """Images of each true class (row) that were predicted as each class (column)."""

    def __init__(self, read: Callable[[], Array]) -> None:
        self.read = read
        """Returns `int64 [classes, classes]`. Counts in a file are read anew each time."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Confusion) and np.array_equal(self.read(), other.read())

    __hash__ = None  # type: ignore[assignment]


def accuracy(confusion: Array) -> float:
    """Returns the share of correct predictions; every image counts the same."""
    return int(confusion.trace()) / int(confusion.sum())


def recall(confusion: Array) -> Array:
    """Returns the share of each class's images that were recognised; NaN for one without images."""
    total = confusion.sum(axis=1)
    unknown = np.full(len(total), np.nan)
    return np.divide(confusion.diagonal(), total, out=unknown, where=total > 0)


def balanced_accuracy(confusion: Array) -> float:
    """Returns the mean recall; every class counts the same, however few images it has."""
    return float(np.nanmean(recall(confusion)))


def macro_f1(confusion: Array) -> float:
    """Returns the mean over classes of 2 · correct / (images of the class + answers with it)."""
    images, answers = confusion.sum(axis=1), confusion.sum(axis=0)
    there = images > 0
    f1: Array = 2 * confusion.diagonal()[there] / (images + answers)[there]
    return float(f1.mean())


def always_largest(confusion: Array) -> dict[Metric, float]:
    """Returns the measures of always answering with the class that has the most images."""
    images = confusion.sum(axis=1)
    always = np.zeros_like(confusion)
    always[:, images.argmax()] = images
    return {metric: measure(always) for metric, measure in MEASURES.items()}


MEASURES: dict[Metric, Callable[[Array], float]] = {
    "accuracy": accuracy,
    "balanced": balanced_accuracy,
    "macro_f1": macro_f1,
}


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)


class MergedRun(_Record):
    """One of the runs that a merged one was made from."""

    run: str
    """Its identity."""
    folder: str
    """The name of its folder."""
    seed: int
    steps: int
    seconds: float
    validation: float
    """On its validation images, by the runs' metric: the mean over domains."""
    averaged: bool
    """False where the greedy choice left it out."""


class Merged(_Record):
    """What a model was merged from: its weights are the average of those of other runs."""

    choose: Literal["all", "greedy"]
    runs: tuple[MergedRun, ...]
    """All that were trained for it, the best on validation images first."""

    @property
    def identity(self) -> str:
        return merged_identity(self.choose, [each.run for each in self.runs])

    @property
    def averaged(self) -> tuple[MergedRun, ...]:
        return tuple(each for each in self.runs if each.averaged)

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted({each.seed for each in self.runs}))

    @property
    def steps(self) -> int:
        """The steps of all runs together."""
        return sum(each.steps for each in self.runs)

    @property
    def seconds(self) -> float:
        """The seconds of all runs together."""
        return sum(each.seconds for each in self.runs)

    @property
    def label(self) -> str:
        """`merged (7 runs)`: the number of runs that it cost."""
        how = "merged greedily" if self.choose == "greedy" else "merged"
        return f"{how} ({len(self.runs)} runs)"

    @property
    def description(self) -> str:
        """A sentence that says what the model was merged from."""
        averaged = len(self.averaged)
        left_out = len(self.runs) - averaged
        chosen = f", chosen greedily by validation images ({left_out} left out)" if left_out else ""
        return (
            f"Merged from {len(self.runs)} runs: its weights are the average of those of {averaged}"
            f" runs{chosen}; together they took {self.steps:,} steps."
        )


def merged_identity(choose: str, runs: Iterable[str]) -> str:
    """Returns another identity for other runs, and for another way to choose among them."""
    text = json.dumps([choose, *sorted(runs)])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


CONFUSIONS = "confusions.npz"
"""Beside result.json."""
OTHER_CLASSES = "other classes"
"""The row of a confusion with the images whose class the model does not know."""
UPPER_BOUND = "trained on the target's labels (upper bound)"
"""What tables call a model that was trained on labels of the domain that it is measured on."""


class Calibration(_Record):
    """Equal bins of confidence from 0 to 1."""

    images: tuple[int, ...]
    confidence: tuple[float, ...]
    """Summed over the images of a bin."""
    correct: tuple[int, ...]

    @model_validator(mode="after")
    def _check(self) -> "Calibration":
        if len({len(self.images), len(self.confidence), len(self.correct)}) != 1:
            raise ValueError("images, confidence and correct have one number for each bin")
        if not any(self.images):
            raise ValueError("no bin has images")
        return self

    @property
    def error(self) -> float:
        """Expected calibration error: the mean gap between confidence and accuracy, weighted by
        how many images a bin holds."""
        gaps = (abs(c - k) for c, k in zip(self.confidence, self.correct, strict=True))
        return sum(gaps) / sum(self.images)


def _from_file(value: Any, info: ValidationInfo) -> Any:
    path: Any = info.context

    def read() -> Array:
        counts = read_array(path, str(value))
        if counts.ndim != 2 or len(set(counts.shape)) != 1 or counts.dtype.kind != "u":
            raise UnseenError(f"{path} is damaged: array '{value}' is no confusion matrix")
        return counts.astype(np.int64)

    return Confusion(read) if isinstance(value, int) else value


def _to_file(confusion: Confusion, info: SerializationInfo) -> int:
    """Returns the number of the matrix among those of the run, which the context collects. Equal
    ones, as of two rules that chose one step, share a place."""
    places: Any = info.context
    counts = confusion.read()
    compact = counts.astype(np.min_scalar_type(int(counts.max(initial=0))))
    number, _ = places.setdefault(compact.tobytes(), (len(places), compact))
    return number


class DomainResult(_Record):
    """Answers on the images of one domain, counted."""

    images: int = Field(gt=0)
    correct: int = Field(ge=0)
    measures: dict[Metric, float]
    always_largest: dict[Metric, float]
    """What always answering with the class that has the most images would get."""
    calibration: Calibration
    """By the model's own confidence."""
    calibrated: Calibration | None = None
    """By its confidence at the temperature of the selection rule; None where none was fitted."""
    counts: Annotated[Confusion, BeforeValidator(_from_file), PlainSerializer(_to_file)] = Field(
        alias="confusion"
    )

    @classmethod
    def counted(
        cls, confusion: Array, calibration: Calibration, calibrated: Calibration | None = None
    ) -> "DomainResult":
        return cls(
            images=int(confusion.sum()),
            correct=int(confusion.trace()),
            measures={metric: measure(confusion) for metric, measure in MEASURES.items()},
            always_largest=always_largest(confusion),
            calibration=calibration,
            calibrated=calibrated,
            confusion=Confusion(lambda: confusion),
        )

    @property
    def accuracy(self) -> float:
        return self.measures["accuracy"]

    @computed_field
    @property
    def calibration_error(self) -> float:
        return self.calibration.error

    @computed_field
    @property
    def calibrated_error(self) -> float | None:
        """The calibration error that is left at the temperature of the selection rule."""
        return None if self.calibrated is None else self.calibrated.error

    @property
    def confusion(self) -> Array:
        """`[classes, classes]`: images of a true class (row) by predicted class. Images of
        classes that the model does not know are in a last row."""
        return self.counts.read()

    @property
    def recall(self) -> Array:
        """Share of each class's images that were recognised; NaN for a class without images."""
        return recall(self.confusion)


Measured = dict[str, DomainResult]
"""By domain."""
Views = dict[View, Measured]


class RuleResult(_Record):
    """The checkpoint that a selection rule chose."""

    step: int
    views: Views
    temperature: float = Field(default=1.0, gt=0)
    """Class scores are divided by it before they become probabilities: fitted on the validation
    images, every domain weighing the same. 1 where none of them is predicted wrongly."""


class RunResult(_Record):
    """The content of result.json."""

    run: str
    """The identity of the run's settings, or of the runs that it was merged from."""
    dataset: str
    method: str
    backbone: str
    setting: Literal["generalization", "adaptation"]
    recipe: str = ""
    """The last part of the name of the recipe that it was trained with; empty: none had a name."""
    seed: int
    """Of a merged model the lowest of its runs' seeds."""
    steps: int
    training_domains: tuple[str, ...]
    unseen_domains: tuple[str, ...]
    trained_on_unseen: bool = False
    """An upper bound: the unseen domains are among the training domains, and the model is measured
    on those of their images that did not train."""
    classes: tuple[str, ...]
    data: str
    """Digest of all images."""
    selection: str
    """The rule that counts for this run."""
    metric: Metric = "accuracy"
    """What its rule chose the checkpoint by."""
    remarks: tuple[str, ...] = ()
    merged: Merged | None = None
    """Of a model that was not trained, but averaged from others."""
    rules: dict[str, RuleResult]

    @property
    def name(self) -> str:
        """What tables, report and folders call the run: its recipe, such as `aggregate_views`, or
        its method."""
        return self.recipe or self.method

    @property
    def label(self) -> str:
        """`dmg`, or `dmg, merged (7 runs)`; an upper bound says so."""
        name = labelled_bound(self.name) if self.trained_on_unseen else self.name
        return name if self.merged is None else f"{name}, {self.merged.label}"

    @property
    def view_texts(self) -> dict[View, ViewTexts]:
        """What the views are called for this run: an upper bound says so."""
        return _UPPER_BOUND_VIEWS if self.trained_on_unseen else VIEWS

    @property
    def source_domains(self) -> tuple[str, ...]:
        """Training domains that it is not measured on as unseen ones."""
        return tuple(name for name in self.training_domains if name not in self.unseen_domains)

    def names_of(self, confusion: Array) -> tuple[str, ...]:
        """Returns the names of its rows: the classes and, if there are such images, `other
        classes`."""
        return (*self.classes, OTHER_CLASSES)[: len(confusion)]

    def under(self, rule: str) -> RuleResult:
        if rule not in self.rules:
            raise SettingsError(
                f"the run recorded the selection rules {', '.join(self.rules)}, and not '{rule}'"
            )
        return self.rules[rule]

    def view(self, rule: str, name: View) -> Mapping[str, DomainResult]:
        """Returns what was measured of each domain."""
        if name not in VIEWS:
            raise SettingsError(unknown_name("view", name, VIEWS))
        return self.under(rule).views.get(name, {})

    def mean(self, rule: str, view: View, metric: Metric | None = None) -> float | None:
        """Returns the mean by the run's own metric or another, every domain counting the same; None
        where the view has no domain."""
        values = [each.measures[metric or self.metric] for each in self.view(rule, view).values()]
        return fmean(values) if values else None


def labelled_bound(method: str) -> str:
    """Returns the name of a row that is an upper bound, which never goes without saying so."""
    return method if UPPER_BOUND in method else f"{method}, {UPPER_BOUND}"


def read_result(path: Path, read: bytes) -> RunResult:
    """Returns the result that was read from this file."""
    content = read_json(path, read)
    check_format(content, path, "train the run again, in another folder of runs (--runs DIR)")
    try:
        return RunResult.model_validate(content, context=path.with_name(CONFUSIONS))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        what = "is missing" if first["type"] == "missing" else first["msg"]
        raise UnseenError(f"{path} is damaged: {where}: {what}; train the run again") from error


def write_result(path: Path, result: RunResult) -> None:
    """Writes a result, its arrays first: a result that is there is whole."""
    places: dict[bytes, tuple[int, Array]] = {}
    content = result.model_dump(mode="json", by_alias=True, context=places)
    confusions = {str(number): counts for number, counts in places.values()}
    write_arrays(path.with_name(CONFUSIONS), confusions, compress=True)
    write_json(path, {"format": FORMAT, **content})
