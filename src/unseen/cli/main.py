"""The command line. Only the command that was called is imported: `--help` loads no torch."""

import argparse
import importlib
import inspect
import os
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from unseen import __version__
from unseen.cli.shared import adder, say
from unseen.errors import UnseenError, unknown_name
from unseen.optional import training_packages

COMMANDS = {
    "list": ("show", "what there is: methods, datasets, backbones, recipes, sweeps"),
    "prepare": ("prepare", "check, decode and cache a dataset once"),
    "auto": ("train", "the best model for your images within some minutes, and what to expect"),
    "train": ("train", "train a recipe, or resume a run"),
    "evaluate": ("model", "measure a run again, or on other images"),
    "predict": ("model", "classes of your images, with probabilities and the domains' opinions"),
    "forecast": ("model", "how accurate a model will be on images without labels"),
    "export": ("model", "one file from a run, for onnxruntime or torch"),
    "serve": ("model", "predictions over HTTP, and a page to drop images on"),
    "compare": ("sweep", "leave each domain out in turn, for every method and seed: tables"),
    "sweep": ("sweep", "many runs: domains, seeds, draws of settings, here or on a cluster"),
    "merge": ("train", "one model from many runs: their weights averaged"),
    "report": ("train", "one web page from a folder of runs: tables, figures, how it was made"),
    "show": ("show", "the complete settings of a recipe or a run"),
    "completion": ("show", "names of commands, options and recipes as you type"),
}
"""The file of each command, which has `add_COMMAND(add)` and `run_COMMAND(chosen)`, and what the
command is for."""

OPENING = ("train", "evaluate", "predict", "forecast", "export", "serve", "merge", "report")
"""Commands that open what may come from anywhere: they import nothing but what is installed, and
the modules that the user trusts. To train a recipe is to trust it; to go on with a run is not."""
VOLUME = {
    "-q --quiet": "print results and errors, nothing else",
    "-v --verbose": "also print the traceback of an error, versions, and the time it took",
}
WITH_JSON = ("list", "show", "compare", "sweep", "evaluate", "forecast", "auto", "prepare")
"""Commands that print all they have to say as JSON, if asked to."""


class _Form(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """Texts stand as they are written, and options have their defaults, but for those that are off
    or empty."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        empty = action.default in (None, False, "", []) or not action.option_strings
        return action.help if empty else super()._get_help_string(action)


def build_parser(called: str | None = None) -> argparse.ArgumentParser:
    """All commands, with the options of the one that is called; without one, of all of them."""
    parser = argparse.ArgumentParser(
        prog="unseen",
        description="Image classifiers that hold up in domains they have never seen.",
        epilog="Settings are given as key=value, for example seed=3 method.overlap_weight=0.05.",
    )
    parser.add_argument("-V", "--version", action="version", version=f"unseen {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (file, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, formatter_class=_Form)
        if called in (None, name):
            module, add = importlib.import_module(f"unseen.cli.{file}"), adder(command)
            run = getattr(module, f"run_{name}")
            getattr(module, f"add_{name}")(add)
            if name in OPENING:
                about = "may be imported, also from this folder, if settings of a run name it"
                add("--trust-imports", about, action="append", metavar="MODULE")
            if name in WITH_JSON:
                add("--json", "print JSON, not text")
            for option, about in VOLUME.items():
                add(option, about)
            command.description = inspect.getdoc(run)
            command.set_defaults(run_command=run)
    return parser


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """As `parse_args`, but key=value words may also stand after or between options."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments in ([], ["list"], ["completion"]):
        arguments.append("--help")
    called = next((word for word in arguments if not word.startswith("-")), "")
    parser = build_parser(called)
    if called and called not in COMMANDS:
        parser.error(unknown_name("command", called, COMMANDS, "unseen --help"))
    chosen, rest = parser.parse_known_args(arguments)
    if rest and (not hasattr(chosen, "overrides") or any(word.startswith("-") for word in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        chosen.overrides = [*chosen.overrides, *rest]
    return chosen


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command; mistakes of the user's end with a message, not with a traceback."""
    chosen, started = parse(arguments), time.monotonic()
    aside = Console(stderr=True)
    try:
        with (
            Path(os.devnull).open("w") as nowhere,
            redirect_stderr(nowhere if chosen.quiet else sys.stderr),
        ):
            _find_own_modules(chosen)
            _name_other_formats(chosen)
            with training_packages():
                code = chosen.run_command(chosen) or 0
    except UnseenError as error:
        if chosen.verbose:
            aside.print_exception()
        say(f"unseen: {error}", aside)
        code = getattr(error, "exit_code", 2)
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    if chosen.verbose:
        torch = sys.modules.get("torch")
        versions = f"unseen {__version__}, Python {sys.version.split()[0]}"
        versions += f", torch {torch.__version__}" if torch else ""
        say(f"{versions}; {time.monotonic() - started:.1f} s, exit code {code}", aside)
    sys.exit(code)


def _find_own_modules(chosen: argparse.Namespace) -> None:
    """Let import strings and entry points find modules of the user's own in this folder, where they
    are trusted, and only there: `python -m unseen` looks for modules in it first."""
    here, trusted = str(Path.cwd()), getattr(chosen, "trust_imports", None)
    opens = chosen.command in OPENING and (chosen.command != "train" or Path(chosen.what).is_dir())
    sys.path[:] = [entry for entry in sys.path if entry not in ("", here)]
    if trusted or not opens:
        sys.path.append(here)
    if trusted:
        from unseen.settings.catalog import trust_imports

        trust_imports(*trusted)


def _name_other_formats(chosen: argparse.Namespace) -> None:
    """Say so where runs of another version lie in the folder that a command works in."""
    if not hasattr(chosen, "runs"):
        return
    from unseen.results.folder import about_other_formats

    if said := about_other_formats(chosen.runs):
        from unseen.training.devices import is_first_process

        say(said, Console(stderr=True, quiet=not is_first_process()))
