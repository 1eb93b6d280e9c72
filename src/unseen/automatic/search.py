"""The search: rounds of runs, of which each is read before the next one is decided."""

import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console

from unseen.api import Run, finish_run, merge
from unseen.atomic import link_file, read_json, write_json
from unseen.automatic import budget
from unseen.automatic.budget import Clock, Costs, Size
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
from unseen.networks.quick_cpu import BFLOAT16
from unseen.results.folder import find_run
from unseen.settings.experiment import Experiment, complete_settings
from unseen.settings.recipes import build_experiment, read_recipe
from unseen.settings.recipes import merge as merged
from unseen.sweeps.jobs import Outcome
from unseen.sweeps.plan import PlannedRun, plan_sweep
from unseen.sweeps.rules import source_evaluations, validation_score
from unseen.sweeps.sweep_file import MethodPart, Sweep
from unseen.sweeps.train import run_plan
from unseen.sweeps.workers import Resources, count_workers, visible_devices
from unseen.training.timing import ImageTimes, time_method, time_storing

HEAD_STEPS, MOST_SEEDS = 300, 3
"""Steps of a classifier on stored features; trainings of the chosen model that are averaged."""
FINALISTS = 3
"""The most candidates of a branch that are compared once more after a longer training, beside the
best plain one."""
_USUAL_LENGTH = 1000
"""Steps of what is chosen that the first rounds leave time for."""
PLAN, RUNS, MODEL = "plan.json", "runs", "model"
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
        measure: Callable[[Experiment], ImageTimes] | None = None,
        train: Callable[..., Mapping[Path, Outcome]] = run_plan,
    ) -> None:
        self.subject, self.home, self.console, self._train = subject, home, console, train
        self.clock, self.seeds = clock, tuple(seeds)
        self.resources = Resources(workers=workers, gpus=float(bool(visible_devices())))
        clock.workers = max(1, count_workers(self.resources))
        self._kept: dict[str, Any] = {"decided": {}}
        self._kept["request"] = {
            **subject.request, "seconds": clock.seconds, "seeds": list(seeds)
        }  # fmt: skip
        known = read_json(home / PLAN) if (home / PLAN).is_file() else {}
        if known.get("request") == self._kept["request"]:
            self._kept = known
            clock.used_before, clock.slowness = known["used"] + self._unsaved(), known["slowness"]
        batch = subject.experiment.images_per_domain
        self.size = Size(subject.images, len(subject.places), batch)
        self._measure = measure or self._on_noise
        self.candidates = {each.name: each for each in ladder(subject.backbone())}
        self.scores = defaultdict[Row, dict[Cell, float]](dict)
        self.validation = defaultdict[Row, dict[Cell, float]](dict)
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
        self._kept |= {"used": self.clock.used, "slowness": self.clock.slowness}
        write_json(self.home / PLAN, self._kept)

    def _unsaved(self) -> float:
        """Returns the seconds from what was kept last to the last record before an earlier call was
        killed."""
        names = ("*/metrics.jsonl", "*/result.json")
        files = [self.home / PLAN, *(f for name in names for f in (self.home / RUNS).glob(name))]
        times = [file.stat().st_mtime for file in files]
        return max(times) - times[0]

    @property
    def _screening(self) -> dict[str, Any]:
        """What the first rounds of the last stages are; before that is decided, without copies."""
        nested = len(self.subject.places) > 2
        return self._kept["decided"].get("screening") or {"views": 0, "nested": nested}

    @property
    def views(self) -> int:
        """Stored augmented views of each image; 0: there is no time for any."""
        return self._screening["views"]

    @property
    def design(self) -> Design:
        """Which runs a candidate is judged by: choices are nested where there is time for that."""
        return Design(tuple(self.subject.places), self._screening["nested"], self.seeds)

    @property
    def costs(self) -> Costs:
        return Costs(self.pace, self.size, self.views, self.design)

    def run(self) -> None:
        """Makes all rounds that there is time for, before the model on all places."""
        everyone = list(self.candidates.values())
        heads = [(each.name, HEAD_STEPS) for each in everyone if each.tier == "head"]
        self.round(self._everywhere(heads), f"{len(heads)} classifiers on stored features")
        self._screen([each for each in everyone if each.tier != "head"])
        self._lengthen()
        self.round(self._of_choices(), "what was chosen for each place")

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
            steps = screening["steps"]
            rows = [(name, steps) for name in screening["names"]]
            self.screened += rows
            self.round(self._everywhere(rows), f"{len(rows)} candidates for {steps} steps")
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
            self.round(self._finals(*finals), f"the best {finals[0]} for {finals[1]} steps")

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

    def finish(self) -> Run:
        """Trains the winner on all places with labels. Where time is left, it is trained with other
        seeds, too, and the model is the mean of their weights."""
        row = self.winner().row
        settings = complete_settings(self.runs_of(row)[0].experiment)
        length = self.candidates[row[0]].settings(self.views, row[1])
        data = {"unseen_domain": self.subject.unseen, "training_domains": self.subject.domains}
        settings = merged(merged(settings, length), {"data": data})
        runs: list[Run] = []

        def another() -> bool:
            seconds = read_json(runs[0].folder.timing)["seconds"]
            return self.clock.left > 1.3 * seconds + 10 * budget.RUN_SECONDS

        for seed in range(MOST_SEEDS if self._has_mean(row[0]) else 1):
            if seed and not self.decide(f"seed {seed} on all places", another):
                break
            experiment = build_experiment(merged(settings, {"seed": seed}))
            self.say(f"{row[0]}, {row[1]} steps, on all places")
            folder = find_run(self.home / RUNS, experiment)
            runs.append(finish_run(experiment, folder, self.console))
        self._save()
        path = runs[0].folder.path
        if runs[1:]:
            path = path.with_name(f"{path.name}-and-{len(runs) - 1}-more")
            merge([run.folder.path for run in runs], path, console=self.console)
        shutil.rmtree(self.home / MODEL, ignore_errors=True)
        shutil.copytree(path, self.home / MODEL, copy_function=_link)
        return Run(self.home / MODEL)

    def _has_mean(self, name: str) -> bool:
        """Whether trainings with other seeds differ, and have a mean: they begin at one start."""
        pretrained = self.subject.experiment.network.pretrained is not False
        return pretrained and self.candidates[name].tier != "head"

    def round(self, rows: Wanted, what: str) -> None:
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
        self.say(what)
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
        left_out = self.left_out(run)
        seed = run.condition.seed
        self.runs[row, left_out, seed] = run
        for place in left_out:
            cell = Cell(left_out, place, seed)
            own = self.subject.places[place]
            self.scores[row][cell] = fmean(values[domain] for domain in own)
            self.validation[row][cell] = validation_score(source_evaluations(run.folder))[0]

    def left_out(self, run: PlannedRun) -> Places:
        unseen = run.condition.unseen
        return frozenset(name for name, own in self.subject.places.items() if own[0] in unseen)

    def _learn(self, fresh: Sequence[tuple[int, PlannedRun]]) -> None:
        """Corrects the measured times by what these runs took, one by one."""
        planned = seconds = 0.0
        for steps, run in fresh:
            candidate = self.candidates[run.condition.method]
            if candidate.tier != "head" and run.folder.finished:
                left_out = len(self.left_out(run))
                planned += self.costs.run(candidate, steps, left_out)
                seconds += read_json(run.folder.timing)["seconds"]
        self.clock.learn(planned, seconds)
        self._learned = self._learned or planned > 0

    def pace(self, candidate: Candidate) -> ImageTimes:
        """Returns the seconds for an image, measured once for a method at a boundary."""
        about = f"seconds for an image: {candidate.method} from {candidate.boundary or 'pixels'}"
        return ImageTimes(
            *self.decide(about, lambda: list(self._measure(self._experiment(candidate))))
        )

    def _on_noise(self, experiment: Experiment) -> ImageTimes:
        """Times a candidate; until runs are timed, what else the machine does slows these by as
        much as it slows this."""
        wall, processor = time.monotonic(), time.process_time()
        gpu, threads = self.resources.gpus > 0, self.resources.threads
        few = experiment.network.pretrained and not experiment.network.freeze_until
        domains, classes = max(2, self.size.places - 1), len(self.subject.index.classes)
        times = time_method(experiment, domains, classes, threads, gpu, 2 if few else 8)
        if experiment.network.freeze_until is not None:
            storing = time_storing(experiment, classes, threads, gpu)
            times = times._replace(storing=storing)
        if not gpu and not self._learned:
            wall, processor = time.monotonic() - wall, time.process_time() - processor
            self.clock.learn(processor * threads, max(processor, wall))
        if experiment.precision == "bf16" and BFLOAT16 and not gpu:  # times are those of 32 bits
            return times._replace(training=times.training / 1.6)
        return times

    def _experiment(self, candidate: Candidate) -> Experiment:
        recipe = read_recipe(f"{self.subject.dataset}/{candidate.method}")
        own = merged(candidate.settings(1, 100), self.subject.overrides)
        return build_experiment(merged(merged(recipe, self.subject.settings), own), candidate.name)

    def _sweep(self, names: Sequence[str], steps: int, left_out: Sequence[Places]) -> Sweep:
        """Returns the sweep of these candidates."""
        own = {
            name: MethodPart(
                variant_of=self.candidates[name].method,
                settings=merged(
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


def _link(existing: str, path: str) -> None:
    link_file(Path(existing), Path(path))
