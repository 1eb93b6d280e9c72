"""The answer: what was chosen, what to expect of it at a new place, and what to do next; as a few
sentences, as JSON, and as one web page that fetches nothing."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from markupsafe import escape

from unseen.api import Run
from unseen.audit.findings import Finding
from unseen.automatic.adapt import Adaptation
from unseen.automatic.candidates import Candidate
from unseen.automatic.choice import NESTED, Choice, Expectation, Row, standard_error
from unseen.forecast.forecast import FileForecast
from unseen.reports.figures.charts import Axis, ChartRow, Mark, row_chart
from unseen.reports.figures.figure import Figure
from unseen.reports.figures.grids import confusion_map, image_sheet
from unseen.reports.figures.svg import Key
from unseen.reports.page import parts
from unseen.reports.page.classes import mistakes
from unseen.reports.shown import Shown
from unseen.results.statistics import paired_difference
from unseen.serve.model import Model
from unseen.settings.experiment import METRICS
from unseen.sweeps.draws import PlannedRun

PAGE, FILE, AUDIT, REFERENCES = "auto.html", "auto.json", "audit.html", "references"
ADAPTED = "adapted"
_TEMPLATE = Path(__file__).with_name("answer.html")
_MOST_PICTURES = 14
_FEW = 30
"""Images of a class, below which the answer says so."""
_UNLIKE = 0.10
"""How far a place may be below the mean of the others before the answer says so."""
_OFTEN = 0.05
"""The share of a class that is taken for another, from which on the answer says so."""


@dataclass(frozen=True)
class Answer(Shown):
    """What `unseen.auto` returns: the model, what to expect of it, and how it was chosen."""

    home: Path
    run: Run
    choice: Choice
    expectation: Expectation
    plain: Expectation | None
    """The same for plain training, chosen by the same rules."""
    candidates: Mapping[str, Candidate]
    tried: Mapping[Row, Mapping[str, float]]
    """What each candidate at its length was worth on each place: means over the runs that choices
    look at."""
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

    @property
    def kept_out(self) -> dict[str, float]:
        """What the model is worth on the domains that `--unseen` kept out."""
        return self.run.measure() if self.run.result.unseen_domains else {}

    def lines(self) -> list[str]:
        """Returns the answer as a few lines of text."""
        return [*self.sentences(), *self.limits()]

    def sentences(self) -> Iterator[str]:
        """Yields what was found; the first sentence says the most."""
        found, (name, steps) = self.expectation, self.choice.row
        about = f"{METRICS[self.run.result.metric]}, {len(found.by_place)} places left out in turn"
        interval = f"{100 * found.low:.0f} to {100 * found.high:.0f}"
        yield f"At a new place expect {percent(found.mean)} ({interval}; {about})."
        worst = percent(found.by_place[found.hardest])
        yield f"Hardest: {short_name(found.hardest)}, {worst}. {_kind(found)}"
        if self.plain and (gain := paired_difference(self.plain.by_place, found.by_place)):
            spread = "" if gain.half_width is None else f" ± {100 * gain.half_width:.1f}"
            ahead = f"{100 * gain.mean:+.1f}{spread} points for the choice, paired by place"
            yield f"Plain training, chosen by the same rules: {percent(self.plain.mean)} ({ahead})."
        why = "the best on the places that were left out"
        if self.choice.row != self.choice.best:
            behind, noise = 100 * self.choice.behind, 100 * self.choice.noise
            why = (
                "the simplest that is not worse by more than noise than the best, "
                f"{self.choice.best[0]} ({behind:.1f} points, one standard error is {noise:.1f})"
            )
        tried = f"{len(dict(self.tried))} candidates, {self.runs} runs, {self.minutes:.0f} minutes"
        yield f"Chosen: {name}, {steps:,} steps: {why}. Tried: {tried}."
        if (merged := self.run.result.merged) is not None:
            yield f"The model: the mean of {len(merged.runs)} trainings with different seeds."
        if own := self.kept_out:
            values = ", ".join(f"{domain} {100 * value:.1f} %" for domain, value in own.items())
            yield f"Kept out of everything and measured now: {values}."
        if self.forecast is not None:
            made = self.forecast.forecast
            yield f"On the {made.images} new images expect an accuracy of {made.text}."
        if self.adaptation is not None:
            yield self.adaptation.text

    def limits(self) -> Iterator[str]:
        """Yields what keeps the model from being better, or the answer from being surer."""
        found, names = self.expectation, self.run.classes
        rare = min(self.images, key=lambda each: self.images[each])
        if self.images[rare] < _FEW:
            yield f"Few images: {self.images[rare]} of {rare} in all places together."
        others = [value for place, value in found.by_place.items() if place != found.hardest]
        behind = fmean(others) - found.by_place[found.hardest]
        if len(others) > 1 and behind > _UNLIKE:
            yield (
                f"{short_name(found.hardest)} is unlike the other places, {100 * behind:.0f} "
                "points below their mean: labelled images of more places like it help most."
            )
        true, predicted = self.most_confused
        share = self.confusion[true, predicted] / max(1, self.confusion[true].sum())
        if true != predicted and share >= _OFTEN:
            about = f"{names[true]} taken for {names[predicted]}"
            yield f"Most confused: {about}, in {percent(share)} of its images."
        name, steps = self.choice.row
        shorter = [n for own, n in self.tried if own == name and n < steps]
        if shorter and self.choice.row in self.tried:
            before = self.tried[name, max(shorter)]
            gains = [v - before[place] for place, v in self.tried[self.choice.row].items()]
            if fmean(gains) > max(0.005, standard_error(gains)):
                yield (
                    f"Longer training still helped ({100 * fmean(gains):+.1f} points from "
                    f"{max(shorter):,} to {steps:,} steps): give more --minutes."
                )
        if faults := ", ".join(f"{each.kind} ({each.count:,})" for each in self.findings):
            yield f"Faults in the images: {faults}; see {self.home / AUDIT}."
        if self.problems:
            yield f"A run failed: {self.problems[0]}"

    @cached_property
    def confusion(self) -> np.ndarray:
        """The answers of these runs on the place that each left out, `[classes, classes]`."""
        number = len(self.run.classes)
        views = (run.result.view(run.result.selection, "out_of_domain") for run in self.behind)
        counts = (each.confusion[:number, :number] for view in views for each in view.values())
        return np.sum(list(counts), axis=0)

    @property
    def most_confused(self) -> tuple[int, int]:
        """The class that was taken for another one most often, and that other one."""
        wrong = self.confusion - np.diag(self.confusion.diagonal())
        true, predicted = np.unravel_index(wrong.argmax(), wrong.shape)
        return int(true), int(predicted)

    @property
    def commands(self) -> dict[str, str]:
        """What to do next, with real paths."""
        run, home = (shlex.quote(str(path)) for path in (self.run.folder.path, self.home))
        adapted = self.adaptation is not None and self.adaptation.helps
        model, references = f"{home}/{ADAPTED}" if adapted else run, f"{home}/{REFERENCES}"
        return {
            "predictions for new images": f"unseen predict {model} IMAGES",
            "how well it will do on them": f"unseen forecast {run} IMAGES --reference {references}",
            "one file for onnxruntime": f"unseen export {run} --to onnx",
            "a page for people": f"unseen serve {run}",
            "the runs behind this choice": f"unseen report {references}",
        }

    def records(self) -> list[dict[str, Any]]:
        """Returns all candidates, the best first: what each was worth on each place. The choice was
        made by the candidate's longest training that was tried in all places."""
        compared = max(row for row in self.tried if row[0] == self.choice.row[0])
        rows = []
        for (name, steps), worth in self.tried.items():
            method, plain = self.candidates[name].method, self.candidates[name].plain
            about = {"candidate": name, "steps": steps, "method": method, "plain": plain}
            about |= {"chosen": (name, steps) == compared, "mean": fmean(worth.values())}
            rows.append(about | dict(worth))
        return sorted(rows, key=lambda row: -row["mean"])

    def as_json(self) -> dict[str, Any]:
        """Returns all numbers and sentences as plain data."""
        return {
            "text": self.lines(),
            "model": str(self.run.folder.path),
            "metric": self.run.result.metric,
            "expectation": self.expectation.as_json(),
            "plain": self.plain and self.plain.as_json(),
            "choice": self.choice._asdict(),
            "kept out": self.kept_out,
            "candidates": self.records(),
            "findings": {each.kind: each.text for each in self.findings},
            "runs": self.runs,
            "minutes": self.minutes,
            "commands": self.commands,
            "forecast": self.forecast and self.forecast.as_json(),
            "adaptation": self.adaptation and self.adaptation._asdict(),
        }

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        first, *others = map(escape, self.lines())
        return f"<h4>{first}</h4>" + "".join(f"<p>{line}</p>" for line in others)

    def plot(self) -> Figure:
        """Draws what was measured on each place, beside plain training, and what to expect."""
        found, rows = self.expectation, list[ChartRow]()
        for place, value in sorted(found.by_place.items(), key=lambda each: each[1]):
            beside = [100 * self.plain.by_place[place]] if self.plain else []
            hollow = (Mark("plain training", each, look="hollow") for each in beside)
            marks = (Mark("the choice", 100 * value), *hollow)
            rows.append(ChartRow(short_name(place), 1, marks, percent(value)))
        middle, half = 50 * (found.high + found.low), 50 * (found.high - found.low)
        expected = Mark("expected", middle, half, "hollow")
        rows.append(ChartRow("a new place", 0, (expected,), percent(found.mean)))
        axis = Axis(0, 100, f"{METRICS[self.run.result.metric]}, %")
        return Figure(
            "places",
            "Each place, by models that never saw it",
            "Filled: what was chosen; hollow: plain training. Below: the interval for a new place, "
            "which should hold the truth four times out of five.",
            (row_chart("", rows, axis),),
            legend=(Key("the choice", 1, "dot"), Key("plain training", 1, "hollow")),
        )

    def write_page(self, path: Path) -> None:
        """Writes the answer as one web page."""
        first, *others = self.sentences()
        code = [parts.Fold(title, code=each, open=True) for title, each in self.commands.items()]
        places = parts.Section("places", "Places", _kind(self.expectation), (self.plot(),))
        after = parts.Section("next", "Next", "The model is a run folder like any other.", (*code,))
        content = {
            "title": self.run.result.dataset,
            "headline": first,
            "sentences": others,
            "limits": list(self.limits()),
            "sections": [places, self._candidates(), self._classes(), after],
        }
        parts.write_whole(path, parts.render_page(_TEMPLATE, content))

    def _candidates(self) -> parts.Section:
        places, rows = list(self.expectation.by_place), list[parts.PageRow]()
        for each in self.records():
            name, steps, mean, best = (each[k] for k in ("candidate", "steps", "mean", "chosen"))
            cells = [parts.PageCell(name, name, best), parts.PageCell(f"{steps:,}", steps)]
            cells.append(parts.PageCell(f"{100 * mean:.1f}", mean, best))
            values = [100 * each[place] if place in each else None for place in places]
            rows.append(parts.page_row(*cells, *(parts.number(value, ".1f") for value in values)))
        header = ("candidate", "steps", "mean", *map(short_name, places))
        note = "Each number is from a model that was trained without the place in its column."
        if self.expectation.kind == NESTED:
            note += " In the expectation above, what stands for a place was chosen without it."
        table = parts.PageTable("What was tried", header, tuple(rows), (note,))
        lead = "The simplest that is not worse by more than noise than the best is chosen."
        return parts.Section("candidates", "Candidates", lead, (table,))

    def _classes(self) -> parts.Section:
        """Returns the confusions, and of the two classes that are confused most pictures and where
        the models looked."""
        names, (true, predicted) = self.run.classes, self.most_confused
        about = "Share of each class (row) that is taken for another (column), in percent."
        drawn = (confusion_map("", self.confusion, names),)
        figures = [Figure("classes", "Confusions on places that were left out", about, drawn)]
        found = [p for run in self.behind for p in mistakes(run.folder, names, true, predicted)]
        if found:
            title, drawn = f"{names[true]} taken for {names[predicted]}", found[:_MOST_PICTURES]
            about = "The most confident mistakes; below each image: where the model looked."
            figures.append(Figure("confused", title, about, (image_sheet("", drawn),), wide=True))
        lead = "All places together, each answered by a model that never saw it."
        return parts.Section("classes", "Classes", lead, tuple(figures))


def _kind(found: Expectation) -> str:
    """Says what kind of estimate it is."""
    if found.kind == NESTED:
        text = "No label of a place had a part in the choice that was measured on it."
        weaker = " With three places these choices were made by models of one place each."
        return text + weaker * (len(found.by_place) == 3)
    leans = "The same runs chose the model, so these numbers lean to the high side"
    if len(found.by_place) == 2:
        return (
            f"{leans}: with two places none is left to choose by without the other. Two places "
            "show that a model holds up somewhere else, hardly how much places differ."
        )
    return f"{leans}: there was no time to choose for each place without it; more minutes help."


def percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def short_name(place: str) -> str:
    """Returns the name of a place; of many domains together, the first and how many there are."""
    first, *others = place.split("+")
    return place if len(others) < 2 else f"{first} and {len(others)} other domains"
