"""Which step of a run counts, decided from its evaluation records alone. No torch."""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from unseen.errors import SettingsError, UnseenError, unknown_name

RULES: dict[str, str] = {
    "source": "best mean validation accuracy over the training domains, earliest on ties",
    "last": "the last step of training, nothing is chosen",
    "oracle": "chosen on the unseen domain's labels, an upper bound",
}


def rule_note(rule: str) -> str:
    return f"Selection rule {rule}: {RULES[rule]}."


DRAW_RULES: dict[str, str] = {
    "source": "the draw and step with the best mean validation accuracy over the training domains",
    "last": "the draw with the best mean validation accuracy over the training domains at the last "
    "step, which counts",
    "leave-one-domain-out": "the draw that does best on the other domains when each of them, too, "
    "is held out of training; the step by source validation",
    "oracle": "the draw chosen on the unseen domain's labels, an upper bound",
}
"""How a sweep chooses among draws of settings, from the records of finished runs."""


class Evaluation(NamedTuple):
    """Accuracies by domain name at one step; `unseen` is filled for the oracle only."""

    step: int
    validation: Mapping[str, float]
    unseen: Mapping[str, float] | None = None


class _Candidate(NamedTuple):
    """What a rule gets to see: one step, and the accuracies that it may use."""

    step: int
    accuracies: Mapping[str, float]


def check_rule(rule: str) -> None:
    """Raise for a rule that does not exist, naming the nearest one."""
    if rule not in RULES:
        raise SettingsError(unknown_name("selection rule", rule, RULES))


def choose(rule: str, evaluations: Sequence[Evaluation]) -> int:
    """The step that counts under a rule; only the oracle is handed unseen-domain accuracies."""
    check_rule(rule)
    if not evaluations:
        raise UnseenError("no evaluation was recorded, so no step can be chosen; train the run")
    if rule == "oracle":
        return _best(_unseen_candidates(evaluations))
    candidates = [_Candidate(each.step, each.validation) for each in evaluations]
    return _SOURCE_RULES[rule](candidates)


def _unseen_candidates(evaluations: Sequence[Evaluation]) -> list[_Candidate]:
    candidates: list[_Candidate] = []
    for each in evaluations:
        if not each.unseen:
            raise SettingsError(
                f"step {each.step} has no accuracy on an unseen domain, which the rule 'oracle' "
                "needs; train with selection=oracle and data.unseen_domain set"
            )
        candidates.append(_Candidate(each.step, each.unseen))
    return candidates


def _best_on_source(candidates: Sequence[_Candidate]) -> int:
    for candidate in candidates:
        if not candidate.accuracies:
            raise SettingsError(
                f"step {candidate.step} has no validation accuracy, which the rule 'source' "
                "needs; set data.validation_share above 0 or choose selection=last"
            )
    return _best(candidates)


def _last(candidates: Sequence[_Candidate]) -> int:
    return max(candidate.step for candidate in candidates)


def _best(candidates: Sequence[_Candidate]) -> int:
    """Highest mean over domains; of equal ones the earliest."""
    for candidate in candidates:
        for domain, accuracy in candidate.accuracies.items():
            if not math.isfinite(accuracy):
                raise UnseenError(
                    f"accuracy on '{domain}' at step {candidate.step} is {accuracy}, expected "
                    "a number from 0 to 1; check that the domain has images to evaluate"
                )
    ranked = min(candidates, key=lambda each: (-fmean(each.accuracies.values()), each.step))
    return ranked.step


_SOURCE_RULES: dict[str, Callable[[Sequence[_Candidate]], int]] = {
    "source": _best_on_source,
    "last": _last,
}
