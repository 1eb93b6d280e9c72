"""Copy a recipe to a file of your own, to edit and train: unseen train FILE."""

import argparse
from pathlib import Path

import yaml
from rich.console import Console

from unseen.errors import UnseenError
from unseen.settings.recipes import read_recipe, recipe_header


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", metavar="RECIPE", help="a recipe's name (unseen list recipes)")
    parser.add_argument("file", metavar="FILE", type=Path, help="the file to write")


def run(chosen: argparse.Namespace) -> None:
    settings = read_recipe(chosen.recipe)
    file: Path = chosen.file
    if file.exists():
        raise UnseenError(f"{file} already exists; choose another name")
    if not file.parent.is_dir():
        raise UnseenError(f"there is no folder {file.parent}; create it first")
    header = f"# {recipe_header(chosen.recipe)} (copied from {chosen.recipe})\n"
    file.write_text(header + yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    Console().print(f"Wrote {file}. Train it with: unseen train {file}", highlight=False)
