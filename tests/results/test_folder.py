"""A run on disk: whole files or none, records that survive a crash, errors that name the fix."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.commands import Answer, commands_in
from tests.made_results import made_result
from tests.tiny import TINY

import unseen
from unseen.atomic import atomic_file, write_json
from unseen.errors import UnseenError
from unseen.results import folder as module
from unseen.results.files import FORMAT, FormatError, check_format
from unseen.results.folder import (
    MetricsLog,
    RunFolder,
    RunList,
    about_other_formats,
    describe_environment,
    find_run,
    find_runs,
    read_run_list,
    run_name,
    source_commit,
    write_run_list,
)
from unseen.settings.experiment import complete_settings, identity
from unseen.settings.recipes import load_experiment


def test_a_writer_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "result.json"
    write_json(file, ["ümläut"])

    def fail() -> None:
        with atomic_file(file) as temporary:
            temporary.write_text("half of it")
            raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError, match="disk is full"):
        fail()
    with pytest.raises(TypeError):
        write_json(file, object())
    assert file.read_text(encoding="utf-8") == '["ümläut"]\n'
    assert list(file.parent.iterdir()) == [file]


def test_a_resumed_log_cuts_off_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.read_metrics() == []
    log = MetricsLog(folder.metrics, 0)
    log.write({"step": 1})
    at_checkpoint = log.sync()
    log.write({"step": 2})
    log.close()
    assert [record["step"] for record in folder.read_metrics()] == [1, 2]
    resumed = MetricsLog(folder.metrics, at_checkpoint)
    resumed.write({"step": 3})
    assert resumed.sync() == folder.metrics.stat().st_size
    resumed.close()
    assert [record["step"] for record in folder.read_metrics()] == [1, 3]
    with pytest.raises(UnseenError, match=r"shorter than at the run's last checkpoint"):
        MetricsLog(folder.metrics, 100)
    folder.metrics.write_text('{"step": 1}\n{"step": 2}\n{"ste')
    assert folder.read_metrics() == [{"step": 1}, {"step": 2}], "a line cut short is left out"
    folder.metrics.write_text('{"step": 1}\n{"ste\n{"step": 3}\n')
    with pytest.raises(UnseenError, match=r"metrics\.jsonl is damaged"):
        folder.read_metrics()


def test_a_run_is_called_by_its_recipe_and_found_by_its_settings(tmp_path: Path) -> None:
    """Two recipes with the same settings share one run; another method loses the name."""
    mine = tmp_path / "my_dmg.yaml"
    mine.write_text("base: digits/dmg\n")
    shipped, own = load_experiment("digits/dmg"), load_experiment(mine)
    assert run_name(own) == run_name(shipped).replace("-dmg-", "-my_dmg-")
    runs = tmp_path / "runs"
    assert find_run(runs, own).path.name == run_name(own)
    (runs / run_name(shipped)).mkdir(parents=True)
    assert find_run(runs, own).path.name == run_name(shipped)
    assert find_run(runs, load_experiment(mine, {"seed": 1})).path.name.startswith("digits-small")
    assert load_experiment(mine, {"method.name": "sd"}).recipe == ""


@pytest.mark.parametrize(
    "domain", ["../../etc", "a/b\\c", "x" * 500, "名" * 200, "a:b*?\n", "-rf", ". .", "a b;c$(d)"]
)
def test_run_names_are_safe_folder_names(tmp_path: Path, domain: str) -> None:
    changes = {"data.unseen_domain": [domain], "network.name": f"timm:{domain}"}
    experiment = load_experiment("digits/dmg", changes)
    name = run_name(experiment)
    assert name.endswith(f"-{identity(experiment)}")
    assert len(name.encode()) <= 255
    assert not set(name) & set("/\\:*?\n $;()")
    (tmp_path / name).mkdir()
    assert [p.name for p in tmp_path.iterdir()] == [name]
    readable = load_experiment("digits/dmg", {"data.unseen_domain": "plain,blended", "seed": 3})
    assert run_name(readable).startswith("digits-small_cnn-dmg-plain+blended-seed3-")
    assert "-none-" in run_name(load_experiment("digits/dmg"))


def test_errors_name_the_fix(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with pytest.raises(UnseenError, match=r"is not a run folder.*'unseen train RECIPE' makes one"):
        folder.read_settings()
    with pytest.raises(UnseenError, match=f"not finished; resume it with: unseen train {tmp_path}"):
        folder.read_result()
    folder.settings.write_text("{")
    with pytest.raises(UnseenError, match=r"settings\.json is damaged"):
        folder.read_settings()


def test_a_folder_keeps_the_settings_it_was_made_with(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "runs" / "one")
    first = load_experiment("digits/dmg")
    folder.create(first)
    folder.create(load_experiment("digits/dmg", {"seed": 9}))
    assert folder.read_settings() == complete_settings(first)
    assert [found.path for found in find_runs(tmp_path)] == [folder.path]


def test_two_processes_do_not_train_one_run_at_once(tmp_path: Path) -> None:
    """Their records would be mixed line by line."""
    first, second = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "run")
    with (
        first.locked(),
        pytest.raises(UnseenError, match="another process is training"),
        second.locked(),
    ):
        pass
    with second.locked():
        assert (tmp_path / "run").is_dir()


def test_a_finished_run_has_its_digests_and_an_unfinished_one_needs_none(tmp_path: Path) -> None:
    """A process that is killed between the two files leaves a run that can go on."""
    folder = RunFolder(tmp_path)
    folder.metrics.write_text('{"step": 1}\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", _killed_at("result.json", Path.replace))
        with pytest.raises(KeyboardInterrupt):
            folder.finish(made_result("dmg", {"sketch": 0.5}))
    assert (tmp_path / "digests.json").is_file()
    assert not folder.finished
    folder.metrics.write_text('{"step": 1}\n{"step": 2}\n')
    assert len(folder.read_metrics()) == 2, "it has gone on since"
    folder.finish(made_result("dmg", {"sketch": 0.5}))
    assert len(folder.read_metrics()) == 2
    assert not list(tmp_path.glob(".*"))
    folder.metrics.write_text('{"step": 1}\n')
    with pytest.raises(UnseenError, match=r"metrics\.jsonl is damaged"):
        folder.read_metrics()


def _killed_at(name: str, replace: Callable[[Path, Path], Path]) -> Callable[[Path, Path], Path]:
    def killed(self: Path, target: Path) -> Path:
        if target.name == name:
            raise KeyboardInterrupt
        return replace(self, target)

    return killed


PLACE = "src/unseen/results/folder.py"


@pytest.mark.parametrize(
    ("place", "committed", "has_commit"),
    [
        (".venv/lib/python3.11/site-packages/unseen/results/folder.py", False, False),
        ("untracked/unseen/results/folder.py", False, False),
        (PLACE, False, False),
        ("vendored/unseen/results/folder.py", True, False),
        (PLACE, True, True),
    ],
)
def test_the_commit_is_that_of_this_package_s_source_or_none(
    tmp_path: Path, place: str, committed: bool, has_commit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment may lie inside the repository of somebody's project."""

    def git(*words: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *words]
        done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    copy = tmp_path / place
    copy.parent.mkdir(parents=True)
    shutil.copy(module.__file__, copy)
    assert source_commit(Path(shutil.copy(copy, tmp_path / "outside.py"))) is None
    git("init", "-q")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "theirs"\n')
    git("add", "pyproject.toml", *([place] if committed else []))
    git("commit", "-qm", "theirs")
    assert source_commit(copy) == (git("rev-parse", "HEAD") if has_commit else None)
    monkeypatch.setenv("PATH", "")
    source_commit.cache_clear()
    assert source_commit(copy) is None, "there is no git"
    environment = describe_environment()
    assert environment["packages"]["torch"]
    assert environment["cores"] > 0
    json.dumps(environment)


BOTH = f"was written in format {FORMAT - 1}, and this version of unseen reads format {FORMAT}; "


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A folder of runs with a finished one, and tables made of it, in the format before."""
    run = RunFolder(tmp_path / "runs" / "finished")
    run.create(load_experiment("digits/aggregate", TINY))
    run.write_result(made_result("aggregate", {"outlines": 0.5}))
    tables = tmp_path / "runs" / "tables"
    write_run_list(tables, RunList((run.path,)))
    for file in (run.settings, run.result, tables / "runs.json"):
        content = json.loads(file.read_text())
        assert content["format"] == FORMAT
        file.write_text(json.dumps(content | {"format": FORMAT - 1}))
    return tmp_path


@pytest.fixture
def command(
    old: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Answer]:
    return commands_in(old, capsys, monkeypatch)


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["show", "runs/finished"], "train it again in another folder of runs (--runs DIR)"),
        (["export", "runs/finished", "--to", "onnx"], "train it again in another folder"),
        (["report", "runs/tables"], "make the tables again: unseen compare, or unseen sweep"),
    ],
)
def test_another_format_gets_one_sentence_with_both_formats_and_what_to_do(
    command: Callable[..., Answer], words: list[str], remedy: str
) -> None:
    answer = command(*words)
    assert answer.code == 2
    assert BOTH in answer.err
    assert remedy in answer.err


def test_another_format_is_not_read_in_python(old: Path) -> None:
    folder = RunFolder(old / "runs" / "finished")
    tables = old / "runs" / "tables"
    for read in (
        folder.read_settings,
        folder.read_result,
        lambda: unseen.load(folder.path),
        lambda: folder.create(load_experiment("digits/aggregate", TINY)),  # to go on with it
        lambda: read_run_list(tables),
        lambda: list(find_runs(tables)),
    ):
        with pytest.raises(FormatError, match=BOTH):
            read()
    with pytest.raises(FormatError, match=rf"format {FORMAT + 1}.*install a newer version"):
        check_format({"format": FORMAT + 1}, old, "")
    with pytest.raises(UnseenError, match="is damaged"):
        check_format([], old, "")


def test_new_runs_do_not_mix_with_those_of_another_format(
    old: Path, command: Callable[..., Answer]
) -> None:
    about = f"runs holds runs of another version of unseen (this one writes format {FORMAT}), 1 in"
    assert about in about_other_formats(old / "runs")
    answer = command("report", "runs")
    assert (answer.code, about in answer.err) == (0, True)
    assert about_other_formats(old / "nowhere") == ""
    RunFolder(old / "new" / "one").create(load_experiment("digits/aggregate"))
    (old / "new" / "damaged").mkdir()
    (old / "new" / "damaged" / "settings.json").write_text("{")
    assert about_other_formats(old / "new") == ""
