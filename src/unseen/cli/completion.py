"""The command `completion`: names of commands, options and recipes as one types. No torch."""

import argparse
from collections.abc import Callable, Iterable

from unseen.cli.shared import say
from unseen.settings import catalog
from unseen.settings.recipes import RECIPES, file_names, recipe_names
from unseen.sweeps.sweep_file import sweep_names

SCRIPTS = {
    "bash": """\
_unseen() {
    local IFS=$'\\n'
    COMPREPLY=($(unseen completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _unseen unseen""",
    "zsh": """\
#compdef unseen
_unseen() {
    local -a found
    found=("${(@f)$(unseen completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n $found[1] ]]; then compadd -- $found; else _files; fi
}
compdef _unseen unseen""",
    "fish": """\
complete -c unseen -a \\
    "(unseen completion words -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)\"""",
}
"""Each asks `unseen completion words` what the last word may become; where there is no answer, the
shell offers files."""

_NAMES: dict[str, Callable[[], Iterable[str]]] = {
    "what": recipe_names,
    "dataset": lambda: {*file_names(RECIPES), *catalog.DATASETS},
    "sweep": sweep_names,
    "methods": lambda: catalog.METHODS,
    "backbone": lambda: catalog.BACKBONES,
}
"""What an argument may be, by its name."""


def add_completion(parser: argparse.ArgumentParser) -> None:
    about = "; words: what the last word may become"
    parser.add_argument("shell", choices=[*SCRIPTS, "words"], help=f"prints its script{about}")
    parser.add_argument("typed", nargs="*", metavar="WORD", help="what was typed after 'unseen'")


def run_completion(chosen: argparse.Namespace) -> None:
    """Let the shell complete commands, options, recipes, methods and datasets.

    Add its line to ~/.bashrc, ~/.zshrc or ~/.config/fish/config.fish:

    eval "$(unseen completion bash)"
    eval "$(unseen completion zsh)"
    unseen completion fish | source
    """
    found = candidates(chosen.typed) if chosen.shell == "words" else [SCRIPTS[chosen.shell]]
    for line in found:
        say(line)


def candidates(typed: list[str]) -> list[str]:
    """Return what the last of these words may become; of a list, its last part."""
    from unseen.cli.main import COMMANDS, build_parser

    *before, last = typed or [""]
    called = next((word for word in before if not word.startswith("-")), None)
    if called is None:
        return _beginning(last, [*COMMANDS, "--help", "--version"])
    if called not in COMMANDS:
        return []
    [commands] = build_parser(called)._subparsers._group_actions  # type: ignore[union-attr]
    actions = commands.choices[called]._actions  # type: ignore[index]
    options = {option: each for each in actions for option in each.option_strings}
    action = options.get(before[-1])
    if action is None or action.nargs == 0:
        if last.startswith("-"):
            return _beginning(last, options)
        action = next(each for each in actions if not each.option_strings)
    head, comma, tail = last.rpartition(",")
    names = action.choices or _NAMES.get(action.dest, tuple)()
    return [f"{head}{comma}{name}" for name in _beginning(tail, names)]


def _beginning(start: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(start))
