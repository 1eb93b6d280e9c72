"""A run on disk: whole files or none, records that survive a crash, errors that name the fix."""

import json
from pathlib import Path

import pytest

from unseen.atomic import atomic_file, write_json
from unseen.errors import UnseenError
from unseen.results.folder import (
    MetricsLog,
    RunFolder,
    describe_environment,
    find_run,
    find_runs,
    run_name,
)
from unseen.settings.experiment import identity
from unseen.settings.recipes import load_experiment


def test_a_writer_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "result.json"
    write_json(file, {"old": True})

    def fail() -> None:
        with atomic_file(file) as temporary:
            temporary.write_text("half of it")
            raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError, match="disk is full"):
        fail()
    assert json.loads(file.read_text()) == {"old": True}
    assert [p.name for p in file.parent.iterdir()] == ["result.json"]


def test_content_that_is_no_json_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    write_json(file, ["ümläut"])
    with pytest.raises(TypeError):
        write_json(file, object())
    assert file.read_text(encoding="utf-8") == '["ümläut"]\n'
    assert list(tmp_path.iterdir()) == [file]


def test_a_resumed_log_cuts_off_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
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


def test_a_log_that_lost_records_is_not_filled_up(tmp_path: Path) -> None:
    with pytest.raises(UnseenError, match=r"shorter than at the run's last checkpoint"):
        MetricsLog(tmp_path / "metrics.jsonl", 100)


def test_a_line_cut_short_is_left_out(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.metrics.write_text('{"step": 1}\n{"step": 2}\n{"ste')
    assert folder.read_metrics() == [{"step": 1}, {"step": 2}]
    folder.metrics.write_text('{"step": 1}\n{"ste\n{"step": 3}\n')
    with pytest.raises(UnseenError, match=r"metrics\.jsonl is damaged"):
        folder.read_metrics()


def test_no_metrics_yet(tmp_path: Path) -> None:
    assert RunFolder(tmp_path).read_metrics() == []


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


def test_run_names_can_be_read() -> None:
    experiment = load_experiment("digits/dmg", {"data.unseen_domain": "plain,blended", "seed": 3})
    assert run_name(experiment).startswith("digits-small_cnn-dmg-plain+blended-seed3-")
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
    folder.create(load_experiment("digits/dmg"))
    folder.create(load_experiment("digits/dmg", {"seed": 9}))
    assert folder.read_settings()["seed"] == 0
    assert [found.path for found in find_runs(tmp_path)] == [folder.path]


def test_the_environment_names_versions_and_hardware() -> None:
    environment = describe_environment()
    assert environment["packages"]["torch"]
    assert environment["packages"]["unseen"]
    assert environment["cores"] > 0
    json.dumps(environment)


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
