"""The page of commands, from the command line's own parsers."""

import argparse
import re

from unseen.cli.main import build_parser

INTRODUCTION = """\
# Commands

Every command has a `--help`. Settings are written as `key=value` on the command line and as YAML in
recipes; `unseen show pacs/dmg` prints all of them, and [Settings](settings.md) explains them. All
mistakes are reported at once, each with the nearest valid name.

`make docs` generates this page from the commands' own help.
"""


def command_page() -> str:
    """One section for each command: what it does, examples, arguments."""
    parser = build_parser()
    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    sections = [_section(name, command) for name, command in commands.choices.items()]
    return "\n".join([INTRODUCTION, *sections])


def _section(name: str, command: argparse.ArgumentParser) -> str:
    text, examples = _split(command.description or "")
    arguments = [a for a in command._actions if not isinstance(a, argparse._HelpAction)]
    parts = [f"## unseen {name}", text]
    if examples:
        parts.append("```sh\n" + "\n".join(examples) + "\n```")
    rows = [_row(argument) for argument in arguments]
    parts.append("\n".join(["| argument | default | meaning |", "|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def _split(description: str) -> tuple[str, list[str]]:
    """The sentences of a command's description, and the example commands in it."""
    lines = [line.strip() for line in description.strip().splitlines()]
    examples = [line for line in lines if line.startswith("unseen ")]
    text = "\n".join(line for line in lines if line not in examples).strip()
    return re.sub(r"\n{3,}", "\n\n", text), examples


def _row(argument: argparse.Action) -> str:
    value = str(argument.metavar or argument.dest)
    if argument.choices:
        value = "|".join(map(str, argument.choices))
    if argument.option_strings:
        value = "" if argument.nargs == 0 else value if argument.choices else value.upper()
        value = f"{', '.join(argument.option_strings)} {value}".strip()
    cells = (f"`{value}`", _default(argument), argument.help or "")
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _default(argument: argparse.Action) -> str:
    if argument.required and argument.nargs != "*":
        return "required"
    return "" if argument.default in (None, "", False) else f"`{argument.default}`"
