"""List what is available: methods, datasets, backbones, recipes or sweeps."""

import argparse

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from unseen.settings import catalog
from unseen.settings.recipes import about_recipe, recipe_names
from unseen.sweeps.draws import find_sweep, sweep_names

KINDS = ("methods", "datasets", "backbones", "recipes", "sweeps")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=KINDS)


def run(chosen: argparse.Namespace) -> None:
    if chosen.kind == "recipes":
        rows = {name: about_recipe(name).partition("\n")[0] for name in recipe_names()}
    elif chosen.kind == "sweeps":
        rows = {n: about_recipe(find_sweep(n)).partition("\n")[0] for n in sweep_names()}
    else:
        entries = getattr(catalog, chosen.kind.upper())
        rows = {name: entry.description for name, entry in entries.items()}
    if chosen.kind == "methods":
        rows |= {name: f"another name of {method}" for name, method in catalog.ALIASES.items()}
    if chosen.kind == "backbones":
        rows["timm:NAME"] = "any timm network, by its timm name"
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, description in rows.items():
        table.add_row(name, escape(description))
    Console().print(table)
