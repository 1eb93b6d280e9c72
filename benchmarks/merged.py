"""What a model that was merged from several runs costs in use, beside a model of one run."""

from pathlib import Path

import numpy as np
import yaml
from rich.console import Console
from safetensors.torch import save_file

import unseen
from benchmarks.figures import Clock, Figure, Measurement, alternate, clock, median_ratio
from benchmarks.workload import CLASSES, generated, settings, workspace
from unseen.networks.backbones import build_network
from unseen.settings.experiment import complete_settings

BATCH_SIZE = 16
SIZE = 128
RUNS = 3


def merged_over_one(repeats: int) -> Measurement:
    """Predictions of both, from pictures to probabilities; the remark compares their files."""
    pixels = np.random.default_rng(0).integers(0, 256, (BATCH_SIZE, SIZE, SIZE, 3), dtype=np.uint8)
    quiet = Console(quiet=True)
    with workspace(pictures_per_class=3) as folder:
        runs = [_trained(folder, seed, quiet) for seed in range(RUNS)]
        paths = [run.folder.path for run in runs]
        merged = unseen.merge(paths, folder / "merged", console=quiet)
        one, average = (run.folder.weights(run.result.selection) for run in (runs[0], merged))
        sizes = [file.stat().st_size for file in (average, one)]
        pairs = alternate(_predicting(merged, pixels), _predicting(runs[0], pixels), repeats)
    remark = f"weights of {sizes[0]:,} and {sizes[1]:,} bytes"
    return median_ratio(pairs, remark)._replace(sound=sizes[0] == sizes[1])


def _trained(folder: Path, seed: int, console: Console) -> unseen.Run:
    """One step from weights that all runs share, as pretrained ones are."""
    experiment = settings(generated(folder), "dmg", "resnet18", SIZE)
    start = folder / "start.safetensors"
    if not start.is_file():
        save_file(build_network(experiment.network, len(CLASSES) + 1).state_dict(), start)
    recipe = complete_settings(experiment)
    recipe["network"]["pretrained"] = str(start)
    file = folder / "recipe.yaml"
    file.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    return unseen.fit(file, runs=folder / "runs", console=console, seed=seed, steps=1)


def _predicting(run: unseen.Run, pixels: np.ndarray) -> Clock:
    return clock(lambda: run.predict(pixels))


FIGURES = [
    Figure(
        "predictions of a merged model / of one model",
        "<= 1.05",
        f"DMG merged from {RUNS} runs and one of them, ResNet-18 at {SIZE} px, batch {BATCH_SIZE}; "
        "it holds only if their files have the same size",
        repeats=30,
        measure=merged_over_one,
    )
]
