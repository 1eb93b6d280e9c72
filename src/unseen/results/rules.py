"""Which step of a run counts, decided from its evaluation records alone. No torch."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from unseen.errors import SettingsError, UnseenError, unknown_name
from unseen.settings.experiment import METRICS, Metric

WITHOUT_LABELS: dict[str, str] = {
    "infomax": "highest information maximisation on unlabelled target images: confident "
    "predictions, of all classes",
    "snd": "highest soft neighbourhood density of unlabelled target images: predictions in dense "
    "groups",
    "bnm": "largest nuclear norm of predictions on unlabelled target images: confident and diverse "
    "predictions",
    "dev": "lowest validation loss over the training domains, images that look like the target's "
    "counting more",
}
"""Rules for adaptation, where training sees images of the target, and never a label of it."""

RULES: dict[str, str] = {
    "source": "best mean validation {metric} over the training domains, lowest validation loss on "
    "ties",
    "last": "the last step of training, nothing is chosen",
    **WITHOUT_LABELS,
    "oracle": "chosen on the unseen domain's labels, an upper bound",
}
"""`meaning` fills in the metric."""

DRAW_RULES: dict[str, str] = {
    "source": "the draw and step with the best mean validation {metric} over the training domains",
    "last": "the draw with the best mean validation {metric} over the training domains at the last "
    "step, which counts",
    "leave-one-domain-out": "the draw that does best on the other domains when each of them, too, "
    "is held out of training; the step by validation images",
    **{name: f"the draw and step with the {about}" for name, about in WITHOUT_LABELS.items()},
    "oracle": "the draw chosen on the unseen domain's labels, an upper bound",
}
"""How a sweep chooses among draws of settings, from the records of finished runs."""


def meaning(rule: str, metric: Metric | None, rules: Mapping[str, str] = RULES) -> str:
    """Returns what a rule does; without a metric, for runs that have different ones."""
    return rules[rule].format(metric=METRICS[metric] if metric else "result")


def rule_note(rule: str, metric: Metric | None = "accuracy") -> str:
    return f"Selection rule {rule}: {meaning(rule, metric)}."


class Evaluation(NamedTuple):
    """Accuracies by domain name at one step, and the mean cross-entropy on validation images;
    `unseen` is filled for the oracle only, `without_labels` in adaptation. Of a run with another
    metric, there are its values, too, and they decide."""

    step: int
    validation: Mapping[str, float]
    unseen: Mapping[str, float] | None = None
    validation_loss: Mapping[str, float] | None = None
    without_labels: Mapping[str, float] | None = None
    """By selection rule: what it finds in unlabelled target images, the higher the better."""
    metric: Metric = "accuracy"
    validation_metric: Mapping[str, float] | None = None
    unseen_metric: Mapping[str, float] | None = None

    def seen_by(self, rule: str) -> Mapping[str, float]:
        """Returns all that a rule gets to see; its mean counts. Only the oracle sees values of an
        unseen domain."""
        if rule in WITHOUT_LABELS:
            return {name: v for name, v in (self.without_labels or {}).items() if name == rule}
        if rule == "oracle":
            return (self.unseen if self.unseen_metric is None else self.unseen_metric) or {}
        return self.deciding

    @property
    def deciding(self) -> Mapping[str, float]:
        """The values on the validation images by the run's metric."""
        return self.validation if self.validation_metric is None else self.validation_metric

    @property
    def score(self) -> float:
        """The mean of the deciding values over the training domains."""
        return fmean(self.deciding.values())

    @property
    def loss(self) -> float:
        """The mean validation loss over the training domains, which decides between equal
        scores."""
        return fmean(self.validation_loss.values()) if self.validation_loss else math.inf


def recorded_validation(record: Mapping[str, Any]) -> Mapping[str, float]:
    """Returns the values that decide, from an evaluation in metrics.jsonl; where there are no
    others beside them, accuracies."""
    others = (record[key] for metric in METRICS if (key := f"validation_{metric}") in record)
    return next(others, record["validation"])


def check_rule(rule: str) -> None:
    """Raises for a rule that does not exist, naming the nearest one."""
    if rule not in RULES:
        raise SettingsError(unknown_name("selection rule", rule, RULES))


def rank(score: float, loss: float) -> tuple[float, float]:
    """Returns a key that sorts the best first: the highest score, and of equal scores, which are
    frequent where validation images are few, the lowest validation loss."""
    return -score, loss if math.isfinite(loss) else math.inf


def choose(rule: str, evaluations: Sequence[Evaluation]) -> int:
    """Returns the step that counts under a rule: the highest mean over domains; of equal ones that
    with the lowest validation loss, or else the earliest."""
    check_rule(rule)
    if not evaluations:
        raise UnseenError("no evaluation was recorded, so no step can be chosen; train the run")
    if rule == "last":
        return max(each.step for each in evaluations)
    for each in evaluations:
        values = each.seen_by(rule)
        if not values:
            what, remedy = _LACKS.get(rule, _LACKS["infomax"])
            raise SettingsError(f"step {each.step} has no {what}, which '{rule}' needs; {remedy}")
        for name, value in values.items():
            if not math.isfinite(value):
                raise UnseenError(
                    f"the result of '{name}' at step {each.step} is {value}, expected a number; "
                    "check that each domain has images to evaluate"
                )
    return min(
        evaluations,
        key=lambda each: (*rank(fmean(each.seen_by(rule).values()), each.loss), each.step),
    ).step


_LACKS = {
    "source": (
        "validation accuracy",
        "set data.validation_share above 0 or choose selection=last",
    ),
    "oracle": (
        "accuracy on an unseen domain",
        "train with selection=oracle and data.unseen_domain set",
    ),
    "infomax": (
        "value of the unlabelled target images",
        "train the run anew, with setting=adaptation",
    ),
}
"""What a rule may not find, and what to do; those without labels are alike."""
