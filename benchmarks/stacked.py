"""What it gains to train many runs on the same stored features together: 240 linear heads."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from rich.console import Console

from benchmarks.figures import Figure, Measurement, alternate, clock, median_ratio
from benchmarks.workload import DOMAINS, generated, workspace
from unseen.methods.base import Progress
from unseen.results.folder import RunFolder
from unseen.settings.experiment import Experiment
from unseen.settings.recipes import build_experiment
from unseen.training.devices import launch
from unseen.training.display import Display
from unseen.training.execute import execute, train_together
from unseen.training.session import open_session

DRAWS = 20
ALONE = 12
"""Of the runs, as many are trained one by one, and the time is scaled up to all."""
TIMED = 50
"""Steps that are measured in one go."""
LARGEST_DIFFERENCE = 0.002
"""Between accuracies of a run alone and in a stack: sums in another order, an image or two."""
PACS_DOMAINS = ("art_painting", "cartoon", "photo", "sketch")


@contextmanager
def place() -> Iterator[tuple[dict[str, Any], tuple[str, ...], Path]]:
    """Data settings, domains and a folder: PACS below $UNSEEN_DATA, or else generated files.

    On one thread, as a sweep's workers have it.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    root = os.environ.get("UNSEEN_DATA")
    try:
        if root and (Path(root) / "PACS").is_dir():
            with TemporaryDirectory(prefix="unseen-bench-") as folder:
                yield {"name": "pacs", "root": f"{root}/PACS"}, PACS_DOMAINS, Path(folder)
        else:
            with workspace(pictures_per_class=20) as folder:
                yield generated(folder), DOMAINS, folder
    finally:
        torch.set_num_threads(threads)


def sweep(data: dict[str, Any], domains: Sequence[str]) -> list[Experiment]:
    """240 runs: each domain held out, seeds, and draws of learning rate and weight decay."""
    random = np.random.default_rng(0)
    draws = [(10 ** random.uniform(-4, -2), 10 ** random.uniform(-6, -2)) for _ in range(DRAWS)]
    seeds = range(240 // DRAWS // len(domains))
    return [
        build_experiment(
            {
                "data": {**data, "unseen_domain": domain},
                "network": {
                    "name": "efficientnet_lite0",
                    "pretrained": True,
                    "image_size": 128,
                    "freeze_until": "classifier",
                },
                "method": {"name": "aggregate"},
                "optimizer": {"name": "adam", "lr": lr, "weight_decay": decay},
                "devices": {"accelerator": "cpu"},
                "steps": 300,
                "images_per_domain": 16,
                "seed": seed,
            }
        )
        for domain, seed, (lr, decay) in product(domains, seeds, draws)
    ]


def whole_runs(repeats: int) -> Measurement:
    """Everything counts: opening the data, training, measuring, writing."""
    with place() as (data, domains, folder), _display() as display:
        experiments = sweep(data, domains)
        every = len(experiments) // ALONE
        _one_by_one(experiments[:1], folder / "first", display)  # features are made, caches warm
        alone, together = folder / "alone", folder / "together"
        one_by_one = clock(lambda: _one_by_one(experiments[::every], alone, display))
        stacked = clock(lambda: _together(experiments, together, display))
        pairs = []
        for _ in range(repeats):
            for used in (alone, together):
                shutil.rmtree(used, ignore_errors=True)
            pairs.append((every * one_by_one(), stacked()))
        apart = max(_difference(alone / str(n), together / str(n * every)) for n in range(ALONE))
        files = {file.stat().st_ino: file.stat().st_size for file in together.rglob("*.*")}
    seconds = np.median(pairs, axis=0)
    remark = (
        f"{seconds[0]:.0f} and {seconds[1]:.0f} s, {sum(files.values()) / 2**30:.1f} GB; "
        f"accuracies differ by {apart:.1%} at most"
    )
    return median_ratio(pairs, remark)._replace(sound=apart <= LARGEST_DIFFERENCE)


def steps_alone(repeats: int) -> Measurement:
    """Reading batches and learning from them; no evaluation, no files."""
    with place() as (data, domains, folder), _display() as display:
        experiments = sweep(data, domains)
        _one_by_one(experiments[:1], folder / "first", display)
        folders = [RunFolder(folder / str(number)) for number in range(len(experiments))]
        for run in folders:
            run.path.mkdir()
        first, members = experiments[0], list(zip(experiments, folders, strict=True))
        one = launch(first, open_session, members[:1], display)
        many = launch(first, open_session, members, display)
        batches = many.batches(range(many.steps))
        starts = iter(range(0, 10**6, TIMED))

        def alone() -> None:
            start = next(starts)
            for batch in one.batches(range(start, start + TIMED)):
                one.learner.step(batch, Progress(one.step, one.steps))

        def together() -> None:
            for batch in islice(batches, TIMED):
                many.learner.step(batch, Progress(many.step, many.steps))
                many.step += 1

        pairs = alternate(clock(alone), clock(together), repeats)
    pairs = [(len(experiments) * one, all_of_them) for one, all_of_them in pairs]
    seconds = np.median(pairs, axis=0) / TIMED / len(experiments)
    remark = f"{1e6 * seconds[0]:.0f} and {1e6 * seconds[1]:.0f} µs a step of a run"
    return median_ratio(pairs, remark)


def _one_by_one(experiments: Sequence[Experiment], folder: Path, display: Display) -> None:
    for number, experiment in enumerate(experiments):
        execute(experiment, RunFolder(folder / str(number)), display)


def _together(experiments: Sequence[Experiment], folder: Path, display: Display) -> None:
    folders = [RunFolder(folder / str(number)) for number in range(len(experiments))]
    train_together(experiments, folders, display)


def _difference(alone: Path, together: Path) -> float:
    """The largest one between accuracies out of domain and in domain of the same run."""
    one, other = (RunFolder(path).read_result() for path in (alone, together))
    return max(
        abs(measured.accuracy - other.view(rule, view)[domain].accuracy)
        for rule, chosen in one.rules.items()
        for view, by_domain in chosen.views.items()
        for domain, measured in by_domain.items()
    )


def _display() -> Display:
    return Display(Console(quiet=True), 1, "")


FIGURES = [
    Figure(
        "240 runs one by one / stacked",
        ">= 4",
        "linear heads on stored features of EfficientNet-Lite0, 300 steps of 3 x 16, from settings "
        "to files, one thread; 12 of them one by one, times 20",
        repeats=1,
        measure=whole_runs,
    ),
    Figure(
        "training steps of 240 runs one by one / stacked",
        ">= 8",
        "the same runs, reading batches and learning from them, one thread",
        repeats=3,
        measure=steps_alone,
    ),
]
