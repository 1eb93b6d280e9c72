"""The page of commands, from the command line's own parsers."""

import argparse
import re

from unseen.cli.main import build_parser

INTRODUCTION = """\
# Commands

Every command explains itself with `--help`. Settings are `key=value` on the command line and YAML in recipes; `unseen show
pacs/dmg` prints all of them. Mistakes are reported all at once, each with the nearest valid name.

This page is generated from the command line itself by `make docs`.
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
    if argument.option_strings:
        value = argument.metavar or ("" if argument.nargs == 0 else argument.dest.upper())
        if argument.choices:
            value = "\\|".join(map(str, argument.choices))
        name = ", ".join(argument.option_strings) + (f" {value}" if value else "")
    else:
        name = str(argument.metavar or argument.dest).replace("|", "\\|")
        if argument.choices and not argument.metavar:
            name = "\\|".join(map(str, argument.choices))
    return f"| `{name}` | {_default(argument)} | {(argument.help or '').replace('|', chr(92) + '|')} |"


def _default(argument: argparse.Action) -> str:
    if not argument.option_strings:
        return "" if argument.nargs in ("*", "?") else "required"
    if argument.required:
        return "required"
    return "" if argument.default in (None, "", False) else f"`{argument.default}`"
