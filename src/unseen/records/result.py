"""The result of a run: what was counted, by selection rule, view and domain. No torch.

result = RunFolder(path).read_result()
for domain, measured in result.view("source", "out_of_domain").items():
    print(domain, measured.accuracy, measured.confusion)
"""

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Literal

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
from unseen.records import measures
from unseen.records.arrays import Array
from unseen.records.confusion import Confusion, ConfusionFile
from unseen.records.format import FORMAT, check_format
from unseen.records.merged import Merged
from unseen.records.views import VIEWS, View
from unseen.settings.metrics import Metric

CONFUSIONS = "confusions.npz"
"""Beside result.json."""
UPPER_BOUND = "trained on the target's labels (upper bound)"
"""What tables call a model that was trained on labels of the domain that it is measured on."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)


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
        gaps = (abs(c - right) for c, right in zip(self.confidence, self.correct, strict=True))
        return sum(gaps) / sum(self.images)


def _from_file(value: Any, info: ValidationInfo) -> Any:
    path: Any = info.context
    return Confusion(stored=(path, value)) if isinstance(value, int) else value


def _to_file(confusion: Confusion, info: SerializationInfo) -> int:
    file: Any = info.context
    return file.add(confusion)


class DomainResult(_Record):
    """Answers on the images of one domain. All measures derive from counts."""

    images: int = Field(gt=0)
    correct: int = Field(ge=0)
    calibration: Calibration
    """By the model's own confidence."""
    calibrated: Calibration | None = None
    """By its confidence at the temperature of the selection rule; None in records of versions that
    fitted none."""
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
            calibration=calibration,
            calibrated=calibrated,
            confusion=Confusion(confusion),
        )

    @computed_field
    @property
    def accuracy(self) -> float:
        return self.correct / self.images

    @computed_field
    @property
    def balanced_accuracy(self) -> float:
        """Mean recall over the classes that have images."""
        return self.measure("balanced")

    @computed_field
    @property
    def macro_f1(self) -> float:
        """Mean F1 over the classes that have images."""
        return self.measure("macro_f1")

    @computed_field
    @property
    def largest_class_share(self) -> float:
        """The accuracy of always answering with the class that has the most images."""
        return self.counts.derived(measures.largest_class_share)

    def measure(self, metric: Metric) -> float:
        if metric == "accuracy":
            return self.accuracy
        return self.counts.derived(measures.MEASURES[metric])

    def always_largest(self, metric: Metric) -> float:
        """What always answering with the class that has the most images would get."""
        return self.counts.derived(measures.ALWAYS_LARGEST[metric])

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
        """`[classes, classes]`: images of a true class (row) that were called each class."""
        return self.counts.read()

    @property
    def recall(self) -> Array:
        """Share of each class's images that were recognised; NaN for a class without images."""
        return measures.recall(self.confusion)


Measured = dict[str, DomainResult]
"""By domain."""
Views = dict[View, Measured]


class RuleResult(_Record):
    """The checkpoint that a selection rule chose."""

    step: int
    views: Views
    temperature: float | None = Field(default=None, gt=0)
    """Class scores are divided by it before they become probabilities: fitted on the source
    validation images, every domain weighing the same. 1 where they have no wrong answer to fit on;
    None in records of versions that fitted none."""


class RunResult(_Record):
    """The content of result.json."""

    run: str
    """The identity of the run's settings, or of the runs that it was merged from."""
    dataset: str
    method: str
    backbone: str
    setting: Literal["generalization", "adaptation"]
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
    def label(self) -> str:
        """`dmg`, or `dmg, merged (7 runs)`; an upper bound says so."""
        name = labelled_bound(self.method) if self.trained_on_unseen else self.method
        return name if self.merged is None else f"{name}, {self.merged.label}"

    @property
    def source_domains(self) -> tuple[str, ...]:
        """Training domains that it is not measured on as unseen ones."""
        return tuple(name for name in self.training_domains if name not in self.unseen_domains)

    def under(self, rule: str) -> RuleResult:
        if rule not in self.rules:
            raise SettingsError(
                f"the run recorded the selection rules {', '.join(self.rules)}, and not '{rule}'"
            )
        return self.rules[rule]

    def view(self, rule: str, name: View) -> Mapping[str, DomainResult]:
        """By domain."""
        if name not in VIEWS:
            raise SettingsError(unknown_name("view", name, VIEWS))
        return self.under(rule).views.get(name, {})

    def mean(self, rule: str, view: View, metric: Metric | None = None) -> float | None:
        """By the run's own metric or another, every domain counting the same; None where the view
        has no domain."""
        measured = self.view(rule, view).values()
        return fmean(each.measure(metric or self.metric) for each in measured) if measured else None


def labelled_bound(method: str) -> str:
    """The name of a row that is an upper bound, which never goes without saying so."""
    return method if UPPER_BOUND in method else f"{method}, {UPPER_BOUND}"


def read_result(path: Path) -> RunResult:
    content = read_json(path)
    check_format(content, path, "train the run again, in another folder of runs (--runs DIR)")
    try:
        return RunResult.model_validate(content, context=path.with_name(CONFUSIONS))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        what = "is missing" if first["type"] == "missing" else first["msg"]
        raise UnseenError(f"{path} is damaged: {where}: {what}; train the run again") from error


def write_result(path: Path, result: RunResult) -> None:
    """The arrays first: a result that is there is whole."""
    file = ConfusionFile()
    content = result.model_dump(mode="json", by_alias=True, context=file)
    file.write(path.with_name(CONFUSIONS))
    write_json(path, {"format": FORMAT, **content})
