"""The answer: what was chosen, what to expect of it at a new place, and what to do next."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unseen.api import Run
from unseen.audit.findings import Finding
from unseen.automatic.adapt import Adaptation
from unseen.automatic.choice import Choice, Expectation, Row, standard_error
from unseen.forecast.forecast import FileForecast
from unseen.optional import require
from unseen.results.statistics import Estimate, paired_difference
from unseen.serve.model import Model
from unseen.settings.experiment import METRICS
from unseen.sweeps.plan import PlannedRun

if TYPE_CHECKING:
    from pandas import DataFrame

PAGE, FILE, AUDIT, REFERENCES = "auto.html", "auto.json", "audit.html", "references"
ADAPTED = "adapted"
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
    behind: tuple[PlannedRun, ...]
    """Those behind what is expected: each left out a place, with what was chosen for it."""
    problems: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    """Faults in the images."""
    forecast: FileForecast | None = None
    adaptation: Adaptation | None = None
    """What came of adapting the model to new images."""

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
        return [self.headline, *self.sentences, *self.limits]

    @property
    def sentences(self) -> list[str]:
        """Returns what follows the first line, without what limits it."""
        parts = (self._about_plain(), [self.choice_text], self._about_model(), self._about_new())
        return [self.places_text, *chain.from_iterable(parts)]

    @property
    def headline(self) -> str:
        found = self.expectation
        between = f"{100 * found.low:.0f} to {100 * found.high:.0f}"
        about = f"{between}; {self.measure}, {len(found.by_place)} places left out in turn"
        return f"At a new place expect {percent(found.mean)} ({about})."

    @property
    def places_text(self) -> str:
        hardest = self.expectation.hardest
        worst = percent(self.expectation.by_place[hardest])
        return f"Hardest: {short_name(hardest)}, {worst}. {self.kind_text}"

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

    def _about_plain(self) -> Iterator[str]:
        if self.plain is not None and (gain := self.gain) is not None:
            spread = "" if gain.half_width is None else f" ± {100 * gain.half_width:.1f}"
            yield (
                f"Plain training, chosen by the same rules: {percent(self.plain.mean)} "
                f"({100 * gain.mean:+.1f}{spread} points for the choice, paired by place)."
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

    def _about_model(self) -> Iterator[str]:
        if (merged := self.run.result.merged) is not None:
            yield f"The model: the mean of {len(merged.runs)} trainings with different seeds."
        if found := self.kept_out:
            values = ", ".join(f"{name} {100 * value:.1f} %" for name, value in found.items())
            yield f"Kept out of everything and measured now: {values}."

    def _about_new(self) -> Iterator[str]:
        if self.forecast is not None:
            made = self.forecast.forecast
            yield f"On the {made.images} new images expect an accuracy of {made.text}."
        if self.adaptation is not None:
            yield self.adaptation.text

    @property
    def limits(self) -> list[str]:
        """Returns what keeps the model from being better, or the answer from being surer."""
        parts = (self._about_places(), self._about_classes(), self._about_length())
        return [*chain.from_iterable((self._about_images(), *parts, self._about_faults()))]

    def _about_images(self) -> Iterator[str]:
        name = min(self.images, key=lambda each: self.images[each])
        if self.images[name] < _FEW:
            yield f"Few images: {self.images[name]} of {name} in all places together."

    def _about_faults(self) -> Iterator[str]:
        if faults := ", ".join(f"{each.kind} ({each.count:,})" for each in self.findings):
            yield f"Faults in the images: {faults}; see {self.home / AUDIT}."
        if self.problems:
            yield f"A run failed: {self.problems[0]}"

    def _about_places(self) -> Iterator[str]:
        found = self.expectation
        others = [value for place, value in found.by_place.items() if place != found.hardest]
        behind = float(np.mean(others)) - found.by_place[found.hardest]
        if len(others) > 1 and behind > _UNLIKE:
            yield (
                f"{short_name(found.hardest)} is unlike the other places, {100 * behind:.0f} "
                "points below their mean: labelled images of more places like it help most."
            )

    @cached_property
    def confusion(self) -> np.ndarray:
        """The answers of these runs on the place that each left out, `[classes, classes]`."""
        number = len(self.run.classes)
        views = (run.result.view(run.result.selection, "out_of_domain") for run in self.behind)
        counts = (each.confusion[:number, :number] for view in views for each in view.values())
        return np.sum(list(counts), axis=0)

    @property
    def wrong(self) -> np.ndarray:
        """Returns how often each class (row) was taken for another one."""
        return self.confusion - np.diag(self.confusion.diagonal())

    @property
    def most_confused(self) -> tuple[int, int]:
        """Returns the class that was taken for another one most often, and that other one."""
        true, predicted = np.unravel_index(self.wrong.argmax(), self.wrong.shape)
        return int(true), int(predicted)

    def _about_classes(self) -> Iterator[str]:
        true, predicted = self.most_confused
        share = self.wrong[true, predicted] / max(1, self.confusion[true].sum())
        if share >= _OFTEN:
            names = self.run.classes
            about = f"{names[true]} taken for {names[predicted]}"
            yield f"Most confused: {about}, in {percent(share)} of its images."

    def _about_length(self) -> Iterator[str]:
        name, steps = self.choice.row
        lengths = {tried.row[1]: tried.by_place for tried in self.tried if tried.row[0] == name}
        before = max((length for length in lengths if length < steps), default=None)
        if before is None or steps not in lengths:
            return
        gains = [value - lengths[before][place] for place, value in lengths[steps].items()]
        gain = float(np.mean(gains))
        if gain > max(0.005, standard_error(gains)):
            yield (
                f"Longer training still helped ({100 * gain:+.1f} points from {before:,} to "
                f"{steps:,} steps): give more --minutes."
            )

    @property
    def commands(self) -> dict[str, str]:
        """Returns what to do next, with real paths."""
        run, home = (shlex.quote(str(path)) for path in (self.run.folder.path, self.home))
        adapted = self.adaptation is not None and self.adaptation.helps
        return {
            "predictions for new images": (
                f"unseen predict {f'{home}/{ADAPTED}' if adapted else run} IMAGES"
            ),
            "how well it will do on them": (
                f"unseen forecast {run} IMAGES --reference {home}/{REFERENCES}"
            ),
            "one file for onnxruntime": f"unseen export {run} --to onnx",
            "a page for people": f"unseen serve {run}",
            "the runs behind this choice": f"unseen report {home}/{REFERENCES}",
        }

    def as_json(self) -> dict[str, Any]:
        """Returns all numbers and sentences as plain data."""
        adaptation = self.adaptation
        return {
            "text": self.lines(),
            "model": str(self.run.folder.path),
            "metric": self.run.result.metric,
            "expectation": self.expectation.as_json(),
            "plain": None if self.plain is None else self.plain.as_json(),
            "chosen without the place, by validation images": dict(self.by_validation),
            "choice": self.choice._asdict(),
            "kept out": self.kept_out,
            "candidates": self._table(),
            "findings": {each.kind: each.text for each in self.findings},
            "runs": self.runs,
            "minutes": self.minutes,
            "commands": self.commands,
            "forecast": None if self.forecast is None else self.forecast.as_json(),
            "adaptation": None if adaptation is None else adaptation._asdict(),
        }

    def _table(self) -> list[dict[str, Any]]:
        """Returns all candidates, the best first: what each was worth on each place."""
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
        return sorted(rows, key=lambda row: -row["mean"])

    def to_frame(self) -> "DataFrame":
        """Returns the table of all candidates, the best first."""
        return require("pandas", extra="pandas").DataFrame(self._table())

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
