"""Which draw counts, decided after the fact from the records of finished runs. No torch.

A rule never sees a record: it gets candidates that hold one number each. Only the oracle's are made
from the labels of the unseen domain.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from unseen.errors import SettingsError, UnseenError, unknown_name
from unseen.records.folder import RunFolder
from unseen.selection import DRAW_RULES, WITHOUT_LABELS, Evaluation, choose, recorded_validation

_IN_EACH_RUN = "source"
"""The run's own rule that chooses the step under leave-one-domain-out."""


class Draw(NamedTuple):
    """The finished runs of one draw: one domain held out, and that one with each other one."""

    number: int
    run: RunFolder
    pairs: Mapping[str, RunFolder] = {}
    """By the name of the other domain."""


class Candidate(NamedTuple):
    """All that a rule gets to see of a draw."""

    draw: int
    score: float
    recorded: str
    """The run's own rule under which its result is then read."""


def choose_draw(rule: str, draws: Sequence[Draw]) -> Candidate:
    """The highest score; of equal ones the first draw."""
    if rule not in DRAW_RULES:
        raise SettingsError(unknown_name("selection rule", rule, DRAW_RULES))
    candidates = [each for draw in draws for each in _CANDIDATES[rule](draw)]
    if not candidates:
        raise UnseenError("there is no finished draw to choose from")
    return min(candidates, key=lambda each: (-each.score, each.draw))


def source_evaluations(folder: RunFolder) -> list[Evaluation]:
    """Validation results that may be chosen on; of an unseen domain nothing is taken over but what
    rules found in unlabelled images."""
    return [
        Evaluation(
            record["step"],
            recorded_validation(record),
            without_labels=record.get("without_labels"),
        )
        for record in folder.read_metrics()
        if "validation" in record and record.get("candidate", True)
    ]


def validation_score(evaluations: Sequence[Evaluation], rule: str = "source") -> float:
    """Mean over the training domains at the step that the rule prefers, or what a rule without
    labels found there."""
    step = choose(rule, evaluations)
    [chosen] = [each for each in evaluations if each.step == step]
    return fmean(chosen.seen_by(rule).values()) if rule in WITHOUT_LABELS else chosen.score


def _by_validation(rule: str) -> Callable[[Draw], Iterator[Candidate]]:
    def candidates(draw: Draw) -> Iterator[Candidate]:
        yield Candidate(draw.number, validation_score(source_evaluations(draw.run), rule), rule)

    return candidates


def _by_other_domains(draw: Draw) -> Iterator[Candidate]:
    """Of a run with two domains held out, only the result on the other one is read."""
    scores = [_mean(run, _IN_EACH_RUN, [other]) for other, run in draw.pairs.items()]
    if not scores:
        raise UnseenError(
            "leave-one-domain-out needs runs with two domains held out; set pairs=all"
        )
    yield Candidate(draw.number, fmean(scores), _IN_EACH_RUN)


def _by_unseen_labels(draw: Draw) -> Iterator[Candidate]:
    """Every checkpoint that was measured."""
    result = draw.run.read_result()
    for recorded in result.rules:
        score = _mean(draw.run, recorded, result.unseen_domains)
        yield Candidate(draw.number, score, recorded)


def _mean(run: RunFolder, recorded: str, domains: Sequence[str]) -> float:
    """Over domains, by the run's metric."""
    result = run.read_result()
    measured = result.view(recorded, "out_of_domain")
    return fmean(measured[domain].measure(result.metric) for domain in domains)


_CANDIDATES: dict[str, Callable[[Draw], Iterator[Candidate]]] = {
    "source": _by_validation("source"),
    "last": _by_validation("last"),
    "leave-one-domain-out": _by_other_domains,
    **{rule: _by_validation(rule) for rule in WITHOUT_LABELS},
    "oracle": _by_unseen_labels,
}
