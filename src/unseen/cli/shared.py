"""What several commands share: how they speak, and arguments."""

import argparse
import contextlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.status import Status

from unseen.atomic import as_json

Add = Callable[..., None]
"""`add(names, help, **how)` adds an argument to a command; an option of which nothing else is said
is a switch."""
RUNS_OF_DOMAINS = "runs that left out each training domain in turn: better forecasts (needs torch)"
ADDRESS = "of a running Ray cluster; left out: this machine"


def adder(parser: argparse.ArgumentParser) -> Add:
    """Return what adds arguments to this command."""

    def add(names: str, about: str, **how: Any) -> None:
        switch = {"action": "store_true"} if names.startswith("-") and not how else {}
        parser.add_argument(*names.split(), help=about, **switch, **how)

    return add


def add_model(add: Add, images: bool = True) -> None:
    """Add the model that a command uses, the images it is used on, and the device."""
    kinds = "a run folder, a folder made by save_pretrained, or a file made by 'unseen export'"
    add("model", kinds, metavar="MODEL", type=Path)
    if images:
        more = "files, folders (with all below them) or patterns"
        add("images", more, metavar="IMAGES", nargs="+")
    add("--device", "auto (a GPU if there is one), cpu, cuda", default="auto")


def add_settings(add: Add, about: str = "settings to change") -> None:
    add("overrides", about, nargs="*", metavar="key=value")


def add_recipe(add: Add) -> None:
    """Add a recipe or a run, and settings to change in it."""
    add("what", "a recipe's name or file, or a run folder", metavar="RECIPE|RUN")
    add_settings(add)


def add_runs(add: Add) -> None:
    """Add where runs are kept, and which trackers get their records."""
    add("--runs", "where runs are kept", type=Path, default=Path("runs"))
    trackers = "also send records to wandb, tensorboard or mlflow (separated by commas)"
    add("--log", trackers, default="")


def at_least(smallest: float) -> Callable[[str], float]:
    """Return what reads an option as a number of the same kind that is not smaller."""

    def read(text: str) -> float:
        with contextlib.suppress(ValueError):
            if smallest <= (found := type(smallest)(text)) < math.inf:
                return found
        raise argparse.ArgumentTypeError(f"should be {smallest} or more, got {text}")

    return read


def say(text: object, console: Console | None = None, end: str = "\n") -> None:
    """Print a text as it is, on lines as long as they are; to the standard output, if no console is
    given."""
    console = console or Console()
    console.print(str(text), markup=False, highlight=False, soft_wrap=True, end=end)


def say_json(content: object) -> None:
    """Print JSON on the standard output; whatever else there is to say goes to the other one."""
    say(as_json(content))


def next_step(*commands: str) -> None:
    """Say beside the results what to do with them: commands with real paths."""
    for number, command in enumerate(commands):
        say(f"{'      ' if number else 'Next: '}{command}", Console(stderr=True))


def loading() -> Status:
    """A sign of life in a terminal while packages and a model are loaded."""
    return Console(stderr=True).status("starting")
