"""Every command and every piece of Python in the documentation fits the program as it is."""

import ast
import importlib
import importlib.util
import re
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from tests.docs.markdown_files import FILES, ROOT, Command, blocks, commands, name_of, text_of

import unseen
from unseen.cli import main as cli
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
        chosen = cli.parse(words)
    except SystemExit:
        pytest.fail(f"{command} is refused by the command line")
    if not command.has_placeholders:
        check_settings(chosen)


def test_commands_targets_and_scripts_are_found() -> None:
    assert len(COMMANDS) > 60
    targets = set(re.findall(r"^([\w-]+):", text_of(ROOT / "Makefile"), flags=re.MULTILINE))
    assert {command.words[1] for command in commands("make")} <= targets
    for command in [*commands("python"), *commands(".venv/bin/python")]:
        what = command.words[1]
        if what == "-m":
            assert importlib.util.find_spec(command.words[2]), str(command)
        elif what.endswith(".py"):
            assert (ROOT / what).is_file(), str(command)


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_python_compiles_and_its_names_exist(file: Path) -> None:
    for code in blocks(file, "python"):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Import):
                assert all(importlib.util.find_spec(name.name) for name in node.names)
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
        text = "" if file.name == "CHANGELOG.md" else text_of(file)
        paths = re.findall(r"`((?:src|tests|benchmarks|examples|docs)/[\w/.]+)`", text)
        missing += [(file.name, path) for path in paths if not (ROOT / path).exists()]
        dotted = re.findall(r"`(unseen(?:\.[a-z_]+)+)(?:\.[A-Z]\w*)?`", text)
        missing += [(file.name, name) for name in dotted if not is_module_or_name(name)]
    assert [(file, name) for file, name in missing if not made_up.search(name)] == []


def is_module_or_name(dotted: str) -> bool:
    parent, _, name = dotted.rpartition(".")
    try:
        home = importlib.import_module(parent)
        return hasattr(home, name) or importlib.util.find_spec(dotted) is not None
    except ModuleNotFoundError:
        return False


def check_settings(chosen: Namespace) -> None:
    overrides = parse_overrides(getattr(chosen, "overrides", []))
    match chosen.command:
        case "train" if Path(chosen.what).parts[0] == "runs":
            assert set(overrides) <= {"devices"}
        case "train":
            own = chosen.what.endswith(".yaml")
            check(load_experiment("digits/aggregate" if own else chosen.what, overrides))
        case "show" if Path(chosen.what).parts[0] != "runs":
            load_experiment(chosen.what, overrides)
        case "compare":
            check_compare(chosen, overrides)
        case "sweep" if not chosen.sweep.endswith(".yaml"):
            load_sweep(chosen.sweep, overrides)
        case "prepare":
            assert chosen.dataset in catalog.DATASETS


def check_compare(chosen: Namespace, extra: dict[str, Any]) -> None:
    make_comparison(chosen.dataset, chosen.methods, chosen.seeds)
    if chosen.backbone:
        extra = merge(extra, {"network": {"name": chosen.backbone}})
    names = catalog.METHODS if chosen.methods == "all" else chosen.methods.split(",")
    for method in names:
        known = f"{chosen.dataset}/{method}" in recipe_names()
        start = {} if known else {"method": {"name": method}}
        left_out = {"data": {"unseen_domain": chosen.unseen or ["any"]}}
        recipe = f"{chosen.dataset}/{method if known else 'aggregate'}"
        load_experiment(recipe, merge(start, merge(left_out, extra)))


def check(experiment: Experiment) -> None:
    """Known names, where the settings themselves take any text."""
    kind = catalog.load("dataset", experiment.data.name)
    known = getattr(sys.modules[kind.__module__], "DOMAINS", None)
    if known is not None:
        domains = {*experiment.data.unseen_domain, *experiment.data.training_domains}
        assert domains <= set(known)
    if not re.match(r"timm:|\w+:", experiment.network.name):
        assert experiment.network.name in catalog.BACKBONES
