"""The command `prepare`: a dataset, checked and cached once."""

import argparse
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from unseen.cli.shared import add_output, add_settings, next_step, say, say_json
from unseen.errors import SettingsError, UnseenError, unknown_name
from unseen.settings import catalog
from unseen.settings.recipes import build_experiment, merge, parse_overrides, read_recipe

if TYPE_CHECKING:
    from unseen.data.dataset import Dataset
    from unseen.data.decoding import Workers
    from unseen.data.prepare import PreparedImages
    from unseen.settings.experiment import Experiment


_MOST_CLASSES_SHOWN = 30


def add_prepare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dataset", help="one of: " + ", ".join(catalog.DATASETS))
    parser.add_argument("--root", type=Path, help="where the images are; remembered for later runs")
    parser.add_argument(
        "--download",
        action="store_true",
        help="fetch it first, to --root or to the cache",
    )
    parser.add_argument(
        "--size", type=int, help="image side in pixels; left out: that of the recipe"
    )
    parser.add_argument(
        "--labels",
        action="store_true",
        help="also look for wrong labels, by features of the recipe's network",
    )
    add_output(parser, "PAGE.html", "the audit as a web page")
    parser.add_argument("--groups", type=Path, metavar="FILE.csv", help="write groups of copies")
    parser.add_argument(
        "--on",
        choices=("here", "ray"),
        default="here",
        help="where images are decoded; ray: by all machines that see the cache",
    )
    parser.add_argument("--address", help="of a running Ray cluster; left out: this machine")
    parser.add_argument("--strict", action="store_true", help="exit code 1 if anything was found")
    add_settings(parser, "settings to change")


def run_prepare(chosen: argparse.Namespace) -> int:
    """Check, decode and cache a dataset, remember where it is, and report problems: ignored files,
    copies, what gives classes away, and with --labels probably wrong labels.

    unseen prepare pacs --root DIR
    unseen prepare mnist --download
    unseen prepare folder --root my_images --size 224 data.bad_images=skip
    unseen prepare folder --root my_images --labels -o audit.html --groups copies.csv
    unseen prepare domainnet --root DIR --on ray --address ADDRESS
    """
    from unseen.data.dataset import open_dataset, remember_root
    from unseen.data.prepare import prepare
    from unseen.networks.backbones import build_network

    _settings(chosen)  # a mistake is found before anything is fetched
    if chosen.download:
        chosen.root = _download(chosen.dataset, chosen.root)
    experiment = _settings(chosen)
    dataset = open_dataset(experiment.data)
    classes = len(dataset.index().classes)
    random_weights = experiment.network.model_copy(update={"pretrained": False})
    size = chosen.size or build_network(random_weights, classes).image_size
    with _bars(MofNCompleteColumn()) as report:
        prepared = prepare(dataset, size, report, True, _workers(chosen))
    if chosen.root is not None:
        remember_root(experiment.data.name, chosen.root)
    if not chosen.json:
        _print(prepared, _remarks(experiment, prepared))
    return _audit(chosen, experiment, dataset, prepared)


def _workers(chosen: argparse.Namespace) -> "Workers | None":
    if chosen.on == "here":
        if chosen.address:
            raise SettingsError("--address is that of a Ray cluster; add --on ray")
        return None
    from unseen.sweeps.ray import map_on_ray
    from unseen.sweeps.workers import Resources

    return partial(map_on_ray, Resources("ray", address=chosen.address))


def _audit(
    chosen: argparse.Namespace,
    experiment: "Experiment",
    dataset: "Dataset",
    images: "PreparedImages",
) -> int:
    from unseen.audit.audit import audit
    from unseen.reports.page.parts import capital

    features = None
    if chosen.labels:
        from unseen.training.display import Display
        from unseen.training.features import features_of_images

        with Display(Console(stderr=True), len(images.index), "features") as display:
            features = features_of_images(images, experiment.network, display)
    found = audit(dataset, images, features)
    if chosen.json:
        say_json(found.as_json())
    else:
        for finding in found.findings:
            say(f"{capital(finding.kind)}: {finding.text}")
        say(found.about if found.findings else f"Nothing was found. {found.about}")
    if chosen.groups is not None:
        found.write_groups(chosen.groups)
    if chosen.output is not None:
        found.write_page(images, chosen.output)
        say(f"Wrote {chosen.output}", Console(stderr=True))
    elif found.findings:
        say("With images: the same command and -o PAGE.html", Console(stderr=True))
    _say_next(chosen)
    return 1 if chosen.strict and found.findings else 0


def _say_next(chosen: argparse.Namespace) -> None:
    if chosen.dataset == "folder" and chosen.root is not None:
        root = shlex.quote(str(chosen.root))
        next_step(f"unseen auto {root}", f"unseen compare folder data.root={root}")
    else:
        next_step(f"unseen compare {chosen.dataset}")


def _download(name: str, root: Path | None) -> Path:
    from unseen.data.downloads import fetch_dataset

    with _bars(DownloadColumn()) as report:
        return fetch_dataset(name, root, report)


@contextmanager
def _bars(amount: ProgressColumn) -> Iterator[Callable[[str, int, int], None]]:
    """A function that draws a bar for each thing that is done, and how much of it is."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        amount,
        TimeRemainingColumn(elapsed_when_finished=True),
        console=Console(stderr=True),
    ) as progress:
        bars: dict[str, TaskID] = {}

        def report(doing: str, done: int, total: int) -> None:
            if doing not in bars:
                bars[doing] = progress.add_task(doing, total=total)
            progress.update(bars[doing], completed=done, total=total or None)

        yield report


def _settings(chosen: argparse.Namespace) -> "Experiment":
    """Those of the dataset's own recipe, with the changes from the command line."""
    if chosen.dataset not in catalog.DATASETS:
        raise SettingsError(unknown_name("dataset", chosen.dataset, catalog.DATASETS))
    recipe = f"{chosen.dataset}/aggregate"
    root = {"data": {"root": str(chosen.root)}} if chosen.root is not None else {}
    settings = merge(merge(read_recipe(recipe), root), parse_overrides(chosen.overrides))
    return build_experiment(settings, recipe)


def _remarks(experiment: "Experiment", prepared: "PreparedImages") -> list[str]:
    """As if all domains trained; which classes a domain lacks is among the dataset's own."""
    from unseen.data.roles import choose_roles, warnings_about_skew, warnings_about_validation

    data = experiment.data.model_copy(update={"unseen_domain": (), "training_domains": ()})
    try:
        roles = choose_roles(prepared.index, data)
    except UnseenError:  # domains that are not made to train on
        return []
    number = sum(map(len, roles.validation.values()))
    return [
        *warnings_about_skew(prepared.index, roles, experiment),
        *warnings_about_validation(number, experiment),
    ]


def _print(prepared: "PreparedImages", remarks: list[str]) -> None:
    """Counts by domain and split, then by class and domain, then everything that was odd."""
    console = Console()
    split_counts, class_counts = prepared.index.count_splits(), prepared.index.count_classes()
    splits = [
        split
        for split in ("train", "validation", "test", "unseen")
        if any(counts[split] for counts in split_counts.values())
    ]
    by_split = {
        domain: [sum(counts.values()), *(counts[split] for split in splits)]
        for domain, counts in split_counts.items()
    }
    title = f"Prepared at {prepared.size} px ({prepared.form})"
    console.print(_count_table(title, ["domain", "images", *splits], by_split))
    classes = prepared.index.classes
    if len(classes) <= _MOST_CLASSES_SHOWN:
        by_class = {name: [counts[name] for counts in class_counts.values()] for name in classes}
        console.print(_count_table("", ["class", *class_counts], by_class))
    else:
        say(f"{len(classes)} classes")
    for remark in (*prepared.index.remarks, *remarks):
        say(f"Note: {remark}")
    for name in prepared.left_out:
        say(f"Left out: {name}")


def _count_table(title: str, columns: list[str], rows: dict[str, list[int]]) -> Table:
    table = Table(title=title or None, title_justify="left")
    for place, column in enumerate(columns):
        table.add_column(escape(column), justify="right" if place else "left")
    for name, counts in rows.items():
        table.add_row(escape(name), *map(str, counts))
    return table
