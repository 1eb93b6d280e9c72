"""Every run of a comparison or a sweep, all checked before the first one starts.

A comparison is a sweep without a name and with one draw: the recipe as it is.
"""

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

from unseen.data.dataset import OpenDatasets
from unseen.data.index import Index
from unseen.data.roles import choose_roles
from unseen.errors import DataError, SettingsError, UnseenError, unknown_name
from unseen.reports.tables import Expected
from unseen.results.folder import find_run, safe_name
from unseen.results.rules import WITHOUT_LABELS
from unseen.settings.experiment import Experiment, Metric
from unseen.settings.recipes import build_experiment, merge, nested, try_experiment
from unseen.sweeps.draws import (
    Condition,
    Part,
    PlannedRun,
    draws_of,
    find_parts,
    named_together,
    refuse,
)
from unseen.sweeps.sweep_file import Sweep


@dataclass(frozen=True)
class Plan:
    """What a sweep consists of. Its settings, domains and methods are in order; its runs are listed
    when they are asked for."""

    name: str
    """Of a sweep; empty for a comparison."""
    sweep: Sweep
    runs: Path
    """The folder of runs."""
    parts: tuple[Part, ...]
    datasets: OpenDatasets

    @cached_property
    def listed(self) -> tuple[PlannedRun, ...]:
        """Every run, in the order in which they are trained: all methods on one domain before the
        next one, so that early on there is something to compare. Those with two domains held out,
        where there are pairs, come first."""
        from unseen.training.execute import length

        sweep, first, listed = self.sweep, dict[str, Path](), list[PlannedRun]()
        for part in self.parts:
            draws = {seed: draws_of(sweep, part, seed) for seed in sweep.seeds}
            names = (path for drawn in draws.values() for values in drawn for path in values)
            searched = tuple(dict.fromkeys(names))
            for unseen, (seed, drawn) in product((*part.singles, *part.pairs), draws.items()):
                condition, base = Condition(*part.kind, unseen, seed), part.hold_out(unseen, seed)
                for draw, values in enumerate(drawn):
                    experiment, problems = try_experiment(merge(base, nested(values)))
                    if experiment is None:
                        raise SettingsError(
                            f"draw {draw} of {part.name} with seed {seed} is not valid:\n  "
                            + "\n  ".join((*problems, f"drawn: {values}"))
                        )
                    steps, path = length(experiment, self.datasets), find_run(self.runs, experiment)
                    # the same settings are the same run
                    path = first.setdefault(path.path.name.rpartition("-")[2], path.path)
                    listed.append(
                        PlannedRun(condition, draw, part, base, values, searched, steps, path)
                    )
        domains = list(dict.fromkeys(run.condition.unseen for run in listed))
        turns = {
            condition: (
                not self._is_pair(condition),
                sweep.datasets.index(condition.dataset),
                domains.index(condition.unseen),
                sweep.seeds.index(condition.seed),
            )
            for condition in {run.condition for run in listed}
        }
        return tuple(sorted(listed, key=lambda run: turns[run.condition]))

    def _is_pair(self, condition: Condition) -> bool:
        return self.sweep.pairs == "all" and len(condition.unseen) == 2

    @cached_property
    def pairs(self) -> tuple[PlannedRun, ...]:
        """Runs with two domains held out, by which leave-one-domain-out chooses."""
        return tuple(run for run in self.listed if self._is_pair(run.condition))

    @cached_property
    def singles(self) -> tuple[PlannedRun, ...]:
        """All others: those that stand in tables."""
        return tuple(run for run in self.listed if not self._is_pair(run.condition))

    @cached_property
    def distinct(self) -> list[PlannedRun]:
        """Every run once: draws from few values may be the same run."""
        return list({run.path: run for run in self.listed}.values())

    @property
    def is_comparison(self) -> bool:
        return not self.name

    @property
    def rule(self) -> str:
        """The rule whose tables are shown: for a comparison that of its runs' checkpoints."""
        return self.parts[0].experiment.selection if self.is_comparison else self.sweep.rule

    @cached_property
    def rules(self) -> tuple[str, ...]:
        """All that its runs can be judged by; those without labels where every run adapts."""
        *others, oracle = self.sweep.rules
        adapt = all(part.experiment.setting == "adaptation" for part in self.parts)
        return (*others, *(WITHOUT_LABELS if adapt else ()), oracle)

    @property
    def metric(self) -> Metric:
        """All runs of a plan are chosen and compared by one."""
        return self.parts[0].experiment.metric

    @cached_property
    def draws(self) -> dict[Condition, list[PlannedRun]]:
        """Runs that a rule chooses from."""
        found: dict[Condition, list[PlannedRun]] = {}
        for run in self.singles:
            found.setdefault(run.condition, []).append(run)
        return found

    @cached_property
    def partners(self) -> dict[Condition, dict[int, dict[str, PlannedRun]]]:
        """For a condition, by draw: runs that hold out another domain, by its name, as well."""
        found: dict[Condition, dict[int, dict[str, PlannedRun]]] = {}
        for run in self.pairs:
            for target, other in (run.condition.unseen, run.condition.unseen[::-1]):
                by_draw = found.setdefault(run.condition._replace(unseen=(target,)), {})
                by_draw.setdefault(run.draw, {})[other] = run
        return found

    @cached_property
    def has_several_kinds(self) -> bool:
        """Whether methods alone do not tell rows apart."""
        return len({(p.dataset, p.experiment.network.name) for p in self.parts}) > 1

    def label(self, run: PlannedRun) -> str:
        """Return what tells the run from the others, for people."""
        dataset, method, backbone, unseen, seed = run.condition
        draw = f", draw {run.draw}" if len(self.draws) < len(self.singles) else ""
        where = f" ({dataset}, {backbone})" if self.has_several_kinds else ""
        return f"{method}{where}, unseen {'+'.join(unseen)}, seed {seed}{draw}"

    def expected(self, dataset: str) -> Expected:
        """Return rows, columns and seeds of the dataset's tables, also of those without a
        result."""
        own = [condition for condition in self.draws if condition.dataset == dataset]
        return Expected(
            tuple(dict.fromkeys(condition.method for condition in own)),
            tuple(dict.fromkeys(condition.unseen for condition in own)),
            tuple(dict.fromkeys(condition.seed for condition in own)),
        )

    @cached_property
    def home(self) -> Path:
        """The folder of its tables; another plan has another one."""
        together = "".join(run.identity for run in self.listed)
        unique = hashlib.sha256((together + self.sweep.pairs).encode()).hexdigest()[:8]
        first = self.parts[0].experiment
        stem = Path(self.name).stem
        parts = (first.data.name, first.network.name) if self.is_comparison else ("sweep", stem)
        return self.runs / "tables" / "-".join((*map(safe_name, parts), unique))

    @cached_property
    def remarks(self) -> tuple[str, ...]:
        """What has to be said about the images of each dataset before anything trains: of its first
        run. Every run keeps its own."""
        from unseen.training.execute import remarks_before

        first = {run.condition.dataset: run for run in reversed(self.singles)}
        found: list[str] = []
        for run in first.values():
            with suppress(UnseenError):  # the run reports what is wrong with it
                found += remarks_before(run.experiment, self.datasets)
        return tuple(dict.fromkeys(found))


def plan_sweep(sweep: Sweep, name: str, runs: str | Path = "runs") -> Plan:
    """Plan a sweep, or a comparison, which has no name. Every mistake is named at once."""
    datasets, found = OpenDatasets(), find_parts(sweep, name)
    absent, named, everywhere = dict[str, str](), set[str](), set[str]()
    parts, trainable, problems = list[Part](), list[str](), list[str]()
    built: dict[tuple[str, int, int], str] = {}
    for base in found:
        try:
            index = datasets.open(base.experiment.data).index()
        except DataError as error:
            if len({each.dataset for each in found}) == 1:
                raise
            absent[base.dataset] = str(error)
            continue
        everywhere |= {*index.domains}
        named |= {each for each in sweep.unseen if named_together(each, index.domains)}
        part = base.with_images(sweep, index)
        own = list(_obstacles(part, index, built))
        problems += own
        trainable += [] if own else [part.method]
        parts.append(part)
    if trainable and problems:
        without = ",".join(dict.fromkeys(trainable))
        problems.append(f"methods: those that can be trained like this are {without}")
    for each in sweep.unseen:
        if not absent and each not in named:
            problems.append(f"unseen: {unknown_name('domain', each, everywhere)}")
    problems += (f"datasets: {each}: {why}" for each, why in absent.items())
    if absent and parts:
        at_hand = ",".join(dict.fromkeys(part.dataset for part in parts))
        problems.append(f"datasets: those at hand are {at_hand}")
    plan = Plan(name, sweep, Path(runs), tuple(parts), datasets)
    refuse(name, problems + list(_not_comparable(plan)))
    return plan


def _not_comparable(plan: Plan) -> Iterator[str]:
    """Say what keeps the runs out of one table, or the chosen rule from judging them."""
    metrics = dict.fromkeys(part.experiment.metric for part in plan.parts)
    if len(metrics) > 1:
        yield (
            f"metric: runs that are compared have one, found {' and '.join(metrics)}; set the same "
            "for all of them"
        )
    elif plan.parts and plan.rule not in plan.rules:
        key = "settings.setting" if plan.name else "setting"
        yield (
            f"selection={plan.rule} chooses by unlabelled target images, so all runs have to "
            f"adapt: set {key}=adaptation, or another selection"
        )


def _obstacles(part: Part, index: Index, built: dict[tuple[str, int, int], str]) -> Iterator[str]:
    """Say what keeps a method from training, once for each number of domains that are left to it.

    `built` keeps what building a method said, by its settings without those of the data and the
    numbers of domains and classes: datasets that are alike in these build the same.
    """
    together = next((domains for domains in part.singles if len(domains) > 1), None)
    if part.pairs and (together or part.experiment.setting == "adaptation"):
        why = (
            f"{'+'.join(together)} are held out together" if together else "it adapts to one target"
        )
        yield f"pairs: {part.name} cannot hold out a second domain: {why}; set pairs=none"
        return
    for domains in {len(each): each for each in (*part.pairs, *part.singles)[::-1]}.values():
        try:
            experiment = build_experiment(part.hold_out(domains, seed=0), part.name)
            error = _obstacle(experiment, index, built)
        except UnseenError as caught:
            error = str(caught)
        if error:
            yield f"{part.name} with {'+'.join(domains)} held out: {error}"


def _obstacle(experiment: Experiment, index: Index, built: dict[tuple[str, int, int], str]) -> str:
    """Build the method as it would start, but with random weights: nothing is downloaded."""
    from unseen.training import build
    from unseen.training.average import check_averaging

    build.check_target_use(experiment)
    roles = choose_roles(index, experiment.data, experiment.setting)
    sampler = build.build_sampler(experiment, roles)
    check_averaging(experiment, build.count_steps(experiment, sampler))
    network = experiment.network.model_copy(update={"pretrained": False})
    experiment = experiment.model_copy(update={"network": network})
    task = build.build_task(index, experiment)
    key = (experiment.model_dump_json(exclude={"data"}), len(task.domains), len(task.classes))
    if key not in built:
        built[key] = ""
        try:
            build.build_method(experiment, task)
        except UnseenError as error:
            built[key] = str(error)
    return built[key]
