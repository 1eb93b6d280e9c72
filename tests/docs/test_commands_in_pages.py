"""Every command and every piece of Python in the documentation fits the program as it is."""

import ast
import importlib
import importlib.util
import re
import sys
from pathlib import Path

import pytest
from tests.docs.markdown_files import FILES, ROOT, Command, blocks, commands, text_of

import unseen
from unseen.cli import main as cli
from unseen.cli.main import parse
from unseen.settings import catalog
from unseen.settings.experiment import Experiment
from unseen.settings.recipes import load_experiment, merge, parse_overrides, recipe_names
from unseen.sweeps.sweep_file import load_sweep, make_comparison

COMMANDS = [command for command in commands("unseen") if "[" not in " ".join(command.words)]


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_a_command_is_valid(command: Command) -> None:
    """Its options exist; so do its recipes, methods, datasets, domains and settings, whose values
    are checked as if it ran. Nothing is trained."""
    words = [word.replace("…", "...").partition("|")[0] for word in command.words[1:]]
    if len(words) == 1:  # a command's name in a sentence
        assert words[0] in {"--help", "--version", *cli.COMMANDS}
        return
    try:
        chosen = parse(words)
    except SystemExit:
        pytest.fail(f"{command} is refused by the command line")
    if not command.has_placeholders:
        _CHECKS.get(chosen.command, lambda _: None)(chosen)


def test_commands_are_found() -> None:
    assert len(COMMANDS) > 60


def test_makefile_targets_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", text_of(ROOT / "Makefile"), flags=re.MULTILINE))
    assert {command.words[1] for command in commands("make")} <= targets


@pytest.mark.parametrize("name", ["python", ".venv/bin/python"])
def test_scripts_exist(name: str) -> None:
    for command in commands(name):
        what = command.words[1]
        if what == "-m":
            assert importlib.util.find_spec(command.words[2]), str(command)
        elif what.endswith(".py"):
            assert (ROOT / what).is_file(), str(command)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_python_compiles_and_its_names_exist(file: Path) -> None:
    for code in blocks(file, "python"):
        tree = ast.parse(code)
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for name in node.names:
                    importlib.import_module(name.name)
            elif isinstance(node, ast.ImportFrom) and node.module:
                module = importlib.import_module(node.module)
                assert all(hasattr(module, name.name) for name in node.names), ast.unparse(node)
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "unseen":
                assert hasattr(unseen, node.attr), ast.unparse(node)


def test_names_of_modules_and_files_exist() -> None:
    """`unseen.results.folder`, `tests/devices`: what pages name is there."""
    made_up = re.compile(r"yours|unseen\.run$")  # a contributor's own file; a tag in MLflow
    missing = []
    for file in FILES:
        if file.name == "CHANGELOG.md":
            continue
        text = text_of(file)
        for name in re.findall(r"`((?:src|tests|benchmarks|examples|docs)/[\w/.]+)`", text):
            if not (ROOT / name).exists() and not made_up.search(name):
                missing.append(f"{file.name}: {name}")
        for name in re.findall(r"`(unseen(?:\.[a-z_]+)+)(?:\.[A-Z]\w*)?`", text):
            if not made_up.search(name) and not _is_module_or_name(name):
                missing.append(f"{file.name}: {name}")
    assert missing == []


def _is_module_or_name(dotted: str) -> bool:
    parent, _, name = dotted.rpartition(".")
    try:
        home = importlib.import_module(parent)
        return hasattr(home, name) or importlib.util.find_spec(dotted) is not None
    except ModuleNotFoundError:
        return False


def _train(chosen) -> None:
    overrides = parse_overrides(chosen.overrides)
    if Path(chosen.what).parts[0] == "runs":
        assert set(overrides) <= {"devices"}
    elif chosen.what.endswith(".yaml"):
        _check(load_experiment("digits/aggregate", overrides))
    else:
        _check(load_experiment(chosen.what, overrides))


def _compare(chosen) -> None:
    make_comparison(chosen.dataset, chosen.methods, chosen.seeds)
    names = catalog.METHODS if chosen.methods == "all" else chosen.methods.split(",")
    extra = parse_overrides(chosen.overrides)
    if chosen.backbone:
        extra = merge(extra, {"network": {"name": chosen.backbone}})
    for method in names:
        own = f"{chosen.dataset}/{method}"
        known = own in recipe_names()
        start = {} if known else {"method": {"name": method}}
        recipe = own if known else f"{chosen.dataset}/aggregate"
        held_out = {"data": {"unseen_domain": chosen.unseen or ["any"]}}
        load_experiment(recipe, merge(start, merge(held_out, extra)))


def _sweep(chosen) -> None:
    if not chosen.sweep.endswith(".yaml"):
        load_sweep(chosen.sweep, parse_overrides(chosen.overrides))


def _prepare(chosen) -> None:
    assert chosen.dataset in catalog.DATASETS


def _show(chosen) -> None:
    if Path(chosen.what).parts[0] != "runs":
        load_experiment(chosen.what, parse_overrides(chosen.overrides))


_CHECKS = {
    "train": _train,
    "compare": _compare,
    "sweep": _sweep,
    "prepare": _prepare,
    "show": _show,
}


def _check(experiment: Experiment) -> None:
    """Known names, where the settings themselves take any text."""
    kind = catalog.load("dataset", experiment.data.name)
    known = getattr(sys.modules[kind.__module__], "DOMAINS", None)
    if known is not None:
        assert set(experiment.data.unseen_domain) <= set(known)
        assert set(experiment.data.training_domains) <= set(known)
    if not re.match(r"timm:|\w+:", experiment.network.name):
        assert experiment.network.name in catalog.BACKBONES
