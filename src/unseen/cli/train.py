"""The commands `train` and `merge`: one model from a recipe or a run, or from many runs."""

import argparse
import shlex
from pathlib import Path
from typing import Any

from rich.console import Console

from unseen.cli.shared import add_output, add_recipe, add_runs, loading, next_step, say
from unseen.errors import UnseenError
from unseen.results.folder import RunFolder, find_run
from unseen.settings.experiment import Experiment, identity
from unseen.settings.recipes import (
    build_experiment,
    load_experiment,
    merge,
    open_experiment,
    parse_overrides,
)


def add_train(parser: argparse.ArgumentParser) -> None:
    add_recipe(parser)
    add_runs(parser)
    parser.add_argument("--resume", action="store_true", help="fail if there is no run to continue")


def run_train(chosen: argparse.Namespace) -> None:
    """Train a recipe. The same command again, or the run's folder, resumes an unfinished run.

    unseen train digits/dmg data.unseen_domain=outlines
    unseen train pacs/dmg data.unseen_domain=photo method.overlap_weight=0.05 seed=3
    unseen train my_recipe.yaml --runs elsewhere
    unseen train runs/pacs-... --resume
    unseen train runs/pacs-... devices.number=2
    unseen train digits/dmg data.unseen_domain=outlines --log tensorboard,mlflow
    """
    overrides = parse_overrides(chosen.overrides)
    if Path(chosen.what).is_dir():
        folder = RunFolder(Path(chosen.what))
        experiment = _resume(folder, overrides)
    else:
        experiment = load_experiment(chosen.what, overrides)
        folder = find_run(chosen.runs, experiment)
    if chosen.resume and not folder.settings.is_file():
        raise UnseenError(
            f"there is no run to resume in {folder.path}; leave out --resume to start one"
        )
    with loading():  # mistakes in settings have been told at once
        from unseen.api import finish_run
        from unseen.reports.terminal import show_run
        from unseen.training.devices import is_first_process

    quiet = not is_first_process()
    console, shown = Console(stderr=True, quiet=quiet), Console(quiet=quiet)
    if folder.finished:
        say(f"{folder.path} is already finished", console)
    finished = finish_run(experiment, folder, console, chosen.log)
    show_run(finished.result, shown)
    if not quiet:
        next_step(*_uses(folder.path))


def _resume(folder: RunFolder, overrides: dict[str, Any]) -> Experiment:
    """The settings that the run was started with; those without effect on the result may change."""
    settings = folder.read_settings()
    started = open_experiment(settings, folder.settings)
    for key, value in overrides.items():
        changed = build_experiment(merge(settings, {key: value}), str(folder.settings))
        if identity(changed) != identity(started):
            raise UnseenError(
                f"a run keeps the settings that decide its result; leave out '{key}' "
                "(devices, log_every and checkpoint_every may be changed)"
            )
    return build_experiment(merge(settings, overrides), str(folder.settings))


def _uses(folder: Path) -> list[str]:
    run = shlex.quote(str(folder))
    return [f"unseen predict {run} IMAGES", f"unseen export {run} --to onnx"]


def add_merge(parser: argparse.ArgumentParser) -> None:
    many = "run folders, or folders that hold runs"
    parser.add_argument("merged", metavar="RUNS", nargs="+", type=Path, help=many)
    parser.add_argument(
        "--choose",
        choices=("all", "greedy"),
        default="all",
        help="greedy: start with the best on validation images, add each next one unless the "
        "average gets worse",
    )
    add_output(parser, "MODEL", "the new run folder there", required=True)


def run_merge(chosen: argparse.Namespace) -> None:
    """Average the weights of finished runs into one model of the same size and speed.

    The runs must share images, training domains, backbone, pretrained start and method. Labels of
    the unseen domain are never looked at. The result is a run folder like any other.

      unseen merge runs/pacs-efficientnet_lite0-dmg-sketch-* -o models/sketch
      unseen merge sweep_of_one_domain --choose greedy -o models/sketch
    """
    with loading():
        from unseen.api import merge as merge_weights
        from unseen.reports.terminal import show_run

    finished = merge_weights(chosen.merged, chosen.output, choose=chosen.choose)
    show_run(finished.result, Console())
    assert finished.result.merged is not None
    say(finished.result.merged.description)
    next_step(*_uses(chosen.output))
