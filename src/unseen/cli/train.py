"""The commands `train`, `merge`, `auto` and `report`: one model from a recipe or a run, from many
runs, or from images; and the page about runs."""

import argparse
import shlex
from pathlib import Path
from typing import Any

from rich.console import Console

from unseen.cli import shared
from unseen.cli.shared import Add, next_step, say, say_json
from unseen.errors import UnseenError
from unseen.results.folder import RunFolder, find_run
from unseen.settings import recipes
from unseen.settings.experiment import METRICS, Experiment, identity


def add_train(add: Add) -> None:
    shared.add_recipe(add)
    shared.add_runs(add)
    add("--resume", "fail if there is no run to continue")


def run_train(chosen: argparse.Namespace) -> None:
    """Train a recipe. The same command again, or the run's folder, resumes an unfinished run.

    unseen train digits/dmg data.unseen_domain=outlines
    unseen train pacs/dmg data.unseen_domain=photo method.overlap_weight=0.05 seed=3
    unseen train my_recipe.yaml --runs elsewhere
    unseen train runs/pacs-... --resume
    unseen train runs/pacs-... devices.number=2
    unseen train digits/dmg data.unseen_domain=outlines --log tensorboard,mlflow
    """
    overrides = recipes.parse_overrides(chosen.overrides)
    if Path(chosen.what).is_dir():
        folder = RunFolder(Path(chosen.what))
        experiment = _resume(folder, overrides)
    else:
        experiment = recipes.load_experiment(chosen.what, overrides)
        folder = find_run(chosen.runs, experiment)
    if chosen.resume and not folder.settings.is_file():
        raise UnseenError(
            f"there is no run to resume in {folder.path}; leave out --resume to start one"
        )
    with shared.loading():  # mistakes in settings have been told at once
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
    settings, file = folder.read_settings(), str(folder.settings)
    started = recipes.open_experiment(settings, folder.settings)
    for key, value in overrides.items():
        changed = recipes.build_experiment(recipes.merge(settings, {key: value}), file)
        if identity(changed) != identity(started):
            raise UnseenError(
                f"a run keeps the settings that decide its result; leave out '{key}' "
                "(devices, log_every and checkpoint_every may be changed)"
            )
    return recipes.build_experiment(recipes.merge(settings, overrides), file)


def _uses(folder: Path) -> list[str]:
    run = shlex.quote(str(folder))
    return [f"unseen predict {run} IMAGES", f"unseen export {run} --to onnx"]


def add_merge(add: Add) -> None:
    many = "run folders, or folders that hold runs"
    add("merged", many, metavar="RUNS", nargs="+", type=Path)
    greedy = "greedy: start with the best on validation images, add each next one unless the "
    how = greedy + "average gets worse"
    add("--choose", how, choices=("all", "greedy"), default="all")
    about = "write the new run folder there"
    add("-o --output", about, type=Path, metavar="MODEL", required=True)


def run_merge(chosen: argparse.Namespace) -> None:
    """Average the weights of finished runs into one model of the same size and speed.

    The runs must share images, training domains, backbone, pretrained start and method. Labels of
    the unseen domain are never looked at. The result is a run folder like any other.

      unseen merge runs/pacs-efficientnet_lite0-dmg-sketch-* -o models/sketch
      unseen merge sweep_of_one_domain --choose greedy -o models/sketch
    """
    with shared.loading():
        from unseen.api import merge as merge_weights
        from unseen.reports.terminal import show_run

    finished = merge_weights(chosen.merged, chosen.output, choose=chosen.choose)
    show_run(finished.result, Console())
    assert finished.result.merged is not None
    say(finished.result.merged.description)
    next_step(*_uses(chosen.output))


def add_auto(add: Add) -> None:
    add("data", "a folder domain/class/*, a manifest, or a dataset's name", metavar="DATA")
    add("--minutes", "the time it may take", type=float, default=20)
    new = "images of a new place without labels (may be given again): forecast the accuracy there"
    add("--for", new, dest="images", action="append", default=[], metavar="IMAGES")
    where = "write runs and the result there; left out: auto-DATA"
    add("-o --output", where, type=Path, metavar="DIR")
    out = "keep these domains out of everything and measure the model on them at the end"
    add("--unseen", out, default="", metavar="DOMAIN")
    add("--seeds", "for example 0,1,2 or 0-4", default="0")
    add("--workers", "runs at the same time; left out: as many as the cores allow", type=int)
    shared.add_settings(add, "settings for all runs")


def run_auto(chosen: argparse.Namespace) -> None:
    """Find the best model that this machine can train in the given time, and say what to expect of
    it in a new domain.

    Candidates are compared by leaving each domain out in turn; the simplest that is not worse by
    more than noise is trained on all domains. What is expected was measured on domains that had no
    part in the choice. The same command continues where it stopped.

      unseen auto three_hospitals
      unseen auto three_hospitals --minutes 60 --for fourth_hospital -o best
      unseen auto pacs --unseen sketch data.root=PACS
    """
    with shared.loading():
        from unseen.automatic.answer import PAGE
        from unseen.automatic.run import auto

    words = ("minutes", "images", "output", "unseen", "seeds", "workers")
    own = {word: getattr(chosen, word) for word in words}
    answer = auto(chosen.data, **own, **recipes.parse_overrides(chosen.overrides))
    if chosen.json:
        say_json(answer.as_json())
        return
    for line in answer.lines():
        say(line)
    for about, command in {"as a page": str(answer.home / PAGE), **answer.commands}.items():
        say(f"  {about}: {command}")


def add_report(add: Add) -> None:
    add("runs", "where runs are kept, or a folder of tables", metavar="RUNS", type=Path)
    where = "write the page there; left out: RUNS/report"
    add("-o --output", where, type=Path, metavar="DIR")
    add("--rule", "selection rule to show first: source, last or oracle", metavar="RULE")
    about = "show this one, whatever chose the checkpoints; left out: that of each run"
    add("--metric", about, choices=tuple(METRICS))
    add("--figures", "also write each figure as SVG, PDF and PNG")


def run_report(chosen: argparse.Namespace) -> None:
    """Write one web page about a folder of runs: conclusion, tables, figures, how it was made.

    unseen report runs
    unseen report runs -o paper --rule last --figures
    unseen report runs --metric balanced             (every class counts the same)
    unseen report runs/tables/sweep-.../source       (a folder of tables: the runs it was made of)
    """
    from unseen.reports.page.write import write_report

    folder = chosen.output or chosen.runs / "report"
    say(write_report(chosen.runs, folder, chosen.rule, chosen.figures, chosen.metric))
