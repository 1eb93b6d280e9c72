"""Files of another format: one sentence that names both formats and what to do, no traceback."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.commands import Answer, commands_in
from tests.made_results import made_result
from tests.tiny import TINY

import unseen
from unseen.errors import UnseenError
from unseen.results.files import FORMAT, FormatError, check_format
from unseen.results.folder import (
    RunFolder,
    RunList,
    about_other_formats,
    find_runs,
    read_run_list,
    write_run_list,
)
from unseen.settings.experiment import complete_settings
from unseen.settings.recipes import load_experiment

BOTH = f"was written in format {FORMAT - 1}, and this version of unseen reads format {FORMAT}; "


def age(file: Path) -> None:
    """The file says that it has the format before."""
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": FORMAT - 1}))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A folder of runs with a finished one, and tables made of it, in the format before."""
    run = RunFolder(tmp_path / "runs" / "finished")
    run.create(load_experiment("digits/aggregate", TINY))
    run.write_result(made_result("aggregate", {"outlines": 0.5}))
    tables = tmp_path / "runs" / "tables"
    write_run_list(tables, RunList((run.path,)))
    for file in (run.settings, run.result, tables / "runs.json"):
        age(file)
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
        (["evaluate", "runs/finished"], "train it again in another folder of runs"),
        (["train", "runs/finished"], "train it again in another folder of runs"),
        (["export", "runs/finished", "--to", "onnx"], "train it again in another folder"),
        (["report", "runs/tables"], "make the tables again: unseen compare, or unseen sweep"),
    ],
)
def test_commands_name_both_formats_and_what_to_do(
    command: Callable[..., Answer], words: list[str], remedy: str
) -> None:
    answer = command(*words)
    assert answer.code == 2
    assert BOTH in answer.err
    assert remedy in answer.err


def test_old_files_are_not_read_in_python(old: Path) -> None:
    folder = RunFolder(old / "runs" / "finished")
    tables = old / "runs" / "tables"
    for read in (
        folder.read_settings,
        folder.read_result,
        lambda: unseen.load(folder.path),
        lambda: unseen.load_run(folder.path),
        lambda: folder.create(load_experiment("digits/aggregate", TINY)),  # to go on with it
        lambda: read_run_list(tables),
        lambda: list(find_runs(tables)),
    ):
        with pytest.raises(FormatError, match=BOTH):
            read()


def test_new_runs_do_not_mix_with_old_ones(old: Path, command: Callable[..., Answer]) -> None:
    about = f"runs holds runs of another version of unseen (this one writes format {FORMAT}), 1 in"
    assert about in about_other_formats(old / "runs")
    answer = command("report", "runs")
    assert (answer.code, about in answer.err) == (0, True)


def test_folders_of_runs_of_this_version_need_no_word(tmp_path: Path) -> None:
    assert about_other_formats(tmp_path / "nowhere") == ""
    RunFolder(tmp_path / "one").create(load_experiment("digits/aggregate"))
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "settings.json").write_text("{")
    assert about_other_formats(tmp_path) == ""


def test_everything_that_is_written_says_its_format(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    experiment = load_experiment("digits/aggregate")
    folder.create(experiment)
    folder.write_result(made_result("aggregate", {"outlines": 0.5}))
    for file in (folder.settings, folder.result):
        assert json.loads(file.read_text())["format"] == FORMAT
    assert folder.read_settings() == complete_settings(experiment)


def test_a_newer_format_asks_for_a_newer_version(tmp_path: Path) -> None:
    with pytest.raises(UnseenError, match=rf"format {FORMAT + 1}.*install a newer version"):
        check_format({"format": FORMAT + 1}, tmp_path, "")
    with pytest.raises(UnseenError, match="is damaged"):
        check_format([], tmp_path, "")
