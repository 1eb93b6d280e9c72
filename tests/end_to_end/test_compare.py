"""The main job: every domain left out in turn, tables whose numbers are those of the runs."""

import csv
import io
import signal
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from PIL import Image
from rich.console import Console
from tests.stopping import start
from tests.sweeps.made_records import comparison_plan
from tests.sweeps.tiny_sweep import assert_same_run

import unseen
from unseen.atomic import read_json
from unseen.cli.main import main
from unseen.errors import SettingsError
from unseen.methods.aggregate import Aggregate
from unseen.results.folder import RunFolder, find_runs
from unseen.settings import catalog
from unseen.sweeps.tables import SweepResults
from unseen.sweeps.train import resources_for

METHODS = ("aggregate", "dmg")
DOMAINS = ("plain", "blended", "coloured", "outlines")
TINY: dict[str, Any] = {
    "steps": 6,
    "images_per_domain": 4,
    "network": {"image_size": 16},
    "evaluate_every": 3,
}
SETTINGS = "steps=6 images_per_domain=4 network.image_size=16 evaluate_every=3"


def compare(runs: Path, **changes: Any) -> SweepResults:
    options = {"methods": METHODS, "seeds": (0, 1), "runs": runs, "console": Console(quiet=True)}
    return unseen.compare("digits", **(options | TINY | changes))


def stamps(folder: Path) -> dict[Path, int]:
    return {file: file.stat().st_mtime_ns for file in folder.rglob("*") if file.is_file()}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def comparison(runs: Path, shared_cache: Path) -> Iterator[SweepResults]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNSEEN_CACHE", str(shared_cache))
        yield compare(runs)


def test_every_domain_method_and_seed_is_run_once(comparison: SweepResults, runs: Path) -> None:
    assert len(comparison.folders) == len(set(comparison.folders)) == 2 * 2 * 4
    assert sorted(folder.path for folder in find_runs(runs)) == sorted(comparison.folders)
    done = {(r.method, r.seed, *r.unseen_domains) for r in comparison.results}
    assert done == {(m, s, d) for m in METHODS for s in (0, 1) for d in DOMAINS}
    for result in comparison.results:
        (unseen_domain,) = result.unseen_domains
        assert result.training_domains == tuple(d for d in DOMAINS if d != unseen_domain)
        assert list(result.view("source", "out_of_domain")) == [unseen_domain]
        assert tuple(result.view("source", "in_domain")) == result.training_domains


def test_tables_are_written_in_three_formats(comparison: SweepResults, runs: Path) -> None:
    views = ["out_of_domain", "in_domain", "known_domain"]
    assert [table.view for table in comparison.shown] == views
    assert comparison.home.parent == runs / "tables"
    assert comparison.home.name.startswith("digits-small_cnn-")
    names = {f"{view}{suffix}" for view in views for suffix in (".csv", ".md", ".tex")}
    for rule in ("source", "last", "oracle"):
        folder = comparison.home / rule
        assert {file.name for file in folder.iterdir()} == names | {"runs.json"}
    folder = comparison.home / "source"
    found = [run.path.resolve() for run in find_runs(folder)]
    assert found == [path.resolve() for path in comparison.folders]
    assert "dmg" in (folder / "out_of_domain.md").read_text()
    assert r"\begin{tabular}" in (folder / "out_of_domain.tex").read_text()


@pytest.mark.parametrize("view", ["out_of_domain", "in_domain", "known_domain"])
def test_numbers_in_the_table_are_those_of_the_runs(
    comparison: SweepResults, runs: Path, view: str
) -> None:
    """Means over seeds of what the runs' result.json files say, in percent."""
    with (comparison.home / "source" / f"{view}.csv").open() as file:
        lines = list(csv.DictReader(file))
    found = {
        (line["method"], line["column"]): float(line["mean"])
        for line in lines
        if line["column"] in DOMAINS
        and line["quantity"] == "accuracy"
        and line["method"] in METHODS
    }
    assert len(found) == 2 * 4
    for (method, domain), mean in found.items():
        results = [read_json(folder / "result.json") for folder in comparison.folders]
        own = [r for r in results if (r["method"], r["unseen_domains"]) == (method, [domain])]
        measured = [r["rules"]["source"]["views"][view] for r in own]
        by_seed = [fmean(d["accuracy"] for d in domains.values()) for domains in measured]
        assert len(by_seed) == 2
        assert mean == pytest.approx(100 * fmean(by_seed))


def test_the_second_time_nothing_is_trained(comparison: SweepResults, runs: Path) -> None:
    before = {path: at for path, at in stamps(runs).items() if "tables" not in path.parts}
    again = compare(runs)
    assert again.results == comparison.results
    assert {p: at for p, at in stamps(runs).items() if "tables" not in p.parts} == before


def test_some_domains_only(comparison: SweepResults, runs: Path) -> None:
    """A part of what is there already: the same runs, a smaller table."""
    part = compare(runs, unseen=("plain", "outlines"), seeds=(1,))
    assert len(part.folders) == 2 * 2
    assert set(part.folders) < set(comparison.folders)
    shown = {column.name for column in part.shown[0].columns}
    assert {"plain", "outlines"} <= shown
    assert not {"blended", "coloured"} & shown


def test_names_may_be_text(comparison: SweepResults, runs: Path) -> None:
    """One word must not be read letter by letter."""
    one = compare(runs, methods="aggregate", unseen="plain")
    assert {(r.method, *r.unseen_domains) for r in one.results} == {("aggregate", "plain")}


def test_training_domains_restrict_what_is_compared(runs: Path) -> None:
    two = {"data": {"training_domains": ["plain", "blended"]}}
    plan = comparison_plan("digits", "aggregate", overrides=two)
    data = [run.experiment.data for run in plan.singles]
    chosen = [(each.unseen_domain, each.training_domains) for each in data]
    assert chosen == [(("plain",), ("blended",)), (("blended",), ("plain",))]


def test_a_killed_comparison_is_finished_by_the_same_command(
    comparison: SweepResults, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """SIGKILL when the second run is about to be finished; then the same words again."""
    words = "compare digits --methods aggregate,dmg --seeds 0 --unseen plain,blended"
    words = [*words.split(), "--runs", str(tmp_path), *SETTINGS.split(), "--workers", "1"]
    killed = start(words, r"SIGKILL 2 rename.*result\.json")
    _, said = killed.communicate()
    assert killed.returncode == -signal.SIGKILL, said
    finished = stamps_of_finished(tmp_path)
    assert 1 <= len(finished) < 4
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    printed = capsys.readouterr()
    assert f"4 runs planned ({len(finished)} finished" in printed.err
    assert "selection" in printed.out or "plain" in printed.out
    assert finished.items() <= stamps_of_finished(tmp_path).items()
    for folder in find_runs(tmp_path):
        same = (runs / folder.path.name / "result.json").read_bytes()
        assert folder.result.read_bytes() == same


def stamps_of_finished(runs: Path) -> dict[Path, int]:
    return {p: p.stat().st_mtime_ns for p in runs.glob("*/result.json")}


def test_runs_of_a_comparison_are_plain_runs(comparison: SweepResults) -> None:
    run = unseen.load_run(comparison.folders[0])
    assert run.folder.finished
    assert RunFolder(comparison.folders[0]).read_result() == run.result


def test_a_recipe_that_names_both_sides_is_one_task(tmp_path: Path) -> None:
    both = {"data": {"training_domains": ["plain"], "unseen_domain": ["outlines"]}}
    plan = comparison_plan("digits", ["aggregate", "reweighting"], overrides=both)
    experiments = [run.experiment for run in plan.singles]
    sides = [(e.data.training_domains, e.data.unseen_domain) for e in experiments]
    assert sides == [(("plain",), ("outlines",))] * 2
    assert [e.setting for e in experiments] == ["generalization", "adaptation"]


def test_all_is_every_method() -> None:
    """Those that adapt have recipes for it."""
    plan = comparison_plan("digits", "all")
    assert {run.experiment.method.name for run in plan.singles} == set(catalog.METHODS)


def test_all_methods_on_one_domain_before_the_next() -> None:
    plan = comparison_plan("digits", METHODS, (0, 1), unseen="plain,blended")
    order = [
        (*run.condition.unseen, run.condition.seed, run.condition.method) for run in plan.singles
    ]
    assert order == [
        (domain, seed, method)
        for domain in ("plain", "blended")
        for seed in (0, 1)
        for method in METHODS
    ]
    assert plan.label(plan.singles[1]) == "dmg, unseen plain, seed 0"


def test_what_cannot_train_is_named_before_anything_trains(tmp_path: Path) -> None:
    """No recipe says how methods that need target images should get them."""
    for domain in ("north", "south", "west"):
        for name in ("cat", "dog"):
            for number in range(10):
                picture = tmp_path / "images" / domain / name / f"{number}.png"
                picture.parent.mkdir(parents=True, exist_ok=True)
                Image.new("RGB", (16, 16), (9 * number, 0, 0)).save(picture)
    settings = {
        "data.root": str(tmp_path / "images"),
        "network": {"name": "small_cnn", "pretrained": False, "image_size": 16},
        "steps": 2,
    }
    with pytest.raises(SettingsError) as caught:
        unseen.compare("folder", methods="all", runs=tmp_path / "runs", **settings)
    first, *lines, last = str(caught.value).splitlines()
    assert first == "this comparison cannot be trained:"
    refused = {line.split()[0].partition("/")[2] for line in lines}
    assert "reweighting" in refused
    assert any("needs unlabelled images of the target domain; set setting=" in x for x in lines)
    words, _, names = last.strip().rpartition(" ")
    assert words == "methods: those that can be trained like this are"
    assert set(names.split(",")) == set(catalog.METHODS) - refused
    assert not (tmp_path / "runs").exists()


class Breaking(Aggregate):
    def loss(self, batch, progress):
        raise ArithmeticError("this method is broken")


def test_a_run_that_fails_does_not_lose_the_others(
    comparison: SweepResults, runs: Path, tmp_path: Path
) -> None:
    broken = f"{__name__}:Breaking"
    shown = io.StringIO()
    with pytest.raises(unseen.UnseenError, match="1 of 2 runs failed; the same comm") as caught:
        compare(
            tmp_path,
            methods=(broken, "dmg"),
            seeds=(0,),
            unseen="plain",
            console=Console(file=shown),
        )
    assert "ArithmeticError: this method is broken" in str(caught.value)
    first, *lines = shown.getvalue().splitlines()
    assert first == "2 runs planned (0 finished, 0 to resume), 12 steps in all"
    assert lines[0].startswith("1/2 dmg, unseen plain, seed 0: out of domain ")  # one more try
    failure = "failed: ArithmeticError: this method is broken (tried 2 times; "
    assert lines[1].startswith(f"2/2 {broken}, unseen plain, seed 0: {failure}")
    (finished,) = [folder for folder in find_runs(tmp_path) if folder.finished]
    assert_same_run(finished.path, runs / finished.path.name)
    (table,) = tmp_path.rglob("source/out_of_domain.md")
    assert "1 of 1 result is missing" in table.read_text() or "missing" in table.read_text()


def test_workers_write_what_this_process_would(
    comparison: SweepResults, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Byte for byte, but for the time; the tables are the same, too."""
    words = "compare digits --methods aggregate,dmg --seeds 0-1 --unseen plain --workers 2"
    with pytest.raises(SystemExit) as ended:
        main([*words.split(), "--runs", str(tmp_path), *SETTINGS.split()])
    assert ended.value.code == 0
    printed = capsys.readouterr()
    assert "4 runs planned (0 finished, 0 to resume), 24 steps in all" in printed.err
    assert "4/4 " in printed.err
    assert len(list(find_runs(tmp_path))) == 4
    for folder in find_runs(tmp_path):
        assert_same_run(folder.path, runs / folder.path.name)
    here = compare(runs, unseen="plain").home
    there = tmp_path / "tables" / here.name
    for file in here.rglob("*.*"):
        if file.suffix != ".json":
            assert (there / file.relative_to(here)).read_text() == file.read_text()


@pytest.mark.parametrize(
    ("number", "launched", "asked", "expected"),
    [(1, False, None, None), (2, False, None, 0), (2, False, 1, 1), (1, True, 3, 0)],
)
def test_several_devices_are_driven_from_this_process(
    monkeypatch: pytest.MonkeyPatch, number, launched, asked, expected
) -> None:
    """Also where torchrun or SLURM has started a process for each of them."""
    monkeypatch.setattr("unseen.sweeps.train.is_launched", lambda: launched)
    devices = {"devices.number": number, "images_per_domain": 4}
    plan = comparison_plan("digits", "aggregate", unseen="plain", overrides=devices)
    experiments = [run.experiment for run in plan.singles]
    assert resources_for(plan.sweep, experiments, {"workers": asked}).workers == expected
