"""Files that the version before wrote: a message that names both formats, never a traceback.

`tests/old_formats` was made by that version: two steps on the digits with a network of a few
hundred weights, stripped of what does not matter here.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.commands import Answer, commands_in
from tests.made_results import made_result
from tests.tiny import TINY

import unseen
from unseen.errors import UnseenError
from unseen.results.files import FORMAT, FormatError, check_format
from unseen.results.folder import RunFolder, about_other_formats, find_runs, read_run_list
from unseen.settings.experiment import complete_settings
from unseen.settings.recipes import load_experiment

BOTH = f"was written in format 1, and this version of unseen reads format {FORMAT}; "
FINISHED = "digits-small_cnn-aggregate-outlines-seed0-db41494111f2"
TABLES = "tables/digits-small_cnn-54455156"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A copy that commands may work in."""
    return Path(shutil.copytree(Path(__file__).parents[1] / "old_formats", tmp_path / "old"))


@pytest.fixture
def command(
    old: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Answer]:
    return commands_in(old, capsys, monkeypatch)


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["show", f"runs/{FINISHED}"], "train it again in another folder of runs (--runs DIR)"),
        (["evaluate", f"runs/{FINISHED}"], "train it again in another folder of runs"),
        (["train", f"runs/{FINISHED}"], "train it again in another folder of runs"),
        (["train", "runs/unfinished"], "train it again in another folder of runs"),
        (["export", f"runs/{FINISHED}", "--to", "onnx"], "train it again in another folder"),
        (["report", f"runs/{TABLES}"], "make the tables again: unseen compare, or unseen sweep"),
    ],
)
def test_commands_name_both_formats_and_what_to_do(
    command: Callable[..., Answer], words: list[str], remedy: str
) -> None:
    answer = command(*words)
    assert answer.code == 2
    assert BOTH in answer.err
    assert remedy in answer.err


@pytest.mark.parametrize("model", [f"runs/{FINISHED}", "saved_model", "model.onnx"])
def test_old_models_are_not_opened(old: Path, model: str) -> None:
    with pytest.raises(FormatError, match=BOTH):
        unseen.load(old / model)


def test_old_files_are_not_read_in_python(old: Path) -> None:
    folder = RunFolder(old / "runs" / FINISHED)
    for read in (folder.read_settings, folder.read_result):
        with pytest.raises(FormatError, match=BOTH):
            read()
    with pytest.raises(FormatError, match=BOTH):
        read_run_list(old / "runs" / TABLES)
    with pytest.raises(FormatError, match=BOTH):
        list(find_runs(old / "runs" / TABLES))
    with pytest.raises(FormatError, match=BOTH):
        unseen.load_run(folder.path)


def test_an_old_run_is_not_gone_on_with(old: Path) -> None:
    """Not even by settings that the folder of an old run was made for."""
    folder = RunFolder(old / "runs" / "unfinished")
    with pytest.raises(FormatError, match=BOTH):
        folder.create(load_experiment("digits/aggregate", TINY))


def test_new_runs_do_not_mix_with_old_ones(
    old: Path, command: Callable[..., Answer], shared_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNSEEN_CACHE", str(shared_cache))
    before = {path: path.read_bytes() for path in (old / "runs").rglob("*") if path.is_file()}
    settings = [f"{key}={value}" for key, value in TINY.items() if key != "data.unseen_domain"]
    words = ["--methods", "aggregate", "--unseen", "outlines", *settings]
    answer = command("compare", "digits", *words)
    assert answer.code == 0
    assert (
        f"runs holds 2 runs that another version of unseen wrote (this one writes format {FORMAT})"
        in answer.err
    )
    assert {path: path.read_bytes() for path in before} == before
    answer = command("report", "runs")
    assert answer.code == 0
    assert "2 runs that another version" in answer.err
    page = (old / "runs" / "report" / "report.html").read_text(encoding="utf-8")
    assert "was written in format 1" in page


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
