"""The command line: what it lists and shows, and how it speaks of mistakes."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.commands import commands_in
from tests.docs.markdown_files import ROOT
from tests.tiny import TINY

from unseen import __version__
from unseen.cli import show
from unseen.cli.main import COMMANDS, parse
from unseen.results.folder import RunFolder
from unseen.settings import catalog
from unseen.settings.experiment import complete_settings
from unseen.settings.recipes import load_experiment, recipe_names
from unseen.sweeps.sweep_file import sweep_names


@pytest.fixture
def unseen(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Run a command in an empty folder."""
    return commands_in(tmp_path, capsys, monkeypatch)


def test_version_and_help(unseen) -> None:
    """One version, in the package and in the list of changes; the latest is not yet released."""
    assert unseen("--version").out == f"unseen {__version__}\n"
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first = re.search(r"^## (?:Unreleased \()?([\d.]+)", changes, flags=re.MULTILINE)
    assert first is not None
    assert __version__.removesuffix(".dev0") == f"{first[1]}.0"
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == __version__
    assert unseen().out == unseen("--help").out
    assert unseen("list").out == unseen("list", "--help").out


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["tr"], ["train"]),
        (["train", "digits/dm"], ["digits/dmg"]),
        (["compare", "digits", "--methods", "aggregate,dm"], ["aggregate,dmg"]),
        (["train", "digits/dmg", "--re"], ["--resume"]),
        (["compare", "digi"], ["digits", "digits_5"]),
        (["sweep", "pacs_m"], ["pacs_masks"]),
        (["list", "rec"], ["recipes"]),
        (["nothing", ""], []),
    ],
)
def test_completion(unseen, typed: list[str], expected: list[str]) -> None:
    assert unseen("completion", "words", "--", *typed).out.split() == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_take_their_script(unseen, shell: str, tmp_path: Path) -> None:
    script = unseen("completion", shell).out
    assert "unseen completion words" in script
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=script, text=True, check=True)


def test_json_is_all_there_is_on_the_standard_output(unseen, tmp_path: Path) -> None:
    assert json.loads(unseen("list", "methods", "--json").out)["dmg"]
    shown = json.loads(unseen("show", "digits/dmg", "seed=3", "--json").out)
    assert shown["settings"] == complete_settings(load_experiment("digits/dmg", {"seed": 3}))
    settings = [f"{key}={value}" for key, value in TINY.items() if key != "data.unseen_domain"]
    words = ("compare", "digits", "--methods", "aggregate", "--unseen", "plain", *settings)
    answer = unseen(*words, "--json", "--workers", "0")
    assert answer.code == 0
    found = json.loads(answer.out)
    (run,), home = found["runs"], found["home"]
    own = [each for each in found["tables"][0]["numbers"] if each["method"] == "aggregate"]
    numbers = {each["column"]: each["mean"] for each in own}
    assert set(numbers) == {"plain", "overall"}
    assert f"Next: unseen report {home}/source\n" in answer.err
    measured = json.loads(unseen("evaluate", run, "--json", "-q").out)["measured"]
    (unseen_domain,) = (each for each in measured if each["view"] == "out_of_domain")
    assert 100 * unseen_domain["accuracy"] == pytest.approx(numbers["plain"])
    assert json.loads(unseen("show", run, "--json").out)["result"]["seed"] == 0


def test_quiet_and_verbose(unseen) -> None:
    settings = [f"{key}={value}" for key, value in TINY.items()]
    quiet = unseen("train", "digits/dmg", *settings, "-q")
    assert (quiet.code, quiet.err) == (0, "")
    assert "out of domain" in quiet.out
    verbose = unseen("train", "digits/dgm", "-v")
    assert verbose.code == 2
    assert "Traceback" in verbose.err
    assert re.search(rf"unseen {__version__}, Python .* s, exit code 2$", verbose.err.strip())


def test_interrupted_commands_end_with_the_code_of_shells(unseen, monkeypatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(show, "run_list", interrupted)
    assert unseen("list", "methods").code == 130


CATALOG = {"methods": catalog.METHODS, "datasets": catalog.DATASETS, "backbones": catalog.BACKBONES}
NAMED = {
    "--help": {name: summary for name, (_, summary) in COMMANDS.items()},
    **{f"list {k}": {n: e.description for n, e in own.items()} for k, own in CATALOG.items()},
    "list recipes": dict.fromkeys(recipe_names(), ""),
    "list sweeps": dict.fromkeys(sweep_names(), ""),
}


@pytest.mark.parametrize("words", NAMED)
def test_help_and_lists_name_all_there_is(unseen, words: str) -> None:
    answer = unseen(*words.split())
    assert answer.code == 0
    for name, about in NAMED[words].items():
        assert re.search(rf"^ *{re.escape(name)} +{re.escape(about)}", answer.out, re.MULTILINE)


def test_show_gives_complete_settings_that_are_a_recipe_again(unseen, tmp_path: Path) -> None:
    answer = unseen("show", "digits/dmg", "seed=3", "data.unseen_domain=plain,blended")
    expected = load_experiment("digits/dmg", {"seed": 3, "data.unseen_domain": "plain,blended"})
    assert yaml.safe_load(answer.out) == complete_settings(expected)
    file = tmp_path / "again.yaml"
    file.write_text(answer.out)
    assert complete_settings(load_experiment(file)) == complete_settings(expected)


def test_show_an_unfinished_run(unseen, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create(load_experiment("digits/dmg", {"seed": 4}))
    answer = unseen("show", "run")
    assert answer.code == 0
    assert yaml.safe_load(answer.out)["seed"] == 4


def test_a_saved_recipe_has_the_same_settings(unseen, tmp_path: Path) -> None:
    answer = unseen("show", "digits/dmg", "seed=3", "--save", "mine.yaml")
    assert (answer.code, "Next: unseen train mine.yaml\n" in answer.err) == (0, True)
    file = tmp_path / "mine.yaml"
    assert file.read_text().startswith("# ")
    expected = complete_settings(load_experiment("digits/dmg", {"seed": 3}))
    assert complete_settings(load_experiment(file)) == {**expected, "recipe": "mine"}
    file.write_text("mine")
    answer = unseen("show", "digits/dmg", "--save", "mine.yaml")
    assert answer.code == 2
    assert "mine.yaml already exists; choose another name" in answer.err
    assert file.read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train digits/dmgg", "unknown recipe 'digits/dmgg'; did you mean 'digits/dmg'?"),
        ("train mine.yaml", "there is no file mine.yaml"),
        ("train digits/dmg method.overlap=1", "method.overlap: unknown key; did you mean"),
        ("train digits/dmg seed", "'seed' is not an override; write key=value, as in seed=3"),
        ("train empty", "empty is not a run folder"),
        ("train begun seed=3", "keeps the settings that decide its result; leave out 'seed'"),
        ("train digits/dmg data.unseen_domain=sketch steps=1", "unknown domain 'sketch'"),
        ("show empty", "empty is not a run folder"),
        ("show digits/dgm", "unknown recipe 'digits/dgm'; did you mean 'digits/dmg'?"),
        ("evaluate nowhere", "nowhere is not a run folder"),
        ("evaluate begun", "not finished; resume it with: unseen train begun"),
        ("compare digit", "unknown dataset 'digit'; did you mean 'digits'?"),
        ("compare digits --methods dgm", "did you mean 'digits/dmg'?"),
        ("sweep digits methods=dgm", "did you mean 'digits/dmg'?"),
        ("compare pacs_resnet50 --methods agregate_views", "'pacs_resnet50/aggregate_views'?"),
        ("compare digits --methods ,", "methods: Tuple should have at least 1 item"),
        ("compare digits --seeds one", "seeds are numbers such as 0,1,2 or 0-4, got 'one'"),
        ("compare digits --unseen photo", "unknown domain 'photo'"),
        ("compare digits --seeds 0 stps=3", "stps: unknown key; did you mean 'steps'?"),
        ("show digits/dmg --save missing/mine.yaml", "there is no folder missing"),
        ("prepare pacs --root empty", "empty"),
        ("trian", "unknown command 'trian'; did you mean 'train'? ('unseen --help' shows all)"),
        ("list everything", "invalid choice: 'everything'"),
        ("train digits/dmg --unknown 3", "unrecognized arguments: --unknown 3"),
        ("list methods seed=3", "unrecognized arguments: seed=3"),
        ("compare digits --dry-run --json", "a dry run has none"),
    ],
)
def test_mistakes_end_with_a_message(unseen, tmp_path: Path, words: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    RunFolder(tmp_path / "begun").create(load_experiment("digits/dmg"))
    answer = unseen(*words.split())
    assert answer.code == 2
    assert message in answer.err
    assert "Traceback" not in answer.err
    assert answer.out == ""


def test_settings_stand_before_or_after_options() -> None:
    options = ["--methods", "dmg", "seed=1", "--seeds", "0-2", "log_every=2"]
    chosen = parse(["compare", "digits", "steps=3", *options])
    assert chosen.overrides == ["steps=3", "seed=1", "log_every=2"]
    assert (chosen.methods, chosen.seeds) == ("dmg", "0-2")
    assert parse(["compare", "digits", "--seeds", "0", "steps=3"]).overrides == ["steps=3"]
