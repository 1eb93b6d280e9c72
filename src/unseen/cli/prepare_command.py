"""Check, decode and cache a dataset once, and remember where it lies.

  unseen prepare pacs --root DIR
  unseen prepare folder --root my_images --size 224 data.bad_images=skip
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from unseen import catalog
from unseen.recipe_files import build_experiment, merge, parse_overrides, read_recipe, recipe_names

if TYPE_CHECKING:
    from unseen.config import Experiment
    from unseen.data.integrity import Integrity


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dataset", help="one of: " + ", ".join(catalog.DATASETS))
    parser.add_argument("--root", type=Path, help="where the images are; remembered for later runs")
    parser.add_argument("--size", type=int, help="side in pixels; else that of the dataset's recipe")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as data.bad_images=skip")


def run(chosen: argparse.Namespace) -> None:
    from unseen.data.prepare import open_dataset, prepare, remember_root
    from unseen.data.integrity import integrity_report
    from unseen.networks.backbones import build_network

    experiment = _settings(chosen)
    dataset = open_dataset(experiment.data)
    classes = len(dataset.index().classes)
    random_weights = experiment.network.model_copy(update={"pretrained": False})
    size = chosen.size or build_network(random_weights, classes).image_size
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=Console(stderr=True),
    ) as progress:
        bars = {}

        def report(doing: str, done: int, total: int) -> None:
            if doing not in bars:
                bars[doing] = progress.add_task(doing, total=total)
            progress.update(bars[doing], completed=done)

        prepared = prepare(dataset, size, report)
    if chosen.root is not None:
        remember_root(experiment.data.name, chosen.root)
    _print(integrity_report(prepared), prepared.size, prepared.form)


def _settings(chosen: argparse.Namespace) -> "Experiment":
    recipe = f"{chosen.dataset}/aggregate"
    settings = read_recipe(recipe) if recipe in recipe_names() else read_recipe("folder/aggregate")
    settings = merge(settings, {"data": {"name": chosen.dataset}})
    if chosen.root is not None:
        settings = merge(settings, {"data": {"root": str(chosen.root)}})
    return build_experiment(merge(settings, parse_overrides(chosen.overrides)), recipe)


def _print(report: "Integrity", size: int, form: str) -> None:
    """Counts by domain, split and class; then everything that was odd."""
    console = Console()
    splits = [s for s in ("train", "validation", "test", "unseen") if _total(report.splits, s)]
    classes = list(next(iter(report.counts.values())))
    shown = classes if len(classes) <= 12 else []
    table = Table(title=f"Images at {size} px, {form}", title_justify="left")
    table.add_column("domain")
    for column in ("images", *splits, *shown):
        table.add_column(column, justify="right")
    for domain, counts in report.counts.items():
        numbers = [sum(counts.values()), *(report.splits[domain][s] for s in splits)]
        table.add_row(domain, *map(str, [*numbers, *(counts[c] for c in shown)]))
    console.print(table)
    if not shown:
        console.print(f"{len(classes)} classes", highlight=False)
    for remark in report.remarks:
        console.print(f"Note: {remark}", markup=False, highlight=False, soft_wrap=True)
    for name in report.left_out:
        console.print(f"Left out: {name}", markup=False, highlight=False, soft_wrap=True)


def _total(splits: dict[str, dict[str, int]], split: str) -> int:
    return sum(counts[split] for counts in splits.values())
