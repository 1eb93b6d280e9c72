"""The main job: leave one domain out, in turn, for every method and seed; then the tables."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from unseen import catalog
from unseen.config import Experiment, as_list, identity
from unseen.data.opening import open_dataset
from unseen.errors import SettingsError, unknown_name
from unseen.recipe_files import build_experiment, merge, nested, read_recipe, recipe_names
from unseen.records.folder import RunFolder, run_name, safe_name
from unseen.records.result import RunResult
from unseen.records.run_list import RunList, write_run_list
from unseen.records.views import VIEWS
from unseen.reports.formats import write_tables
from unseen.reports.gather import Expected
from unseen.reports.tables import Table, build_tables
from unseen.trackers.base import Subject
from unseen.trackers.fan_out import Trackers, choose_trackers
from unseen.training.devices import is_first_process
from unseen.training.display import Display
from unseen.training.execute import execute, length


@dataclass(frozen=True)
class Comparison:
    """All runs of a comparison and the tables made of them."""

    results: list[RunResult]
    tables: list[Table]
    files: list[Path]
    folders: list[Path]


def compare(
    dataset: str,
    *,
    methods: str | Sequence[str] = ("aggregate", "multihead", "dmg"),
    seeds: Sequence[int] = (0,),
    backbone: str | None = None,
    unseen: str | Sequence[str] = (),
    runs: str | Path = "runs",
    log: str | Sequence[str] = (),
    console: Console | None = None,
    **overrides: Any,
) -> Comparison:
    """Train on all domains but one, test on that one; every domain, method and seed.

    Each method starts from its recipe `dataset/method`, or from `dataset/aggregate` with the
    method's own defaults. Finished runs are skipped, unfinished ones resumed. Names may be given
    as a list or as text with commas, `all` being every method; `unseen` restricts which domains are
    held out.
    """
    methods, unseen, trackers = as_list(methods), as_list(unseen), choose_trackers(log)
    methods = list(catalog.METHODS) if list(methods) == ["all"] else methods
    console = console or Console(stderr=True)
    extra = nested(overrides)
    if backbone is not None:
        extra = merge(extra, {"network": {"name": backbone}})
    plan = plan_comparison(dataset, methods, seeds, unseen, extra)
    folders = [RunFolder(Path(runs) / run_name(experiment)) for experiment in plan]
    _carry_out(plan, folders, console, trackers)
    results = [folder.read_result() for folder in folders]
    expected = Expected(
        tuple(methods),
        tuple(dict.fromkeys(tuple(e.data.unseen_domain) for e in plan)),
        tuple(seeds),
    )
    tables = build_tables(results, plan[0].selection, expected)
    home = Path(runs) / "tables" / _table_folder(plan)
    files = write_tables(tables, home)
    write_run_list(home, RunList(tuple(folder.path for folder in folders)))
    _send_tables(trackers, tables, home, console)
    return Comparison(results, tables, files, [folder.path for folder in folders])


def plan_comparison(
    dataset: str,
    methods: Sequence[str],
    seeds: Sequence[int],
    unseen: Sequence[str],
    overrides: Mapping[str, Any],
) -> list[Experiment]:
    """The settings of every run, all checked before the first one starts."""
    bases = {method: merge(base_settings(dataset, method), overrides) for method in methods}
    if not bases or not seeds:
        raise SettingsError("a comparison needs at least one method and one seed")
    first = build_experiment(next(iter(bases.values())), f"{dataset}/{methods[0]}")
    domains = open_dataset(first.data).index().domains
    return [
        build_experiment(hold_out(settings, first, [held_out], seed), f"{dataset}/{method}")
        for held_out in domains_to_hold_out(first, domains, unseen)
        for seed in seeds
        for method, settings in bases.items()
    ]


def base_settings(dataset: str, method: str) -> dict[str, Any]:
    """Of the recipe `dataset/method`, or of `dataset/aggregate` with the method's defaults."""
    known = recipe_names()
    if f"{dataset}/{method}" in known:
        return read_recipe(f"{dataset}/{method}")
    if method not in catalog.METHODS and ":" not in method:
        raise SettingsError(unknown_name("method", method, catalog.METHODS))
    if f"{dataset}/aggregate" not in known:
        families = {name.partition("/")[0] for name in known}
        raise SettingsError(unknown_name("dataset to compare on", dataset, families))
    return merge(read_recipe(f"{dataset}/aggregate"), {"method": {"name": method}})


def domains_to_hold_out(
    first: Experiment, domains: Sequence[str], wanted: Sequence[str] = ()
) -> Sequence[str]:
    """Each domain in turn; but a recipe that names both sides (MNIST to MNIST-M) has one task."""
    unknown = [name for name in wanted if name not in domains]
    if unknown:
        raise SettingsError(unknown_name("domain", unknown[0], domains))
    if wanted:
        return wanted
    both_named = first.data.training_domains and first.data.unseen_domain
    return first.data.unseen_domain if both_named else first.data.training_domains or domains


def hold_out(
    settings: Mapping[str, Any], first: Experiment, held_out: Sequence[str], seed: int
) -> dict[str, Any]:
    """One run: these domains are unseen; of those that the recipe names, the others train."""
    data: dict[str, Any] = {"unseen_domain": list(held_out)}
    training = [domain for domain in first.data.training_domains if domain not in held_out]
    if training:
        data["training_domains"] = training
    return merge(settings, {"seed": seed, "data": data})


def _carry_out(
    plan: list[Experiment], folders: list[RunFolder], console: Console, log: Sequence[str]
) -> None:
    """Every run that is not finished, under one bar over all steps of the plan."""
    lengths = [length(experiment) for experiment in plan]
    finished = sum(folder.finished for folder in folders)
    started = sum(f.checkpoint.is_file() and not f.finished for f in folders)
    console.print(
        f"{len(plan)} runs planned ({finished} finished, {started} to resume), "
        f"{sum(lengths)} steps in all",
        highlight=False,
    )
    done = sum(n for n, folder in zip(lengths, folders, strict=True) if folder.finished)
    with Display(console, sum(lengths), "", done) as display:
        for number, (experiment, folder) in enumerate(zip(plan, folders, strict=True), 1):
            if folder.finished:
                continue
            display.begin_run(f"{number}/{len(plan)} {describe(experiment)}", done)
            execute(experiment, folder, display, log)
            done += lengths[number - 1]
            display.line(f"{number}/{len(plan)} {describe(experiment)}: {_outcome(folder)}")


def _send_tables(names: Sequence[str], tables: list[Table], home: Path, console: Console) -> None:
    """The comparison's own entry in each tracker, beside those of its runs."""
    if names and is_first_process():
        settings = {"tables": home.name}
        subject = Subject(home.name, home.name[-8:], settings, home.parent.parent)
        warn = partial(console.print, highlight=False, markup=False, soft_wrap=True)
        trackers = Trackers(names, subject, warn)
        for table in tables:
            trackers.table(table)
        trackers.close(finished=True)


def describe(experiment: Experiment) -> str:
    unseen = "+".join(experiment.data.unseen_domain)
    return f"{experiment.method.name}, unseen {unseen}, seed {experiment.seed}"


def _outcome(folder: RunFolder) -> str:
    result = folder.read_result()
    means = {
        about.title: result.mean(result.selection, view)
        for view, about in VIEWS.items()
        if view != "known_domain"
    }
    return ", ".join(f"{title} {mean:.1%}" for title, mean in means.items() if mean is not None)


def _table_folder(plan: list[Experiment]) -> str:
    """Another choice of methods, seeds or settings has tables of its own."""
    together = hashlib.sha256("".join(map(identity, plan)).encode()).hexdigest()[:8]
    return f"{safe_name(plan[0].data.name)}-{safe_name(plan[0].network.name)}-{together}"
