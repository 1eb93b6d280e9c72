"""The command line. Commands are imported when they are called: `--help` loads no torch."""

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from unseen.errors import UnseenError

COMMANDS = {
    "list": "what there is: methods, datasets, backbones, recipes, sweeps",
    "prepare": "check, decode and cache a dataset once",
    "train": "train a recipe, or resume a run",
    "evaluate": "measure a run again, or on other images",
    "predict": "classes of your images, with probabilities and the domains' opinions",
    "forecast": "how accurate a model will be on images without labels, and what is different",
    "export": "one file from a run, for onnxruntime or torch",
    "serve": "answers over HTTP, with a page to drop pictures on",
    "compare": "leave each domain out in turn, for every method and seed, and print the tables",
    "sweep": "many runs: domains, seeds and draws of hyper-parameters, here or on a cluster",
    "merge": "one model from many runs: their weights averaged",
    "report": "one web page from a folder of runs: tables, figures, how it was made",
    "show": "the complete settings of a recipe or a run",
}


def build_parser() -> argparse.ArgumentParser:
    """All commands with their options; each lives in its own file."""
    parser = argparse.ArgumentParser(
        prog="unseen",
        description="Image classifiers that hold up in domains they have never seen.",
        epilog="Settings are given as key=value, for example seed=3 method.overlap_weight=0.05.",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        module = importlib.import_module(f"unseen.cli.commands.{name}")
        command = commands.add_parser(
            name,
            help=summary,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.set_defaults(run_command=module.run)
    return parser


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """As `parse_args`, but key=value words may also stand after or between options."""
    parser = build_parser()
    chosen, rest = parser.parse_known_args(arguments)
    if rest and (not hasattr(chosen, "overrides") or any(word.startswith("-") for word in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        chosen.overrides = [*chosen.overrides, *rest]
    return chosen


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command; mistakes of the user's end with a message, not with a traceback."""
    chosen = parse(arguments)
    sys.path.append(str(Path.cwd()))  # import strings find modules of the user's own there
    try:
        _name_other_formats(chosen)
        sys.exit(chosen.run_command(chosen) or 0)
    except UnseenError as error:
        Console(stderr=True).print(
            f"unseen: {error}", markup=False, highlight=False, soft_wrap=True
        )
        sys.exit(getattr(error, "exit_code", 2))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)


def _name_other_formats(chosen: argparse.Namespace) -> None:
    """Say so where runs of another version lie in the folder that a command works in."""
    if not hasattr(chosen, "runs"):
        return
    from unseen.results.folder import about_other_formats

    if said := about_other_formats(chosen.runs):
        from unseen.training.devices import is_first_process

        console = Console(stderr=True, quiet=not is_first_process())
        console.print(said, markup=False, highlight=False, soft_wrap=True)
