"""The page of commands, from the command line's own parsers."""

import argparse
import re

from unseen.cli.main import build_parser

INTRODUCTION = """\
# Commands

Every command has a `--help`. Settings are written as `key=value` on the command line and as YAML in
recipes; `unseen show pacs/dmg` prints all of them, and [Settings](settings.md) explains them. All
mistakes are reported at once, each with the nearest valid name.

Results go to the standard output, everything else to the standard error: progress, notes, the next
command. `--json` prints the results as JSON; `-q` prints results and errors alone; `-v` adds
tracebacks, versions and times; `-o` says where a command writes what it makes.

| exit code | meaning |
|---:|---|
| 0 | done |
| 1 | done, but for what the messages name: unreadable images, runs that failed, `--strict` |
| 2 | not done: a mistake in the command, in settings or in data, which the message names |
| 130 | ended by Ctrl-C; the same command continues |
| 143 | ended by SIGTERM; the same command continues |

Shells complete commands, options, recipes and methods: see [completion](#unseen-completion).

`make docs` generates this page from the commands' own help.
"""
SHARED = ("--help", "--json", "--quiet", "--verbose")
"""Options that the introduction explains."""


def command_page() -> str:
    """One section for each command: what it does, examples, arguments."""
    parser = build_parser()
    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    sections = [_section(name, command) for name, command in commands.choices.items()]
    return "\n".join([INTRODUCTION, *sections])


def _section(name: str, command: argparse.ArgumentParser) -> str:
    text, examples = _split(command.description or "")
    arguments = [a for a in command._actions if not {*a.option_strings} & {*SHARED}]
    parts = [f"## unseen {name}", text]
    if examples:
        parts.append("```sh\n" + "\n".join(examples) + "\n```")
    rows = [_row(argument) for argument in arguments]
    parts.append("\n".join(["| argument | default | meaning |", "|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def _split(description: str) -> tuple[str, list[str]]:
    """The sentences of a command's description, and the example commands in it."""
    lines = [line.strip() for line in description.strip().splitlines()]
    examples = [line for line in lines if re.match(r'(eval "\$\()?unseen ', line)]
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
    return "" if argument.default in (None, "", False, []) else f"`{argument.default}`"
