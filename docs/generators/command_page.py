"""The page of commands, from the command line's own parsers."""

import argparse
import re
from collections import Counter

from unseen.cli.main import build_parser

INTRODUCTION = """\
# Commands

Settings are written as `key=value`; `unseen show pacs/dmg` prints all of them, and
[Settings](settings.md) explains them. All mistakes are reported at once, each with the nearest
valid name.

Results go to standard output; progress, notes and the next command to standard error. Every command
has `--help`, `-q` (results and errors only) and `-v` (tracebacks, versions, times); most have
`--json`.

| exit code | meaning |
|---:|---|
| 0 | done |
| 1 | done, except for what the messages name: unreadable images, failed runs, `--strict` |
| 2 | not done: a mistake in the command, the settings or the data |
| 130, 143 | ended by Ctrl-C or SIGTERM; the same command continues |
"""
SHARED = ("--help", "--json", "--quiet", "--verbose")
"""Options that the introduction explains."""


def command_page() -> str:
    """One section for each command: what it does, examples, arguments; what several commands have
    in common stands once, before them."""
    (commands,) = (a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    rows = {name: _rows(command) for name, command in commands.choices.items()}
    uses = Counter(row for each in rows.values() for row in each)
    common = [row for row in uses if uses[row] > 1]
    users = {row: ", ".join(name for name in rows if row in rows[name]) for row in common}
    table = [f"| {row} | {users[row]} |" for row in common]
    head = "| argument | meaning | of |\n|---|---|---|"
    sections = ["\n".join(["## Arguments of several commands", "", head, *table, ""])]
    for name, command in commands.choices.items():
        own = [f"| {row} |" for row in rows[name] if row not in common]
        sections.append(_section(name, command.description or "", own))
    return "\n".join([INTRODUCTION, *sections])


def _section(name: str, description: str, rows: list[str]) -> str:
    lines = [line.strip() for line in description.strip().splitlines()]
    examples = [line for line in lines if re.match(r'(\w+=\S+ |eval "\$\()?unseen ', line)]
    text = "\n".join(line for line in lines if line not in examples).strip()
    parts = [f"## unseen {name}", re.sub(r"\n{3,}", "\n\n", text)]
    if examples:
        parts.append("```sh\n" + "\n".join(examples) + "\n```")
    if rows:
        parts.append("\n".join(["| argument | meaning |", "|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def _rows(command: argparse.ArgumentParser) -> list[str]:
    return [_row(a) for a in command._actions if not {*a.option_strings} & {*SHARED}]


def _row(argument: argparse.Action) -> str:
    value = str(argument.metavar or argument.dest)
    if argument.choices:
        value = "|".join(map(str, argument.choices))
    if argument.option_strings:
        value = "" if argument.nargs == 0 else value if argument.choices else value.upper()
        value = f"{', '.join(argument.option_strings)} {value}".strip()
    about = argument.help or ""
    if argument.option_strings and argument.required:
        about += " (required)"
    elif argument.default not in (None, "", False, []):
        about += f" (default: `{argument.default}`)"
    return f"`{value}` | {about}".replace("|", "\\|").replace("` \\| ", "` | ", 1)
