"""The search: rounds of runs, of which each is read before the next one is decided."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console

from unseen.api import Run, finish_run
from unseen.atomic import read_json, write_json
from unseen.automatic import budget
from unseen.automatic.budget import Clock, Costs, Measure, Pace, Size
from unseen.automatic.candidates import Candidate, ladder
from unseen.automatic.choice import (
    EVERYWHERE,
    Cell,
    Choice,
    Design,
    Expectation,
    Kind,
    Places,
    Row,
    best_rows,
    choose_in,
    honest,
)
from unseen.automatic.subject import Subject
from unseen.errors import UnseenError
from unseen.results.folder import find_run
from unseen.settings.experiment import Experiment, complete_settings
from unseen.settings.recipes import build_experiment, merge, read_recipe
from unseen.sweeps.jobs import Outcome
from unseen.sweeps.plan import PlannedRun, plan_sweep
from unseen.sweeps.rules import source_evaluations, validation_score
from unseen.sweeps.sweep_file import MethodPart, Sweep
from unseen.sweeps.train import run_plan
from unseen.sweeps.workers import Resources, count_workers, visible_devices

HEAD_STEPS = 300
FINALISTS = 3
"""The most candidates of a branch that are compared once more after a longer training, beside the
best plain one."""
_USUAL_LENGTH = 1000
"""Steps of what is chosen that the first rounds leave time for."""
PLAN, RUNS = "plan.json", "runs"
_FINAL_SHARE = 0.12
"""The share of the time that is kept for the model on all places."""

Wanted = dict[Row, list[Places]]
"""What the runs of each row leave out."""


class Search:
    """All that was trained for an answer.

    Runs on disk are the state. `plan.json` keeps the time that was used and what was decided by
    it, so that a call that goes on decides the same.
    """

    def __init__(
        self,
        subject: Subject,
        home: Path,
        clock: Clock,
        console: Console,
        seeds: Sequence[int] = (0,),
        workers: int | None = 0,
        measure: Measure | None = None,
        train: Callable[..., Mapping[Path, Outcome]] = run_plan,
    ) -> None:
        self.subject, self.home, self.console, self._train = subject, home, console, train
        self.clock, self.seeds = clock, tuple(seeds)
        self.resources = Resources(workers=workers, gpus=float(bool(visible_devices())))
        clock.workers = max(1, count_workers(self.resources))
        request = {**subject.request, "seconds": clock.seconds, "seeds": list(seeds)}
        self._kept: dict[str, Any] = {"request": request, "used": 0.0, "decided": {}}
        known = read_json(home / PLAN) if (home / PLAN).is_file() else {}
        if known.get("request") == request:
            self._kept = known
            clock.used_before = known["used"]
        batch = subject.experiment.images_per_domain
        self.size = Size(subject.images, len(subject.places), batch)
        self._measure = measure or self._on_noise
        self.candidates = {each.name: each for each in ladder(subject.backbone())}
        self.scores: dict[Row, dict[Cell, float]] = {}
        self.validation: dict[Row, dict[Cell, float]] = {}
        self.runs: dict[tuple[Row, Places, int], PlannedRun] = {}
        self.problems: list[str] = []
        self._learned = False
        self.screened: list[Row] = []
        """What was compared at the length of the first rounds."""

    def decide(self, name: str, value: Callable[[], Any]) -> Any:
        """Returns what an earlier call decided under this name, or what is decided now."""
        decided = self._kept["decided"]
        if name not in decided:
            decided[name] = value()
        self._save()
        return decided[name]

    def _save(self) -> None:
        self._kept["used"] = self.clock.used
        write_json(self.home / PLAN, self._kept)

    @property
    def views(self) -> int:
        """Stored augmented views of each image; 0: there is no time for any."""
        screening = self._kept["decided"].get("screening")
        return screening["views"] if screening else 0

    @property
    def design(self) -> Design:
        """Which runs a candidate is judged by: choices are nested where there is time for that."""
        nested = len(self.subject.places) > 2
        if screening := self._kept["decided"].get("screening"):
            nested = screening["nested"]
        return Design(tuple(self.subject.places), nested, self.seeds)

    @property
    def costs(self) -> Costs:
        return Costs(self.pace, self.size, self.views, self.design)

    def run(self) -> None:
        """Makes all rounds that there is time for, before the model on all places."""
        everyone = list(self.candidates.values())
        heads = [each.name for each in everyone if each.tier == "head"]
        if heads:
            self.say(f"{len(heads)} classifiers on stored features")
            self.round(self._everywhere([(name, HEAD_STEPS) for name in heads]))
        self._screen([each for each in everyone if each.tier != "head"])
        self._lengthen()
        self.say("what was chosen for each place")
        self.round(self._of_choices())

    def _everywhere(self, rows: Iterable[Row]) -> Wanted:
        """Returns what all branches want of these rows."""
        return {row: self._trainable(row, self.design.all_runs) for row in rows}

    def _trainable(self, row: Row, left_out: Iterable[Places]) -> list[Places]:
        """Returns those of the runs that leave a candidate enough domains to train on."""
        places, needed = self.subject.places, self.candidates[row[0]].fewest_domains
        sizes = {name: len(domains) for name, domains in places.items()}
        return [o for o in left_out if sum(sizes[n] for n in sizes if n not in o) >= needed]

    def _screen(self, candidates: Sequence[Candidate]) -> None:
        """The first rounds of what takes longer: as many candidates as there is time for."""
        work = self.clock.work(1 - _FINAL_SHARE)

        def decided() -> dict[str, Any] | None:
            found = budget.screen(candidates, self.costs, work)
            if found is None and not self.scores:  # an answer in any case
                names = [each.name for each in sorted(candidates, key=lambda each: each.turn)[:2]]
                found = budget.Screening(names, budget.LENGTHS[0], 0, False)
            return None if found is None else found._asdict()

        screening = self.decide("screening", decided)
        while screening is not None and screening["names"]:
            names, steps = screening["names"], screening["steps"]
            self.say(f"{len(names)} candidates for {steps} steps")
            self.screened += [(name, steps) for name in names]
            self.round(self._everywhere([(name, steps) for name in names]))
            more = partial(self._more, candidates, steps)
            screening = self.decide(f"beside {len(self.screened)} candidates", more)

    def _more(self, candidates: Sequence[Candidate], steps: int) -> dict[str, Any]:
        """Returns what else there is time for at the same length, now that runs were timed."""
        tried = dict(self.screened)
        stored = [self.candidates[name].store for name in tried]
        rest = [each for each in candidates if each.name not in tried]
        kept = self._work_of_finals(0, _USUAL_LENGTH)
        work = min(self.clock.work(0.4), self.clock.work(1 - _FINAL_SHARE) - kept)
        taken = self.costs.that_fit(rest, steps, work, stored)
        names = [each.name for each in taken]
        return budget.Screening(names, steps, self.views, self.design.nested)._asdict()

    def _lengthen(self) -> None:
        """What was chosen trains as long as there is time for. Where that is enough for the best
        candidates of each branch, they are compared once more at this length.

        How long is decided by the time and the costs alone: a length that followed from which
        candidates are ahead would carry the labels of one place into what is measured on it.
        """
        if not self.screened:
            return
        above = self.screened[0][1]

        def decided() -> list[int] | None:
            longest: dict[int, int] = {}
            for number in range(FINALISTS + 1):
                seconds = partial(self._work_of_finals, number)
                steps = budget.longest_that_fits(seconds, self.clock.work(0.95), above)
                longest[number] = steps or 0
            enough = [number for number, steps in longest.items() if 2 * steps >= longest[0] > 0]
            return [max(enough), longest[max(enough)]] if enough else None

        finals = self.decide("finals", decided)
        if finals is not None and finals[0]:
            self.say(f"the best {finals[0]} for {finals[1]} steps")
            self.round(self._finals(*finals))

    def _finals(self, number: int, steps: int) -> Wanted:
        """Returns what the branches want of their best so many candidates, and of the best plain
        one."""
        found: dict[Row, dict[Places, None]] = {}
        for branch in self.design.branches:
            own = dict.fromkeys(self.design.runs(branch))
            for plain, most in ((False, number), (True, 1)):
                rows = [row for row in self.screened if self.candidates[row[0]].plain == plain]
                for name, _ in best_rows(self.design, branch, self.scores, rows, most):
                    found.setdefault((name, steps), {}).update(own)
        return {row: self._trainable(row, outs) for row, outs in found.items()}

    def _work_of_finals(self, number: int, steps: int) -> float:
        """Returns the work of so many finalists of each branch, of the runs that left out a place
        each with what was chosen for it, and of the model on all places, for which only one process
        is at work: as if all were the slowest ones, and no two branches had one in common."""
        slowest = [
            max(own, key=lambda each: self.pace(each).training)
            for plain in (False, True)
            if (
                own := [
                    each
                    for name, _ in self.screened
                    if (each := self.candidates[name]).plain == plain
                ]
            )
        ]
        compared = [len(out) for branch in self.design.branches for out in self.design.runs(branch)]
        singles = [1] * len(self.design.places)
        seeds = len(self.design.seeds)
        work = self.clock.workers * self.costs.run(slowest[0], steps, 0)
        for each, times in zip(slowest, (number, int(number > 0)), strict=False):
            work += seeds * sum(self.costs.run(each, steps, left_out) for left_out in singles)
            work += seeds * times * sum(self.costs.run(each, steps, out) for out in compared)
        return work

    def _final(self, row: Row) -> Row:
        """Returns a row at the length that what is chosen trains for."""
        finals = self._kept["decided"].get("finals")
        if finals is None or self.candidates[row[0]].tier == "head":
            return row
        return row[0], max(row[1], finals[1])

    def choice(self, branch: Places = EVERYWHERE, plain: bool = False) -> Choice | None:
        """Returns what a branch chooses among all candidates, or among the plain ones."""
        names = [name for name, each in self.candidates.items() if each.plain or not plain]
        return choose_in(self.design, branch, self.scores, names)

    def choices(self, plain: bool = False) -> dict[str, Row]:
        """Returns what is chosen for each place: without it, where choices are nested."""
        found: dict[str, Row] = {}
        for place in self.design.places:
            choice = self.choice(frozenset({place} if self.design.nested else ()), plain)
            if choice is not None:
                found[place] = self._final(choice.row)
        return found

    def expectation(self, plain: bool = False) -> Expectation | None:
        kind: Kind = "nested" if self.design.nested else "chosen by the same runs"
        return honest(self.design, self.scores, self.choices(plain), kind)

    def _of_choices(self) -> Wanted:
        """Returns the runs that left out a place each, with what was chosen for it."""
        found: Wanted = {}
        for plain in (False, True):
            for place, row in self.choices(plain).items():
                left_out = found.setdefault(row, [])
                left_out += [frozenset({place})] if frozenset({place}) not in left_out else []
        return found

    def winner(self) -> Choice:
        """Returns the choice for all places."""
        choice = self.choice()
        if choice is None:
            about = "\n  ".join(self.problems) or "there was no time for any: give more minutes"
            raise UnseenError(f"no candidate could be compared in all places:\n  {about}")
        return choice._replace(row=self._final(choice.row), best=self._final(choice.best))

    def runs_of(self, row: Row) -> list[PlannedRun]:
        """Returns the finished runs of a row, all of which have left out a place or two; those of
        the candidate's longest training where this one was not needed for any place."""
        steps = {own[1] for own, _, _ in self.runs if own[0] == row[0]}
        nearest = row[0], row[1] if row[1] in steps else max(steps)
        return [run for (own, _, _), run in self.runs.items() if own == nearest]

    def finish(self, seed: int = 0) -> Run:
        """Trains the winner on all places with labels, and opens it."""
        row = self.winner().row
        settings = complete_settings(self.runs_of(row)[0].experiment)
        length = self.candidates[row[0]].settings(self.views, row[1])
        data = {"unseen_domain": self.subject.unseen, "training_domains": self.subject.domains}
        own = {"seed": seed, "data": data}
        experiment = build_experiment(merge(merge(settings, length), own))
        self.say(f"{row[0]}, {row[1]} steps, on all places")
        return finish_run(experiment, find_run(self.home / RUNS, experiment), self.console)

    def round(self, rows: Wanted) -> None:
        """Trains what is not finished of these rows and reads all results."""
        together: dict[tuple[int, tuple[Places, ...]], list[str]] = {}
        for (name, steps), left_out in rows.items():
            if left_out:
                together.setdefault((steps, tuple(left_out)), []).append(name)
        plans = [
            plan_sweep(self._sweep(names, steps, left_out), "auto", self.home / RUNS)
            for (steps, left_out), names in together.items()
        ]
        if not plans:
            return
        plan = replace(plans[0], parts=tuple(part for each in plans for part in each.parts))
        lengths = {
            id(p): steps
            for each, (steps, _) in zip(plans, together, strict=True)
            for p in each.parts
        }
        runs = [(lengths[id(run.part)], run) for run in plan.listed]
        fresh = [each for each in runs if not each[1].folder.finished]
        outcomes = self._train(plan, self.resources, self.console, together=True)
        self.problems += [each.error for each in outcomes.values() if each.state == "failed"]
        for steps, run in runs:
            self._read(steps, run)
        self._learn(fresh)
        self._save()

    def _read(self, steps: int, run: PlannedRun) -> None:
        """Takes over what a finished run was worth on the places that it left out."""
        if not run.folder.finished:
            return
        result, row = run.result, (run.condition.method, steps)
        measured = result.view(result.selection, "out_of_domain")
        values = {domain: each.measures[result.metric] for domain, each in measured.items()}
        left_out = self._left_out(run)
        seed = run.condition.seed
        self.runs[row, left_out, seed] = run
        for place in left_out:
            value = fmean(values[domain] for domain in self.subject.places[place])
            self.scores.setdefault(row, {})[Cell(left_out, place, seed)] = value
            validated = validation_score(source_evaluations(run.folder))[0]
            self.validation.setdefault(row, {})[Cell(left_out, place, seed)] = validated

    def _left_out(self, run: PlannedRun) -> Places:
        unseen = run.condition.unseen
        return frozenset(name for name, own in self.subject.places.items() if own[0] in unseen)

    def _learn(self, fresh: Sequence[tuple[int, PlannedRun]]) -> None:
        """Corrects the measured times by what these runs took, one by one."""
        planned = seconds = 0.0
        for steps, run in fresh:
            candidate = self.candidates[run.condition.method]
            if candidate.tier != "head" and run.folder.finished:
                left_out = len(self._left_out(run))
                planned += self.costs.run(candidate, steps, left_out)
                seconds += read_json(run.folder.timing)["seconds"]
        self.clock.learn(planned, seconds)
        self._learned = self._learned or planned > 0

    def pace(self, candidate: Candidate) -> Pace:
        """Returns the seconds for an image, measured once for a method at a boundary."""
        about = f"seconds for an image: {candidate.method} from {candidate.boundary or 'pixels'}"

        def measured() -> list[float]:
            return list(self._measure(self._experiment(candidate), self.size))

        return Pace(*self.decide(about, measured))

    def _on_noise(self, experiment: Experiment, size: Size) -> Pace:
        """Times a candidate; until runs are timed, what else the machine does slows these by as
        much as it slows this."""
        classes, resources = len(self.subject.index.classes), self.resources
        wall, processor = time.monotonic(), time.process_time()
        pace = budget.measure(experiment, size, classes, resources.threads, resources.gpus > 0)
        if not resources.gpus and not self._learned:
            wall, processor = time.monotonic() - wall, time.process_time() - processor
            self.clock.learn(processor * resources.threads, max(processor, wall))
        return pace

    def _experiment(self, candidate: Candidate) -> Experiment:
        recipe = read_recipe(f"{self.subject.dataset}/{candidate.method}")
        own = merge(candidate.settings(1, 100), self.subject.overrides)
        return build_experiment(merge(merge(recipe, self.subject.settings), own), candidate.name)

    def _sweep(self, names: Sequence[str], steps: int, left_out: Sequence[Places]) -> Sweep:
        """Returns the sweep of these candidates."""
        own = {
            name: MethodPart(
                variant_of=self.candidates[name].method,
                settings=merge(
                    self.candidates[name].settings(self.views, steps),
                    _without_network_name(self.subject.overrides),
                ),
            )
            for name in names
        }
        domains = self.subject.places
        return Sweep(
            datasets=(self.subject.dataset,),
            methods=tuple(names),
            backbones=(self.subject.experiment.network.name,),
            unseen=tuple("+".join(d for p in sorted(out) for d in domains[p]) for out in left_out),
            seeds=self.seeds,
            settings=_without_network_name(self.subject.settings),
            by_method=own,
        )

    def say(self, text: str) -> None:
        left = self.clock.left / 60
        line = f"auto: {text} ({left:.1f} minutes left)"
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)


def _without_network_name(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings as a sweep takes them, which calls the network a backbone."""
    found = dict(settings)
    if "network" in found:
        found["network"] = {k: v for k, v in found["network"].items() if k != "name"}
    return found
