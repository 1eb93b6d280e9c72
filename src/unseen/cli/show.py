"""The commands `list` and `show`: what there is, and settings. No torch."""

import argparse
import shlex
from pathlib import Path

import yaml
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from unseen.atomic import read_json
from unseen.cli.shared import add_recipe, next_step, say, say_json
from unseen.errors import UnseenError
from unseen.settings import catalog
from unseen.settings.experiment import complete_settings
from unseen.settings.recipes import (
    about_recipe,
    load_experiment,
    merge,
    parse_overrides,
    read_recipe,
    recipe_names,
)
from unseen.sweeps.sweep_file import find_sweep, sweep_names


def add_list(parser: argparse.ArgumentParser) -> None:
    kinds = ("methods", "datasets", "backbones", "recipes", "sweeps")
    parser.add_argument("kind", choices=kinds, help="what to list")


def run_list(chosen: argparse.Namespace) -> None:
    """List what is available: methods, datasets, backbones, recipes or sweeps."""
    if chosen.kind == "recipes":
        rows = {name: about_recipe(name).partition("\n")[0] for name in recipe_names()}
    elif chosen.kind == "sweeps":
        rows = {n: about_recipe(find_sweep(n)).partition("\n")[0] for n in sweep_names()}
    else:
        entries = catalog.entries(chosen.kind.removesuffix("s"))
        rows = {name: entry.description for name, entry in entries.items()}
    if chosen.kind == "methods":
        rows |= {name: f"another name of {method}" for name, method in catalog.ALIASES.items()}
    if chosen.kind == "backbones":
        rows["timm:NAME"] = "any timm network, by its timm name"
    if chosen.json:
        say_json(rows)
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, description in rows.items():
        table.add_row(name, escape(description))
    Console().print(table)


def add_show(parser: argparse.ArgumentParser) -> None:
    add_recipe(parser)
    parser.add_argument(
        "--save", type=Path, metavar="FILE", help="write a recipe to a file of your own, to edit"
    )


def run_show(chosen: argparse.Namespace) -> None:
    """Show the complete settings of a recipe or a run, as YAML; for a finished run, its result too.

    unseen show pacs/dmg seed=3
    unseen show pacs/dmg --save mine.yaml
    unseen show runs/pacs-...
    """
    console = Console()
    path = Path(chosen.what)
    if path.is_dir():
        from unseen.reports.terminal import show_rules, show_run
        from unseen.results.folder import RunFolder

        folder = RunFolder(path)
        if chosen.json:
            result = read_json(folder.result) if folder.finished else None
            say_json({"settings": folder.read_settings(), "result": result})
            return
        say(_as_yaml(folder.read_settings()))
        if folder.finished:
            result = folder.read_result()
            show_run(result, console)
            show_rules(result, console)
        return
    overrides = parse_overrides(chosen.overrides)
    experiment = load_experiment(chosen.what, overrides)
    comments = "".join(f"# {line}".rstrip() + "\n" for line in about_recipe(path).splitlines())
    if chosen.save is not None:
        _save(chosen.save, comments, merge(read_recipe(chosen.what), overrides))
        say(f"Wrote {chosen.save}")
        next_step(f"unseen train {shlex.quote(str(chosen.save))}")
        return
    if chosen.json:
        say_json({"settings": complete_settings(experiment)})
        return
    say(comments, end="")
    say(_as_yaml(complete_settings(experiment)))


def _save(file: Path, comments: str, settings: dict) -> None:
    if file.exists():
        raise UnseenError(f"{file} already exists; choose another name")
    if not file.parent.is_dir():
        raise UnseenError(f"there is no folder {file.parent}; create it first")
    file.write_text(comments + _as_yaml(settings), encoding="utf-8")


def _as_yaml(settings: dict) -> str:
    return yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
