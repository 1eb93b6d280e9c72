"""The main job: every domain left out in turn, tables whose numbers are those of the runs."""

import csv
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from rich.console import Console

import unseen
from unseen.atomic import read_json
from unseen.experiments.compare import Comparison
from unseen.records.folder import RunFolder
from unseen.records.run_list import find_runs

METHODS = ("aggregate", "dmg")
DOMAINS = ("plain", "blended", "coloured", "outlines")
TINY: dict[str, Any] = {
    "steps": 6,
    "images_per_domain": 4,
    "network": {"image_size": 16},
    "evaluate_every": 3,
}


def compare(runs: Path, **changes: Any) -> Comparison:
    options = {"methods": METHODS, "seeds": (0, 1), "runs": runs, "console": Console(quiet=True)}
    return unseen.compare("digits", **(options | TINY | changes))


def stamps(folder: Path) -> dict[Path, int]:
    return {file: file.stat().st_mtime_ns for file in folder.rglob("*") if file.is_file()}


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
        assert list(result.view("source", "out_of_domain")) == [unseen_domain]
        assert tuple(result.view("source", "in_domain")) == result.training_domains


def test_tables_are_written_in_three_formats(comparison: Comparison, runs: Path) -> None:
    assert [table.view for table in comparison.tables] == [
        "out_of_domain",
        "in_domain",
        "known_domain",
    ]
    folder = comparison.files[0].parent
    assert folder.parent == runs / "tables"
    assert folder.name.startswith("digits-small_cnn-")
    names = {f"{t.view}{suffix}" for t in comparison.tables for suffix in (".csv", ".md", ".tex")}
    assert {file.name for file in folder.iterdir()} == names | {"runs.json"}
    found = [run.path.resolve() for run in find_runs(folder)]
    assert found == [path.resolve() for path in comparison.folders]
    assert {file.name for file in comparison.files} == names
    assert "dmg" in (folder / "out_of_domain.md").read_text()
    assert r"\begin{tabular}" in (folder / "out_of_domain.tex").read_text()


@pytest.mark.parametrize("view", ["out_of_domain", "in_domain", "known_domain"])
def test_numbers_in_the_table_are_those_of_the_runs(
    comparison: Comparison, runs: Path, view: str
) -> None:
    """Means over seeds of what the runs' result.json files say, in percent."""
    with (comparison.files[0].parent / f"{view}.csv").open() as file:
        lines = list(csv.DictReader(file))
    found = {
        (line["method"], line["column"]): float(line["mean"])
        for line in lines
        if line["column"] in DOMAINS and line["quantity"] == "accuracy"
    }
    assert len(found) == 2 * 4
    for (method, domain), mean in found.items():
        results = [read_json(folder / "result.json") for folder in comparison.folders]
        own = [r for r in results if (r["method"], r["unseen_domains"]) == (method, [domain])]
        measured = [r["rules"]["source"]["views"][view] for r in own]
        by_seed = [fmean(d["accuracy"] for d in domains.values()) for domains in measured]
        assert len(by_seed) == 2
        assert mean == pytest.approx(100 * fmean(by_seed))


def test_the_second_time_nothing_is_trained(comparison: Comparison, runs: Path) -> None:
    before = {path: at for path, at in stamps(runs).items() if "tables" not in path.parts}
    again = compare(runs)
    assert again.results == comparison.results
    assert {p: at for p, at in stamps(runs).items() if "tables" not in p.parts} == before


def test_some_domains_only(comparison: Comparison, runs: Path) -> None:
    """A part of what is there already: the same runs, a smaller table."""
    part = compare(runs, unseen=("plain", "outlines"), seeds=(1,))
    assert len(part.folders) == 2 * 2
    assert set(part.folders) < set(comparison.folders)
    shown = {column.name for column in part.tables[0].columns}
    assert {"plain", "outlines"} <= shown
    assert not {"blended", "coloured"} & shown


def test_names_may_be_text(comparison: Comparison, runs: Path) -> None:
    """One word must not be read letter by letter."""
    one = compare(runs, methods="aggregate", unseen="plain")
    assert {(r["method"], *r["unseen_domains"]) for r in one.results} == {("aggregate", "plain")}


def test_training_domains_restrict_what_is_compared(runs: Path) -> None:
    from unseen.experiments.compare import plan_comparison

    plan = plan_comparison(
        "digits", ["aggregate"], [0], [], {"data": {"training_domains": ["plain", "blended"]}}
    )
    chosen = [(e.data.unseen_domain, e.data.training_domains) for e in plan]
    assert chosen == [(("plain",), ("blended",)), (("blended",), ("plain",))]


def test_a_killed_comparison_is_finished_by_the_same_command(
    comparison: Comparison, runs: Path, tmp_path: Path
) -> None:
    """SIGKILL once a run is under way; then the same words again."""
    words = "compare digits --methods aggregate,dmg --seeds 0 --unseen plain,blended"
    settings = "steps=6 images_per_domain=4 network.image_size=16 evaluate_every=3"
    command = [sys.executable, "-m", "unseen", *words.split(), "--runs", str(tmp_path)]
    command += settings.split()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not list(tmp_path.glob("*/result.json")):
        time.sleep(0.02)
    process.kill()
    process.wait()
    finished = stamps_of_finished(tmp_path)
    assert 1 <= len(finished) < 4
    answer = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    assert f"4 runs planned ({len(finished)} finished" in answer.stderr
    assert "selection" in answer.stdout or "plain" in answer.stdout
    assert finished.items() <= stamps_of_finished(tmp_path).items()
    for folder in find_runs(tmp_path):
        same = (runs / folder.path.name / "result.json").read_bytes()
        assert folder.result.read_bytes() == same


def stamps_of_finished(runs: Path) -> dict[Path, int]:
    return {p: p.stat().st_mtime_ns for p in runs.glob("*/result.json")}


def test_runs_of_a_comparison_are_plain_runs(comparison: Comparison) -> None:
    run = unseen.load_run(comparison.folders[0])
    assert run.folder.finished
    assert RunFolder(comparison.folders[0]).read_result() == run.result


def test_a_recipe_that_names_both_sides_is_one_task(tmp_path: Path) -> None:
    from unseen.experiments.compare import plan_comparison

    both = {"data": {"training_domains": ["plain"], "unseen_domain": ["outlines"]}}
    plan = plan_comparison("digits", ["aggregate", "reweighting"], [0], [], both)
    sides = [(e.data.training_domains, e.data.unseen_domain) for e in plan]
    assert sides == [(("plain",), ("outlines",))] * 2
    assert [e.setting for e in plan] == ["generalization", "adaptation"]


def test_all_is_every_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from unseen import catalog
    from unseen.experiments import compare as comparison

    planned = []
    monkeypatch.setattr(comparison, "_carry_out", lambda plan, *_: planned.extend(plan))
    with pytest.raises(unseen.UnseenError, match="not finished"):
        compare(tmp_path, methods="all", seeds=(0,))
    assert {e.method.name for e in planned} == set(catalog.METHODS)
