"""What several commands share: how they speak, and arguments."""

import argparse
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.status import Status

from unseen.atomic import as_json


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


def add_output(
    parser: argparse.ArgumentParser, metavar: str, about: str, required: bool = False
) -> None:
    """Add where the command writes what it makes: a file or a folder."""
    names, text = ("-o", "--output"), f"write {about}"
    parser.add_argument(*names, type=Path, metavar=metavar, required=required, help=text)


def add_model(parser: argparse.ArgumentParser, images: bool = True) -> None:
    """Add the model that a command uses, the images it is used on, and the device."""
    kinds = "a run folder, a folder made by save_pretrained, or a file made by 'unseen export'"
    parser.add_argument("model", metavar="MODEL", type=Path, help=kinds)
    if images:
        more = "files, folders (with all below them) or patterns"
        parser.add_argument("images", metavar="IMAGES", nargs="+", help=more)
    parser.add_argument("--device", default="auto", help="auto (a GPU if there is one), cpu, cuda")


def add_settings(parser: argparse.ArgumentParser, about: str = "settings to change") -> None:
    parser.add_argument("overrides", nargs="*", metavar="key=value", help=about)


def add_recipe(parser: argparse.ArgumentParser) -> None:
    """Add a recipe or a run, and settings to change in it."""
    either = "a recipe's name or file, or a run folder"
    parser.add_argument("what", metavar="RECIPE|RUN", help=either)
    add_settings(parser)


def add_runs(parser: argparse.ArgumentParser) -> None:
    """Add where runs are kept, and which trackers get their records."""
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where runs are kept")
    trackers = "also send records to wandb, tensorboard or mlflow (separated by commas)"
    parser.add_argument("--log", default="", help=trackers)


def whole(smallest: int) -> Callable[[str], int]:
    """Return what reads an option as a whole number that is not smaller."""

    def read(text: str) -> int:
        if not text.removeprefix("-").isdecimal() or int(text) < smallest:
            raise argparse.ArgumentTypeError(f"should be {smallest} or more, got {text}")
        return int(text)

    return read
