"""The answer: what was chosen, what to expect of it at a new place, and what to do next."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unseen.api import Run
from unseen.audit.findings import Finding
from unseen.automatic.choice import Choice, Expectation, Row, standard_error
from unseen.forecast.forecast import FileForecast
from unseen.optional import require
from unseen.results.statistics import Estimate, paired_difference
from unseen.serve.model import Model
from unseen.settings.experiment import METRICS

if TYPE_CHECKING:
    from pandas import DataFrame

PAGE, FILE, AUDIT, REFERENCES = "auto.html", "auto.json", "audit.html", "references"
_FEW = 30
"""Images of a class, below which the answer says so."""
_UNLIKE = 0.10
"""How far a place may be below the mean of the others before the answer says so."""
_OFTEN = 0.05
"""The share of a class that is taken for another, from which on the answer says so."""


@dataclass(frozen=True)
class Tried:
    """A candidate with its length, and what it was worth on each place that was left out."""

    row: Row
    method: str
    plain: bool
    by_place: Mapping[str, float]
    """Means over the runs that choices look at."""

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.by_place.values())))


@dataclass(frozen=True)
class Answer:
    """What `unseen.auto` returns: the model, what to expect of it, and how it was chosen."""

    home: Path
    run: Run
    choice: Choice
    expectation: Expectation
    plain: Expectation | None
    """The same for plain training, chosen by the same rules."""
    by_validation: Mapping[str, tuple[float, float]]
    """By place: what choices without it are worth there among the candidates of the first rounds,
    and what choices by held-out images of the places that trained are worth."""
    tried: tuple[Tried, ...]
    runs: int
    minutes: float
    images: Mapping[str, int]
    """By class, of all places together."""
    confusion: np.ndarray
    """Of the answers on the places that were left out, with what was chosen for each."""
    problems: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    """Faults in the images."""
    forecast: FileForecast | None = None

    @cached_property
    def model(self) -> Model:
        """The model, ready to predict."""
        return self.run.model

    @cached_property
    def compared(self) -> Row:
        """The row by which the choice was made: its candidate with the longest training that was
        tried in all places."""
        return max(tried.row for tried in self.tried if tried.row[0] == self.choice.row[0])

    @property
    def gain(self) -> Estimate | None:
        """How far the choice is ahead of plain training, paired by place."""
        if self.plain is None:
            return None
        return paired_difference(self.plain.by_place, self.expectation.by_place)

    @property
    def measure(self) -> str:
        return METRICS[self.run.result.metric]

    def lines(self) -> list[str]:
        """Returns the answer as a few lines of text."""
        return [
            self.headline,
            self.places_text,
            *([self.plain_text] if self.plain is not None else []),
            self.choice_text,
            *self.kept_out_texts,
            *([self.forecast_text] if self.forecast is not None else []),
            *self.limits,
        ]

    @property
    def headline(self) -> str:
        found = self.expectation
        low, high = (f"{100 * each:.0f}" for each in (found.low, found.high))
        places = f"{len(found.by_place)} places left out in turn"
        about = f"{low} to {high}; {self.measure}, {places}"
        return f"At a new place expect {percent(found.mean)} ({about})."

    @property
    def places_text(self) -> str:
        found = self.expectation
        worst = f"Hardest: {short_name(found.hardest)}, {percent(found.by_place[found.hardest])}."
        return f"{worst} {self.kind_text}"

    @property
    def kind_text(self) -> str:
        """Says what kind of estimate it is."""
        places = len(self.expectation.by_place)
        if self.expectation.kind == "nested":
            text = "No label of a place had a part in the choice that was measured on it."
            if places == 3:
                text += " With three places these choices were made by models of one place each."
            return text
        leans = "The same runs chose the model, so these numbers lean to the high side"
        if places == 2:
            return (
                f"{leans}: with two places none is left to choose by without the other. Two places "
                "show that a model holds up somewhere else, hardly how much places differ."
            )
        return f"{leans}: there was no time to choose for each place without it; more minutes help."

    @property
    def plain_text(self) -> str:
        assert self.plain is not None
        assert self.gain is not None
        gain = 100 * self.gain.mean
        width = self.gain.half_width
        spread = "" if width is None else f" ± {100 * width:.1f}"
        return (
            f"Plain training, chosen by the same rules: {percent(self.plain.mean)} "
            f"({gain:+.1f}{spread} points for the choice, paired by place)."
        )

    @property
    def choice_text(self) -> str:
        name, steps = self.choice.row
        why = "the best on the places that were left out"
        if self.choice.row != self.choice.best:
            behind, noise = 100 * self.choice.behind, 100 * self.choice.noise
            why = (
                "the simplest that is not worse by more than noise than the best, "
                f"{self.choice.best[0]} ({behind:.1f} points, one standard error is {noise:.1f})"
            )
        candidates = len({tried.row[0] for tried in self.tried})
        return (
            f"Chosen: {name}, {steps:,} steps: {why}. Tried: {candidates} candidates, "
            f"{self.runs} runs, {self.minutes:.0f} minutes."
        )

    @property
    def kept_out(self) -> dict[str, float]:
        """What the model is worth on the domains that `--unseen` kept out."""
        return self.run.measure() if self.run.result.unseen_domains else {}

    @property
    def kept_out_texts(self) -> list[str]:
        found = self.kept_out
        if not found:
            return []
        values = ", ".join(f"{name} {100 * value:.1f} %" for name, value in found.items())
        return [f"Kept out of everything and measured now: {values}."]

    @property
    def forecast_text(self) -> str:
        assert self.forecast is not None
        made = self.forecast.forecast
        return f"On the {made.images} new images expect an accuracy of {made.text}."

    @property
    def limits(self) -> list[str]:
        """Returns what keeps the model from being better, or the answer from being surer."""
        found = [self._about_images(), self._about_places(), self._about_classes()]
        faults = ", ".join(f"{each.kind} ({each.count:,})" for each in self.findings)
        look = [f"Faults in the images: {faults}; see {self.home / AUDIT}."] if faults else []
        failed = [f"A run failed: {self.problems[0]}"] if self.problems else []
        return [*chain.from_iterable((*found, self._about_length())), *look, *failed]

    def _about_images(self) -> Iterator[str]:
        name = min(self.images, key=lambda each: self.images[each])
        if self.images[name] < _FEW:
            yield f"Few images: {self.images[name]} of {name} in all places together."

    def _about_places(self) -> Iterator[str]:
        found = self.expectation
        others = [value for place, value in found.by_place.items() if place != found.hardest]
        behind = float(np.mean(others)) - found.by_place[found.hardest]
        if len(others) > 1 and behind > _UNLIKE:
            yield (
                f"{short_name(found.hardest)} is unlike the other places, {100 * behind:.0f} "
                "points below their mean: labelled images of more places like it help most."
            )

    @property
    def known_classes(self) -> tuple[list[str], np.ndarray]:
        """Returns the classes that the model knows, and how they were confused."""
        classes = list(self.run.result.classes)
        return classes, self.confusion[: len(classes), : len(classes)]

    def _about_classes(self) -> Iterator[str]:
        classes, confusion = self.known_classes
        wrong = confusion - np.diag(confusion.diagonal())
        true, predicted = np.unravel_index(wrong.argmax(), wrong.shape)
        share = wrong[true, predicted] / max(1, confusion[true].sum())
        if share >= _OFTEN:
            yield (
                f"Most confused: {classes[true]} taken for {classes[predicted]}, in "
                f"{percent(share)} of its images."
            )

    def _about_length(self) -> Iterator[str]:
        name, steps = self.choice.row
        shorter = [t for t in self.tried if t.row[0] == name and t.row[1] < steps]
        chosen = [t for t in self.tried if t.row == self.choice.row]
        if not shorter or not chosen:
            return
        before = max(shorter, key=lambda tried: tried.row[1])
        gains = [v - before.by_place.get(place, v) for place, v in chosen[0].by_place.items()]
        if np.mean(gains) > max(0.005, standard_error(gains)):
            yield (
                f"Longer training still helped ({100 * float(np.mean(gains)):+.1f} points from "
                f"{before.row[1]:,} to {steps:,} steps): give more --minutes."
            )

    @property
    def commands(self) -> dict[str, str]:
        """Returns what to do next, with real paths."""
        run, home = (shlex.quote(str(path)) for path in (self.run.folder.path, self.home))
        return {
            "predictions for new images": f"unseen predict {run} IMAGES",
            "how well it will do on them": (
                f"unseen forecast {run} IMAGES --reference {home}/{REFERENCES}"
            ),
            "one file for onnxruntime": f"unseen export {run} --to onnx",
            "a page for people": f"unseen serve {run}",
            "the runs behind this choice": f"unseen report {home}/{REFERENCES}",
        }

    def as_json(self) -> dict[str, Any]:
        """Returns all numbers and sentences as plain data."""
        return {
            "text": self.lines(),
            "model": str(self.run.folder.path),
            "metric": self.run.result.metric,
            "expectation": expectation_json(self.expectation),
            "plain": expectation_json(self.plain),
            "chosen without the place, by validation images": dict(self.by_validation),
            "choice": self.choice._asdict(),
            "kept out": self.kept_out,
            "candidates": [
                {
                    "name": tried.row[0],
                    "steps": tried.row[1],
                    "method": tried.method,
                    "plain": tried.plain,
                    "mean": tried.mean,
                    "by place": dict(tried.by_place),
                }
                for tried in self.tried
            ],
            "findings": {each.kind: each.text for each in self.findings},
            "runs": self.runs,
            "minutes": self.minutes,
            "commands": self.commands,
            "forecast": None if self.forecast is None else self.forecast.as_json(),
        }

    def to_frame(self) -> "DataFrame":
        """Returns a table of all candidates, the best first: what each was worth on each place."""
        pandas = require("pandas", extra="pandas")
        rows = [
            {
                "candidate": tried.row[0],
                "steps": tried.row[1],
                "method": tried.method,
                "plain": tried.plain,
                "chosen": tried.row == self.compared,
                "mean": tried.mean,
                **tried.by_place,
            }
            for tried in self.tried
        ]
        return pandas.DataFrame(sorted(rows, key=lambda row: -row["mean"]))

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        from markupsafe import escape

        first, *others = map(escape, self.lines())
        return f"<h4>{first}</h4>" + "".join(f"<p>{line}</p>" for line in others)


def percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def short_name(place: str) -> str:
    """Returns the name of a place; of many domains together, the first and how many there are."""
    first, *others = place.split("+")
    return place if len(others) < 2 else f"{first} and {len(others)} other domains"


def expectation_json(found: Expectation | None) -> dict[str, Any] | None:
    if found is None:
        return None
    content = {**found._asdict(), "by_place": dict(found.by_place), "hardest": found.hardest}
    return content | {"rows": {place: list(row) for place, row in found.rows.items()}}


def pooled(confusions: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the sum of confusion matrices; one with a class that is not known has a row more."""
    size = max(len(each) for each in confusions)
    total = np.zeros((size, size), dtype=np.int64)
    for each in confusions:
        total[: len(each), : len(each)] += each
    return total
