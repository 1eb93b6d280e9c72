"""Show the complete settings of a recipe or a run, as YAML; for a finished run, its result too.

unseen show pacs/dmg seed=3
unseen show runs/pacs-...
"""

import argparse
from itertools import takewhile
from pathlib import Path

import yaml
from rich.console import Console

from unseen.reports.terminal import rules_table, run_table
from unseen.results.folder import RunFolder
from unseen.settings.experiment import complete_settings
from unseen.settings.recipes import find_recipe, load_experiment, parse_overrides


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", metavar="RECIPE|RUN", help="a recipe's name or file, or a run folder"
    )
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings to change")


def run(chosen: argparse.Namespace) -> None:
    console = Console()
    path = Path(chosen.what)
    if path.is_dir():
        folder = RunFolder(path)
        _print_yaml(console, folder.read_settings())
        if folder.finished:
            result = folder.read_result()
            console.print(run_table(result, console.width))
            console.print(rules_table(result))
        return
    experiment = load_experiment(chosen.what, parse_overrides(chosen.overrides))
    comments = _leading_comments(find_recipe(chosen.what))
    if comments:
        console.print(comments, markup=False, highlight=False, soft_wrap=True)
    _print_yaml(console, complete_settings(experiment))


def _leading_comments(recipe: Path) -> str:
    lines = recipe.read_text(encoding="utf-8").splitlines()
    return "\n".join(takewhile(lambda line: line.startswith("#"), lines))


def _print_yaml(console: Console, settings: dict) -> None:
    text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
    console.print(text, markup=False, highlight=False, soft_wrap=True)
