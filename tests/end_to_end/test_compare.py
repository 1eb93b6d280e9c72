"""The main job: every domain left out in turn, tables whose numbers are those of the runs."""

import csv
import io
import itertools
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from tests.commands import commands_in
from tests.sweeps.made_records import DOMAINS, comparison_plan
from tests.sweeps.tiny_sweep import assert_same_run

import unseen
from unseen.atomic import read_json
from unseen.errors import SettingsError
from unseen.methods.aggregate import Aggregate
from unseen.results.folder import RunFolder, find_runs
from unseen.settings import catalog
from unseen.sweeps.tables import Comparison
from unseen.sweeps.train import resources_for

METHODS = ("aggregate", "dmg")
TINY: dict[str, Any] = {"steps": 6, "images_per_domain": 4, "evaluate_every": 3}
TINY |= {"network.image_size": 16}
VIEWS = ("out_of_domain", "in_domain", "known_domain")


def compare(runs: Path, **changes: Any) -> Comparison:
    options = {"methods": METHODS, "seeds": (0, 1), "runs": runs, "console": Console(quiet=True)}
    return unseen.compare("digits", **(options | TINY | changes))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def comparison(runs: Path, shared_cache: Path) -> Iterator[Comparison]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNSEEN_CACHE", str(shared_cache))
        yield compare(runs)


def test_every_domain_method_and_seed_is_run_once(comparison: Comparison, runs: Path) -> None:
    assert len(comparison.folders) == len(set(comparison.folders)) == 2 * 2 * 4
    assert sorted(folder.path for folder in find_runs(runs)) == sorted(comparison.folders)
    done = {(r.method, r.seed, *r.unseen_domains) for r in comparison.results}
    assert done == {(m, s, d) for m in METHODS for s in (0, 1) for d in DOMAINS}
    for result in comparison.results:
        (unseen_domain,) = result.unseen_domains
        assert result.training_domains == tuple(d for d in DOMAINS if d != unseen_domain)
    run = unseen.load_run(comparison.folders[0])  # a run like any other
    assert RunFolder(comparison.folders[0]).read_result() == run.result


def test_tables_are_written_in_three_formats(comparison: Comparison, runs: Path) -> None:
    assert tuple(table.view for table in comparison.shown) == VIEWS
    assert comparison.home.parent == runs / "tables"
    assert comparison.home.name.startswith("digits-small_cnn-")
    names = {f"{view}{suffix}" for view in VIEWS for suffix in (".csv", ".md", ".tex")}
    for rule in ("source", "last", "oracle"):
        folder = comparison.home / rule
        assert {file.name for file in folder.iterdir()} == names | {"runs.json"}
        found = [run.path.resolve() for run in find_runs(folder)]
        assert found == [path.resolve() for path in comparison.folders]
    assert "dmg" in (folder / "out_of_domain.md").read_text()
    assert r"\begin{tabular}" in (folder / "out_of_domain.tex").read_text()


@pytest.mark.parametrize("view", VIEWS)
def test_numbers_in_the_table_are_those_of_the_runs(comparison: Comparison, view: str) -> None:
    """Means over seeds of what the runs' result.json files say, in percent."""
    with (comparison.home / "source" / f"{view}.csv").open() as file:
        lines = [line for line in csv.DictReader(file) if line["quantity"] == "accuracy"]
    found = {(line["method"], line["column"]): float(line["mean"]) for line in lines}
    results = [read_json(folder / "result.json") for folder in comparison.folders]
    for method, domain in itertools.product(METHODS, DOMAINS):
        own = [r for r in results if (r["method"], r["unseen_domains"]) == (method, [domain])]
        measured = [r["rules"]["source"]["views"][view].values() for r in own]
        by_seed = [fmean(each["measures"]["accuracy"] for each in views) for views in measured]
        assert len(by_seed) == 2
        assert found[method, domain] == pytest.approx(100 * fmean(by_seed))


def test_finished_runs_are_not_trained_again(comparison: Comparison, runs: Path) -> None:
    """A part of what is there already is the same runs in a smaller table."""

    def stamps() -> dict[Path, int]:
        files = (file for folder in comparison.folders for file in folder.rglob("*"))
        return {file: file.stat().st_mtime_ns for file in files if file.is_file()}

    before = stamps()
    assert compare(runs).results == comparison.results
    part = compare(runs, unseen=("plain", "outlines"), seeds=(1,))
    assert len(part.folders) == 2 * 2
    assert set(part.folders) < set(comparison.folders)
    shown = set(part.shown[0].columns)
    assert {"plain", "outlines"} <= shown
    assert not {"blended", "coloured"} & shown
    one = compare(runs, methods="aggregate", unseen="plain")  # text, not letter by letter
    assert {(r.method, *r.unseen_domains) for r in one.results} == {("aggregate", "plain")}
    assert stamps() == before


@pytest.mark.parametrize(
    ("methods", "data", "expected"),
    [
        (  # training domains restrict what is compared
            "aggregate",
            {"training_domains": ["plain", "blended"]},
            [(("blended",), ("plain",)), (("plain",), ("blended",))],
        ),
        (  # a recipe that names both sides is one task
            "aggregate,reweighting",
            {"training_domains": ["plain"], "unseen_domain": ["outlines"]},
            [(("plain",), ("outlines",))] * 2,
        ),
    ],
)
def test_which_domains_train_and_which_are_held_out(methods, data, expected) -> None:
    plan = comparison_plan("digits", methods, overrides={"data": data})
    settings = [run.experiment.data for run in plan.singles]
    assert [(each.training_domains, each.unseen_domain) for each in settings] == expected


def test_all_methods_on_one_domain_before_the_next() -> None:
    plan = comparison_plan("digits", METHODS, (0, 1), unseen="plain,blended")
    order = [(*r.condition.unseen, r.condition.seed, r.condition.method) for r in plan.singles]
    domains = ("plain", "blended")
    assert order == [(domain, s, m) for domain in domains for s in (0, 1) for m in METHODS]
    assert plan.label(plan.singles[1]) == "dmg, unseen plain, seed 0"
    everyone = {run.experiment.method.name for run in comparison_plan("digits", "all").singles}
    assert everyone == set(catalog.METHODS)


@pytest.fixture
def pictures(tmp_path: Path) -> dict[str, Any]:
    """Settings of a comparison on three places with 40 cats and 3 dogs each."""
    draws = np.random.default_rng(0)
    for place in ("north", "south", "west"):
        for name, number in (("cat", 40), ("dog", 3)):
            folder = tmp_path / "images" / place / name
            folder.mkdir(parents=True)
            for count in range(number):
                pixels = draws.integers(0, 255, (16, 16, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{count}.png")
    return TINY | {
        "data.root": str(tmp_path / "images"),
        "data.test_share": 0.0,
        "network": {"name": "small_cnn", "pretrained": False, "image_size": 16},
        "runs": tmp_path / "runs",
    }


def test_what_cannot_train_is_named_before_anything_trains(pictures: dict[str, Any]) -> None:
    """No recipe says how methods that need target images should get them."""
    with pytest.raises(SettingsError) as caught:
        unseen.compare("folder", methods="all", **pictures)
    first, *lines, last = str(caught.value).splitlines()
    assert first == "this comparison cannot be trained:"
    refused = {line.split()[0].partition("/")[2] for line in lines}
    assert "reweighting" in refused
    assert any("needs unlabelled images of the target domain; set setting=" in x for x in lines)
    words, _, names = last.strip().rpartition(" ")
    assert words == "methods: those that can be trained like this are"
    assert set(names.split(",")) == set(catalog.METHODS) - refused
    assert not pictures["runs"].exists()


def test_remarks_on_images_are_said_once_and_kept_with_every_run(pictures: dict[str, Any]) -> None:
    said = io.StringIO()
    console = Console(file=said, width=400)
    found = unseen.compare("folder", methods="aggregate", seeds=(0, 1), console=console, **pictures)
    assert said.getvalue().count("Classes are skewed") == 1
    assert said.getvalue().count("too few to choose a checkpoint by") == 1
    for path in found.folders:
        remarks = RunFolder(path).read_result().remarks
        assert any(each.startswith("Classes are skewed") for each in remarks)
        assert "Classes are skewed" in (path / "README.md").read_text()


class Breaking(Aggregate):
    def loss(self, batch, progress):
        raise ArithmeticError("this method is broken")


def test_a_run_that_fails_does_not_lose_the_others(
    comparison: Comparison, runs: Path, tmp_path: Path
) -> None:
    broken = f"{__name__}:Breaking"
    shown = io.StringIO()
    options = {"methods": (broken, "dmg"), "seeds": (0,), "unseen": "plain"}
    with pytest.raises(unseen.UnseenError, match="1 of 2 runs failed; the same comm") as caught:
        compare(tmp_path, console=Console(file=shown), **options)
    assert "ArithmeticError: this method is broken" in str(caught.value)
    first, *lines = shown.getvalue().splitlines()
    assert first == "2 runs planned (0 finished, 0 to resume), 12 steps in all"
    assert lines[0].startswith("1/2 dmg, unseen plain, seed 0: out of domain ")  # one more try
    failure = "failed: ArithmeticError: this method is broken (tried 2 times; "
    assert lines[1].startswith(f"2/2 {broken}, unseen plain, seed 0: {failure}")
    (finished,) = [folder for folder in find_runs(tmp_path) if folder.finished]
    assert_same_run(finished.path, runs / finished.path.name)
    (table,) = tmp_path.rglob("source/out_of_domain.md")
    assert "missing" in table.read_text()


def test_workers_write_what_this_process_would(
    comparison: Comparison,
    runs: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Byte for byte, but for the time; the tables are the same, too."""
    command = commands_in(tmp_path, capsys, monkeypatch)
    words = "compare digits --methods aggregate,dmg --seeds 0-1 --unseen plain --workers 2"
    answer = command(*words.split(), *(f"{key}={value}" for key, value in TINY.items()))
    assert answer.code == 0
    assert "4 runs planned (0 finished, 0 to resume), 24 steps in all" in answer.err
    assert "4/4 " in answer.err
    found = list(find_runs(tmp_path / "runs"))
    assert len(found) == 4
    for folder in found:
        assert_same_run(folder.path, runs / folder.path.name)
    here = compare(runs, unseen="plain").home
    there = tmp_path / "runs" / "tables" / here.name
    files = [file for file in here.rglob("*.*") if file.suffix != ".json"]
    for file in files:
        assert (there / file.relative_to(here)).read_text() == file.read_text()
    assert len(files) == 3 * 3 * 3


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
    assert resources_for(plan, {"workers": asked}).workers == expected
