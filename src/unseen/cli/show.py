"""The commands `list`, `show` and `completion`: what there is, settings, and names as one types.
No torch."""

import argparse
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path

import yaml
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from unseen.atomic import read_json
from unseen.cli.shared import Add, add_recipe, next_step, say, say_json
from unseen.errors import UnseenError
from unseen.settings import catalog, recipes
from unseen.settings.experiment import complete_settings
from unseen.settings.recipes import RECIPES, about_recipe, file_names, recipe_names
from unseen.sweeps.sweep_file import find_sweep, sweep_names


def add_list(add: Add) -> None:
    add("kind", "what to list", choices=("methods", "datasets", "backbones", "recipes", "sweeps"))


def run_list(chosen: argparse.Namespace) -> None:
    """List what is available: methods, datasets, backbones, recipes or sweeps."""
    if chosen.kind == "recipes":
        rows = {name: about_recipe(name).partition("\n")[0] for name in recipe_names()}
    elif chosen.kind == "sweeps":
        rows = {n: about_recipe(find_sweep(n)).partition("\n")[0] for n in sweep_names()}
    else:
        entries = catalog.entries(chosen.kind.removesuffix("s"))
        rows = {name: entry.description for name, entry in entries.items()}
    if chosen.kind == "methods":
        rows |= {name: f"another name of {method}" for name, method in catalog.ALIASES.items()}
    if chosen.kind == "backbones":
        rows["timm:NAME"] = "any timm network, by its timm name"
    if chosen.json:
        say_json(rows)
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, description in rows.items():
        table.add_row(name, escape(description))
    Console().print(table)


def add_show(add: Add) -> None:
    add_recipe(add)
    add("--save", "write a recipe to a file of your own, to edit", type=Path, metavar="FILE")


def run_show(chosen: argparse.Namespace) -> None:
    """Show the complete settings of a recipe or a run, as YAML; for a finished run, its result too.

    unseen show pacs/dmg seed=3
    unseen show pacs/dmg --save mine.yaml
    unseen show runs/pacs-...
    """
    console = Console()
    path = Path(chosen.what)
    if path.is_dir():
        from unseen.reports.terminal import show_rules, show_run
        from unseen.results.folder import RunFolder

        folder = RunFolder(path)
        if chosen.json:
            result = read_json(folder.result) if folder.finished else None
            say_json({"settings": folder.read_settings(), "result": result})
            return
        say(_as_yaml(folder.read_settings()))
        if folder.finished:
            result = folder.read_result()
            show_run(result, console)
            show_rules(result, console)
        return
    overrides = recipes.parse_overrides(chosen.overrides)
    experiment = recipes.load_experiment(chosen.what, overrides)
    comments = "".join(f"# {line}".rstrip() + "\n" for line in about_recipe(path).splitlines())
    if chosen.save is not None:
        _save(chosen.save, comments, recipes.merge(recipes.read_recipe(chosen.what), overrides))
        say(f"Wrote {chosen.save}")
        next_step(f"unseen train {shlex.quote(str(chosen.save))}")
        return
    if chosen.json:
        say_json({"settings": complete_settings(experiment)})
        return
    say(comments, end="")
    say(_as_yaml(complete_settings(experiment)))


def _save(file: Path, comments: str, settings: dict) -> None:
    if file.exists():
        raise UnseenError(f"{file} already exists; choose another name")
    if not file.parent.is_dir():
        raise UnseenError(f"there is no folder {file.parent}; create it first")
    file.write_text(comments + _as_yaml(settings), encoding="utf-8")


def _as_yaml(settings: dict) -> str:
    return yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)


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


def add_completion(add: Add) -> None:
    about = "prints its script; words: what the last word may become"
    add("shell", about, choices=[*SCRIPTS, "words"])
    add("typed", "what was typed after 'unseen'", nargs="*", metavar="WORD")


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
