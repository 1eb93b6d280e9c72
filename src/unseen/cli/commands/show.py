"""Show the complete settings of a recipe or a run, as YAML; for a finished run, its result too.

unseen show pacs/dmg seed=3
unseen show pacs/dmg --save mine.yaml
unseen show runs/pacs-...
"""

import argparse
from pathlib import Path

import yaml
from rich.console import Console

from unseen.errors import UnseenError
from unseen.reports.terminal import rules_table, run_table
from unseen.results.folder import RunFolder
from unseen.settings.experiment import complete_settings
from unseen.settings.recipes import (
    about_recipe,
    load_experiment,
    merge,
    parse_overrides,
    read_recipe,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", metavar="RECIPE|RUN", help="a recipe's name or file, or a run folder"
    )
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings to change")
    parser.add_argument(
        "--save", type=Path, metavar="FILE", help="write a recipe to a file of your own, to edit"
    )


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
    overrides = parse_overrides(chosen.overrides)
    experiment = load_experiment(chosen.what, overrides)
    comments = "".join(f"# {line}".rstrip() + "\n" for line in about_recipe(path).splitlines())
    if chosen.save is not None:
        _save(chosen.save, comments, merge(read_recipe(chosen.what), overrides))
        console.print(
            f"Wrote {chosen.save}. Train it with: unseen train {chosen.save}", highlight=False
        )
        return
    console.print(comments, markup=False, highlight=False, soft_wrap=True, end="")
    _print_yaml(console, complete_settings(experiment))


def _save(file: Path, comments: str, settings: dict) -> None:
    if file.exists():
        raise UnseenError(f"{file} already exists; choose another name")
    if not file.parent.is_dir():
        raise UnseenError(f"there is no folder {file.parent}; create it first")
    text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
    file.write_text(comments + text, encoding="utf-8")


def _print_yaml(console: Console, settings: dict) -> None:
    text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
    console.print(text, markup=False, highlight=False, soft_wrap=True)
