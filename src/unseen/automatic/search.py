"""The search: rounds of runs, of which each is read before the next one is decided."""

import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console

from unseen.api import Run, finish_run, merge
from unseen.atomic import link_file, read_json, write_json
from unseen.automatic import budget
from unseen.automatic import choice as rules
from unseen.automatic.candidates import Candidate
from unseen.automatic.subject import Subject
from unseen.errors import UnseenError
from unseen.networks.quick_cpu import BFLOAT16
from unseen.results.folder import find_run
from unseen.settings import recipes
from unseen.settings.experiment import Experiment, complete_settings
from unseen.sweeps.cost import ImageTimes, time_method, time_storing
from unseen.sweeps.draws import PlannedRun
from unseen.sweeps.plan import plan_sweep
from unseen.sweeps.sweep_file import MethodPart, Sweep
from unseen.sweeps.train import run_plan
from unseen.sweeps.workers import Outcome, Resources, count_workers, visible_devices

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

Wanted = Mapping[rules.Row, Iterable[rules.Places]]
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
        clock: budget.Clock,
        console: Console,
        seeds: Sequence[int] = (0,),
        workers: int | None = 0,
        measure: Callable[[Experiment], ImageTimes] | None = None,
        train: Callable[..., Mapping[Path, Outcome]] = run_plan,
    ) -> None:
        self.subject, self.home, self.clock, self.console = subject, home, clock, console
        self.seeds, self._train, self._measure = tuple(seeds), train, measure or self._on_noise
        self.resources = Resources(workers=workers, gpus=float(bool(visible_devices())))
        clock.workers = max(1, count_workers(self.resources))
        request = {**subject.request, "seconds": clock.seconds, "seeds": list(seeds)}
        self._kept: dict[str, Any] = {"decided": {}, "request": request}
        known = read_json(home / PLAN) if (home / PLAN).is_file() else {}
        if known.get("request") == request:
            self._kept = known
            clock.used_before, clock.slowness = known["used"] + self._unsaved(), known["slowness"]
        places = tuple(subject.places)
        self.views, self.design = 0, rules.Design(places, len(places) > 2, self.seeds)
        """Stored augmented views of each image (0: there is no time for any), and which runs a
        candidate is judged by: choices are nested where there is time for that."""
        self.final_steps = 0
        """What is chosen trains at least so long."""
        self.candidates = {each.name: each for each in subject.candidates()}
        self.scores = defaultdict[rules.Row, dict[rules.Cell, float]](dict)
        self.runs: dict[tuple[rules.Row, rules.Places, int], PlannedRun] = {}
        self.problems: list[str] = []
        self.screened: list[rules.Row] = []
        """What was compared at the length of the first rounds."""
        self._learned = False

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
    def costs(self) -> budget.Costs:
        images, batch = self.subject.images, self.subject.experiment.images_per_domain
        return budget.Costs(self.pace, images, batch, self.views, self.design)

    def run(self) -> None:
        """Makes all rounds that there is time for, before the model on all places."""
        everyone = list(self.candidates.values())
        heads = [(each.name, HEAD_STEPS) for each in everyone if each.tier == "head"]
        before, what = self.design.all_runs, f"{len(heads)} classifiers on stored features"
        self.round(dict.fromkeys(heads, before), what)
        self._screen([each for each in everyone if each.tier != "head"])
        if self.design.all_runs != before:  # no time for pairs: all are compared by other runs
            self.round(dict.fromkeys(heads, self.design.all_runs), what)
        self._lengthen()
        left_out = defaultdict[rules.Row, dict[rules.Places, None]](dict)
        for plain in (False, True):
            for place, row in self.choices(plain).items():
                left_out[row][frozenset({place})] = None
        self.round(left_out, "what was chosen for each place")

    def _screen(self, candidates: Sequence[Candidate]) -> None:
        """The first rounds of what takes longer: as many candidates as there is time for."""
        work = self.clock.work(1 - _FINAL_SHARE)

        def first() -> dict[str, Any] | None:
            found = budget.screen(candidates, self.costs, work)
            if found is None and not self.scores:  # an answer in any case
                simplest = sorted(candidates, key=lambda each: each.turn)[:2]
                found = budget.screening(simplest, budget.LENGTHS[0], 0, False)
            return found

        def more() -> dict[str, Any]:
            """What else there is time for at the same length, now that runs were timed."""
            tried = {name for name, _ in self.screened}
            stored = [self.candidates[name].store for name in tried]
            rest = [each for each in candidates if each.name not in tried]
            kept = self._work_of_finals(0, _USUAL_LENGTH)
            room = min(self.clock.work(0.4), self.clock.work(1 - _FINAL_SHARE) - kept)
            taken = self.costs.that_fit(rest, steps, room, stored)
            return budget.screening(taken, steps, self.views, self.design.nested)

        screening = self.decide("screening", first)
        while screening is not None and screening["names"]:
            self.views, nested = screening["views"], screening["nested"]
            self.design, steps = self.design._replace(nested=nested), screening["steps"]
            rows = [(name, steps) for name in screening["names"]]
            self.screened += rows
            everywhere = dict.fromkeys(rows, self.design.all_runs)
            self.round(everywhere, f"{len(rows)} candidates for {steps} steps")
            screening = self.decide(f"beside {len(self.screened)} candidates", more)

    def _lengthen(self) -> None:
        """What was chosen trains as long as there is time for. Where that is enough for the best
        candidates of each branch, they are compared once more at this length.

        How long is decided by the time and the costs alone: a length that followed from which
        candidates are ahead would carry the labels of one place into what is measured on it.
        """

        def decided() -> list[int] | None:
            longest: dict[int, int] = {}
            for number in range(FINALISTS + 1):
                seconds, work = partial(self._work_of_finals, number), self.clock.work(0.95)
                above = self.screened[0][1]
                longest[number] = budget.longest_that_fits(seconds, work, above) or 0
            enough = [number for number, steps in longest.items() if 2 * steps >= longest[0] > 0]
            return [max(enough), longest[max(enough)]] if enough else None

        finals = self.decide("finals", decided) if self.screened else None
        if finals is None:
            return
        number, self.final_steps = finals
        wanted = defaultdict[rules.Row, dict[rules.Places, None]](dict)
        for branch in self.design.branches if number else ():
            worth = self.design.worth(self.scores, branch)
            for own, most in zip(self._screened_by_kind(), (number, 1), strict=True):
                rows = [row for row in own if row in worth]
                rows.sort(key=lambda row, worth=worth: -fmean(worth[row].values()))
                for name, _ in rows[:most]:
                    wanted[name, self.final_steps] |= dict.fromkeys(self.design.runs(branch))
        if wanted:
            self.round(wanted, f"the best {number} for {self.final_steps} steps")

    def _screened_by_kind(self) -> list[list[rules.Row]]:
        """Returns the rows of the first rounds, those that are not plain first."""
        kinds = (False, True)
        return [[r for r in self.screened if self.candidates[r[0]].plain == each] for each in kinds]

    def _work_of_finals(self, number: int, steps: int) -> float:
        """Returns the work of so many finalists of each branch, of the runs that left out a place
        each with what was chosen for it, and of the model on all places, for which only one process
        is at work: as if all were the slowest ones, and no two branches had one in common."""
        slowest = [
            max((self.candidates[name] for name, _ in own), key=lambda c: self.pace(c).training)
            for own in self._screened_by_kind()
            if own
        ]
        compared = [len(out) for branch in self.design.branches for out in self.design.runs(branch)]
        seeds = len(self.seeds)
        work = self.clock.workers * self.costs.run(slowest[0], steps, 0)
        for each, times in zip(slowest, (number, int(number > 0)), strict=False):
            work += seeds * sum(self.costs.run(each, steps, 1) for _ in self.design.places)
            work += seeds * times * sum(self.costs.run(each, steps, out) for out in compared)
        return work

    def _final(self, row: rules.Row) -> rules.Row:
        """Returns a row at the length that what is chosen trains for."""
        is_head = self.candidates[row[0]].tier == "head"
        return row if is_head else (row[0], max(row[1], self.final_steps))

    def choice(
        self, branch: rules.Places = rules.EVERYWHERE, plain: bool = False
    ) -> rules.Choice | None:
        """Returns what a branch chooses among all candidates, or among the plain ones."""
        names = [name for name, each in self.candidates.items() if each.plain or not plain]
        return rules.choose(self.design.worth(self.scores, branch), names)

    def choices(self, plain: bool = False) -> dict[str, rules.Row]:
        """Returns what is chosen for each place: without it, where choices are nested."""
        nested = self.design.nested
        own = {p: self.choice(frozenset({p} if nested else ()), plain) for p in self.design.places}
        return {place: self._final(choice.row) for place, choice in own.items() if choice}

    def expectation(self, plain: bool = False) -> rules.Expectation | None:
        """Returns what to expect by what was chosen for each place; None until each of these runs,
        which left out that place alone, is there."""
        rows, by_place = self.choices(plain), dict[str, float]()
        for place, row in rows.items():
            cells = [rules.Cell(frozenset({place}), place, seed) for seed in self.seeds]
            if any(cell not in self.scores[row] for cell in cells):
                return None
            by_place[place] = fmean(self.scores[row][cell] for cell in cells)
        kind = rules.NESTED if self.design.nested else rules.SAME_RUNS
        return rules.expect(by_place, rows, kind) if by_place else None

    def winner(self) -> rules.Choice:
        """Returns the choice for all places."""
        choice = self.choice()
        if choice is None:
            about = "\n  ".join(self.problems) or "there was no time for any: give more minutes"
            raise UnseenError(f"no candidate could be compared in all places:\n  {about}")
        return choice._replace(row=self._final(choice.row), best=self._final(choice.best))

    def runs_of(self, row: rules.Row) -> list[PlannedRun]:
        """Returns the finished runs of a row, all of which have left out a place or two; those of
        the candidate's longest training where this one was not needed for any place."""
        steps = {own[1] for own, _, _ in self.runs if own[0] == row[0]}
        nearest = row[0], row[1] if row[1] in steps else max(steps)
        return [run for (own, _, _), run in self.runs.items() if own == nearest]

    def finish(self) -> Run:
        """Trains the winner on all places with labels. Where time is left, it is trained with other
        seeds, too, and the model is the mean of their weights."""
        row = self.winner().row
        candidate, settings = self.candidates[row[0]], self.runs_of(row)[0].experiment
        length = candidate.settings(self.views, row[1])
        data = {"unseen_domain": self.subject.unseen, "training_domains": self.subject.domains}
        base = recipes.merge(complete_settings(settings), recipes.merge(length, {"data": data}))
        runs: list[Run] = []

        def another() -> bool:
            seconds = read_json(runs[0].folder.timing)["seconds"]
            return self.clock.left > 1.3 * seconds + 10 * budget.RUN_SECONDS

        for seed in range(MOST_SEEDS if self._has_mean(candidate) else 1):
            if seed and not self.decide(f"seed {seed} on all places", another):
                break
            experiment = recipes.build_experiment(recipes.merge(base, {"seed": seed}))
            self.say(f"{row[0]}, {row[1]} steps, on all places")
            folder = find_run(self.home / RUNS, experiment)
            runs.append(finish_run(experiment, folder, self.console))
        self._save()
        path = runs[0].folder.path
        if runs[1:]:
            path = path.with_name(f"{path.name}-and-{len(runs) - 1}-more")
            merge([run.folder.path for run in runs], path, console=self.console)
        shutil.rmtree(self.home / MODEL, ignore_errors=True)
        shutil.copytree(
            path, self.home / MODEL, copy_function=lambda old, new: link_file(Path(old), Path(new))
        )
        return Run(self.home / MODEL)

    def _has_mean(self, candidate: Candidate) -> bool:
        """Whether trainings with other seeds differ, and have a mean: they begin at one start."""
        pretrained = self.subject.experiment.network.pretrained is not False
        return pretrained and candidate.tier != "head"

    def round(self, rows: Wanted, what: str) -> None:
        """Trains what is not finished of these rows, but for runs that leave a candidate too few
        domains to train on, and reads all results."""
        together = defaultdict[tuple[int, tuple[rules.Places, ...]], list[str]](list)
        for (name, steps), wanted in rows.items():
            domains, needed = len(self.subject.domains), self.candidates[name].fewest_domains
            left_out = tuple(o for o in wanted if domains - len(self._domains(o)) >= needed)
            if left_out:
                together[steps, left_out].append(name)
        if not together:
            return
        self.say(what)
        sweeps = [self._sweep(names, *about) for about, names in together.items()]
        plans = [plan_sweep(sweep, "auto", self.home / RUNS) for sweep in sweeps]
        plan = replace(plans[0], parts=tuple(chain.from_iterable(each.parts for each in plans)))
        pairs = zip(together, plans, strict=True)
        lengths = {id(part): about[0] for about, each in pairs for part in each.parts}
        fresh = {run.path for run in plan.listed if not run.folder.finished}
        outcomes = self._train(plan, self.resources, self.console, together=True)
        self.problems += [each.error for each in outcomes.values() if each.state == "failed"]
        planned = seconds = 0.0
        for run in plan.listed:
            candidate, steps = self.candidates[run.condition.method], lengths[id(run.part)]
            if run.folder.finished:
                self._read(run, (candidate.name, steps))
                if run.path in fresh and candidate.tier != "head":
                    planned += self.costs.run(candidate, steps, len(self.left_out(run)))
                    seconds += read_json(run.folder.timing)["seconds"]
        self.clock.learn(planned, seconds)  # by what these runs took, one by one
        self._learned = self._learned or planned > 0
        self._save()

    def _read(self, run: PlannedRun, row: rules.Row) -> None:
        """Takes over what a finished run was worth on the places that it left out."""
        result, left_out, seed = run.result, self.left_out(run), run.condition.seed
        measured = result.view(result.selection, "out_of_domain")
        values = {domain: each.measures[result.metric] for domain, each in measured.items()}
        self.runs[row, left_out, seed] = run
        for place in left_out:
            own = fmean(values[domain] for domain in self.subject.places[place])
            self.scores[row][rules.Cell(left_out, place, seed)] = own

    def left_out(self, run: PlannedRun) -> rules.Places:
        unseen = run.condition.unseen
        return frozenset(name for name, own in self.subject.places.items() if own[0] in unseen)

    def _domains(self, places: rules.Places) -> list[str]:
        return [domain for place in sorted(places) for domain in self.subject.places[place]]

    def pace(self, candidate: Candidate) -> ImageTimes:
        """Returns the seconds for an image, measured once for a method at a boundary."""
        about = f"seconds for an image: {candidate.method} from {candidate.boundary or 'pixels'}"
        times = self.decide(about, lambda: list(self._measure(self._experiment(candidate))))
        return ImageTimes(*times)

    def _on_noise(self, experiment: Experiment) -> ImageTimes:
        """Times a candidate; until runs are timed, what else the machine does slows these by as
        much as it slows this."""
        wall, processor = time.monotonic(), time.process_time()
        gpu, threads = self.resources.gpus > 0, self.resources.threads
        few = experiment.network.pretrained and not experiment.network.freeze_until
        domains, classes = max(2, len(self.subject.places) - 1), len(self.subject.index.classes)
        times = time_method(experiment, domains, classes, threads, gpu, 2 if few else 8)
        if experiment.network.freeze_until is not None:
            times = times._replace(storing=time_storing(experiment, classes, threads, gpu))
        if not gpu and not self._learned:
            wall, processor = time.monotonic() - wall, time.process_time() - processor
            self.clock.learn(processor * threads, max(processor, wall))
        if experiment.precision == "bf16" and BFLOAT16 and not gpu:  # times are those of 32 bits
            return times._replace(training=times.training / 1.6)
        return times

    def _experiment(self, candidate: Candidate) -> Experiment:
        recipe = recipes.read_recipe(f"{self.subject.dataset}/{candidate.method}")
        backbone = {"network": {"name": self.subject.experiment.network.name}}
        own = (self.subject.settings, candidate.settings(1, 100), self.subject.overrides, backbone)
        return recipes.build_experiment(reduce(recipes.merge, own, recipe), candidate.name)

    def _sweep(self, names: Sequence[str], steps: int, left_out: Sequence[rules.Places]) -> Sweep:
        """Returns the sweep of these candidates."""
        own: dict[str, MethodPart] = {}
        for each in (self.candidates[name] for name in names):
            settings = recipes.merge(each.settings(self.views, steps), self.subject.overrides)
            own[each.name] = MethodPart(variant_of=each.method, settings=settings)
        return Sweep(
            datasets=(self.subject.dataset,),
            methods=tuple(names),
            backbones=(self.subject.experiment.network.name,),
            unseen=tuple("+".join(self._domains(places)) for places in left_out),
            seeds=self.seeds,
            settings=self.subject.settings,
            by_method=own,
        )

    def say(self, text: str) -> None:
        line = f"auto: {text} ({self.clock.left / 60:.1f} minutes left)"
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)
