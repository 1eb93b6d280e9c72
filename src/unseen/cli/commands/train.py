"""Train a recipe. The same command again, or the run's folder, resumes an unfinished run.

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

from unseen.cli.run_options import add_log_option
from unseen.errors import UnseenError
from unseen.results.folder import RunFolder, find_run
from unseen.settings.experiment import Experiment, identity
from unseen.settings.recipes import build_experiment, load_experiment, merge, parse_overrides


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", metavar="RECIPE|RUN", help="a recipe's name or file, or a run folder"
    )
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings to change")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where runs are kept")
    add_log_option(parser)
    parser.add_argument(
        "--resume", action="store_true", help="only resume: fail if there is no run to continue"
    )


def run(chosen: argparse.Namespace) -> None:
    from unseen.api import finish_run
    from unseen.reports.terminal import run_table
    from unseen.training.devices import is_first_process

    if Path(chosen.what).is_dir():
        folder = RunFolder(Path(chosen.what))
        experiment = _resume(folder, parse_overrides(chosen.overrides))
    else:
        experiment = load_experiment(chosen.what, parse_overrides(chosen.overrides))
        folder = find_run(chosen.runs, experiment)
    console = Console(stderr=True, quiet=not is_first_process())
    if chosen.resume and not folder.settings.is_file():
        raise UnseenError(
            f"there is no run to resume in {folder.path}; leave out --resume to start one"
        )
    if folder.finished:
        console.print(f"{folder.path} is already finished", highlight=False, soft_wrap=True)
    else:
        console.print(f"Run folder: {folder.path}", highlight=False, soft_wrap=True)
    finished = finish_run(experiment, folder, console, chosen.log)
    shown = Console(quiet=not is_first_process())
    shown.print(run_table(finished.result, shown.width))


def _resume(folder: RunFolder, overrides: dict[str, Any]) -> Experiment:
    """The settings that the run was started with; those without effect on the result may change."""
    settings = folder.read_settings()
    started = build_experiment(settings, str(folder.settings))
    for key, value in overrides.items():
        changed = build_experiment(merge(settings, {key: value}), str(folder.settings))
        if identity(changed) != identity(started):
            raise UnseenError(
                f"a run keeps the settings that decide its result; leave out '{key}' "
                "(devices, log_every and checkpoint_every may be changed)"
            )
    return build_experiment(merge(settings, overrides), str(folder.settings))
