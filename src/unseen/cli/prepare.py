"""The command `prepare`: a dataset, checked and cached once."""

import argparse
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, TaskID
from rich.table import Table

from unseen.cli.shared import ADDRESS, Add, add_settings, next_step, say, say_json
from unseen.errors import SettingsError, UnseenError, unknown_name
from unseen.settings import catalog
from unseen.settings.recipes import build_experiment, merge, parse_overrides, read_recipe

if TYPE_CHECKING:
    from unseen.data.dataset import Dataset
    from unseen.data.prepare import PreparedImages
    from unseen.settings.experiment import Experiment


_MOST_CLASSES_SHOWN = 30


def add_prepare(add: Add) -> None:
    add("dataset", "one of: " + ", ".join(catalog.DATASETS))
    add("--root", "where the images are; remembered for later runs", type=Path)
    add("--download", "fetch it first, to --root or to the cache")
    add("--size", "image side in pixels; left out: that of the recipe", type=int)
    add("--labels", "also look for wrong labels, by features of the recipe's network")
    add("-o --output", "write the audit as a web page", type=Path, metavar="PAGE.html")
    add("--groups", "write groups of copies", type=Path, metavar="FILE.csv")
    about = "where images are decoded; ray: by all machines that see the cache"
    add("--on", about, choices=("here", "ray"), default="here")
    add("--address", ADDRESS, metavar="ADDRESS")
    add("--strict", "exit code 1 if anything was found")
    add_settings(add, "settings to change")


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
    from unseen.data.downloads import fetch_dataset
    from unseen.data.prepare import prepare
    from unseen.networks.backbones import build_network
    from unseen.sweeps.ray import map_on_ray
    from unseen.sweeps.workers import Resources

    _settings(chosen)  # a mistake is found before anything is fetched
    if chosen.address and chosen.on == "here":
        raise SettingsError("--address is that of a Ray cluster; add --on ray")
    if chosen.download:
        with _bars() as report:
            chosen.root = fetch_dataset(chosen.dataset, chosen.root, report)
    experiment = _settings(chosen)
    dataset = open_dataset(experiment.data)
    classes = len(dataset.index().classes)
    random_weights = experiment.network.model_copy(update={"pretrained": False})
    size = chosen.size or build_network(random_weights, classes).image_size
    on_ray = partial(map_on_ray, Resources("ray", address=chosen.address))
    with _bars() as report:
        workers = on_ray if chosen.on == "ray" else None
        prepared = prepare(dataset, size, report, True, workers)
    if chosen.root is not None:
        remember_root(experiment.data.name, chosen.root)
    if not chosen.json:
        _print(experiment, prepared)
    return _audit(chosen, dataset, prepared)


def _settings(chosen: argparse.Namespace) -> "Experiment":
    """Those of the dataset's own recipe, with the changes from the command line."""
    if chosen.dataset not in catalog.DATASETS:
        raise SettingsError(unknown_name("dataset", chosen.dataset, catalog.DATASETS))
    recipe = f"{chosen.dataset}/aggregate"
    root = {"data": {"root": str(chosen.root)}} if chosen.root is not None else {}
    settings = merge(merge(read_recipe(recipe), root), parse_overrides(chosen.overrides))
    return build_experiment(settings, recipe)


@contextmanager
def _bars() -> Iterator[Callable[[str, int, int], None]]:
    """A function that draws a bar for each thing that is done."""
    bars: dict[str, TaskID] = {}
    with Progress(console=Console(stderr=True)) as progress:

        def report(doing: str, done: int, total: int) -> None:
            if doing not in bars:
                bars[doing] = progress.add_task(doing)
            progress.update(bars[doing], completed=done, total=total or None)

        yield report


def _audit(chosen: argparse.Namespace, dataset: "Dataset", images: "PreparedImages") -> int:
    from unseen.audit.audit import audit
    from unseen.training.display import Display
    from unseen.training.features import features_of_images

    features, aside = None, Console(stderr=True)
    if chosen.labels:
        with Display(aside, len(images.index), "features") as display:
            features = features_of_images(images, _settings(chosen).network, display)
    found = audit(dataset, images, features)
    if chosen.json:
        say_json(found.as_json())
    else:
        for line in found.lines():
            say(line)
    if chosen.groups is not None:
        found.write_groups(chosen.groups)
    if chosen.output is not None:
        found.write_page(images, chosen.output)
        say(f"Wrote {chosen.output}", aside)
    elif found.findings:
        say("With images: the same command and -o PAGE.html", aside)
    if chosen.dataset == "folder" and chosen.root is not None:
        root = shlex.quote(str(chosen.root))
        next_step(f"unseen auto {root}", f"unseen compare folder data.root={root}")
    else:
        next_step(f"unseen compare {chosen.dataset}")
    return 1 if chosen.strict and found.findings else 0


def _print(experiment: "Experiment", prepared: "PreparedImages") -> None:
    """Counts by domain and split, then by class and domain, then everything that is odd, or would
    be if all domains trained."""
    from unseen.data.roles import choose_roles, warnings_about_skew, warnings_about_validation

    index, console = prepared.index, Console()
    names, counted = ("train", "validation", "test", "unseen"), index.count_splits()
    splits = {d: {"images": sum(counts.values()), **counts} for d, counts in counted.items()}
    title = f"Prepared at {prepared.size} px ({prepared.form})"
    kept = ["images", *(n for n in names if any(counts[n] for counts in counted.values()))]
    console.print(_counts(title, "domain", kept, splits))
    by_domain = index.count_classes()
    if len(index.classes) <= _MOST_CLASSES_SHOWN:
        own = {c: {domain: by_domain[domain][c] for domain in by_domain} for c in index.classes}
        console.print(_counts(None, "class", list(by_domain), own))
    else:
        say(f"{len(index.classes)} classes")
    remarks = list(index.remarks)
    with suppress(UnseenError):  # domains that are not made to train on
        data = experiment.data.model_copy(update={"unseen_domain": (), "training_domains": ()})
        roles = choose_roles(index, data)
        remarks += warnings_about_skew(index, roles, experiment)
        number = sum(map(len, roles.validation.values()))
        remarks += warnings_about_validation(number, experiment)
    for remark in remarks:
        say(f"Note: {remark}")
    for name in prepared.left_out:
        say(f"Left out: {name}")


def _counts(
    title: str | None, first: str, columns: list[str], rows: Mapping[str, Mapping[str, int]]
) -> Table:
    table = Table(first, title=title, title_justify="left")
    for column in columns:
        table.add_column(escape(column), justify="right")
    for name, counts in rows.items():
        table.add_row(escape(name), *(str(counts[column]) for column in columns))
    return table
