"""Train a recipe; the same command again, or the run's folder, goes on where it was.

unseen train digits/dmg data.unseen_domain=outlines
unseen train pacs/dmg data.unseen_domain=photo method.overlap_weight=0.05 seed=3
unseen train my_recipe.yaml --runs elsewhere
unseen train runs/pacs-... --resume
unseen train runs/pacs-... devices.number=2
unseen train digits/dmg data.unseen_domain=outlines --log tensorboard,mlflow
"""

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console

from unseen.config import Experiment
from unseen.errors import UnseenError
from unseen.recipe_files import build_experiment, load_experiment, merge, parse_overrides
from unseen.records.folder import RunFolder, run_name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", metavar="RECIPE|RUN", help="a recipe's name or file, or a run folder"
    )
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings to change")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where runs are kept")
    parser.add_argument(
        "--log", default="", help="send records to wandb, tensorboard, mlflow as well: any of them"
    )
    parser.add_argument(
        "--resume", action="store_true", help="refuse to start anew: there must be a run to go on"
    )


def run(chosen: argparse.Namespace) -> None:
    from unseen.api import carry_on
    from unseen.reports.summary import run_table
    from unseen.training.devices import is_first_process

    if Path(chosen.what).is_dir():
        folder = RunFolder(Path(chosen.what))
        experiment = _go_on(folder, parse_overrides(chosen.overrides))
    else:
        experiment = load_experiment(chosen.what, parse_overrides(chosen.overrides))
        folder = RunFolder(chosen.runs / run_name(experiment))
    console = Console(stderr=True, quiet=not is_first_process())
    if chosen.resume and not folder.settings.is_file():
        raise UnseenError(f"there is no run to go on with in {folder.path}; leave --resume out")
    if folder.finished:
        console.print(f"{folder.path} is finished already", highlight=False, soft_wrap=True)
    else:
        console.print(f"Run folder: {folder.path}", highlight=False, soft_wrap=True)
    finished = carry_on(experiment, folder, console, chosen.log)
    Console(quiet=not is_first_process()).print(run_table(finished.result))


def _go_on(folder: RunFolder, overrides: dict[str, Any]) -> Experiment:
    """The settings that the run was started with; where it computes may be another place."""
    others = [key for key in overrides if key != "devices"]
    if others:
        raise UnseenError(
            f"a run that was started keeps its settings, all but devices; leave '{others[0]}' out"
        )
    return build_experiment(merge(folder.read_settings(), overrides), str(folder.settings))
