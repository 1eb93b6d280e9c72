"""Merged models as rows of tables: keyed apart, labelled with their cost, compared honestly."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from tests.commands import commands_in
from tests.made_results import made_result
from tests.tiny import TINY

from unseen.errors import UnseenError
from unseen.reports.tables import Table, build_tables
from unseen.results.result import Merged, MergedRun, RunResult
from unseen.sweeps.plan import plan_sweep
from unseen.sweeps.sweep_file import load_sweep
from unseen.sweeps.train import check_mergeable


def made_merged(accuracy: float, seeds: tuple[int, ...], domain: str = "sketch") -> RunResult:
    runs = tuple(
        MergedRun(run=f"{domain}{n}", folder=f"f{n}", seed=seed, steps=300, seconds=1.0,
                  validation=0.9, averaged=True)
        for n, seed in enumerate(seeds)
    )  # fmt: skip
    merged = Merged(choose="all", runs=runs)
    method = f"dmg, {merged.label}"
    return made_result(method, {domain: accuracy}, seed=min(seeds), merged=merged)


def row(table: Table, name: str) -> list[str]:
    [found] = [row for row in table.rows if row.name == name]
    return [cell.text for cell in found.cells]


def test_a_model_merged_over_seeds_is_one_number() -> None:
    accuracies = {0: 0.60, 1: 0.64, 2: 0.68}
    results = [made_result("aggregate", {"sketch": each}, seed=n) for n, each in accuracies.items()]
    table = build_tables([*results, made_merged(0.70, (0, 1, 2))], "source")[0]
    assert row(table, "dmg, merged (3 runs)") == ["70.0", "70.0", "+6.0"]  # to the mean, 64.0
    notes = " ".join(table.notes)
    assert "it cost the training of 3 runs in each column" in notes
    assert "one model for all seeds" in notes
    assert "missing" not in notes
    assert not any(cell and cell.best for each in table.rows for cell in each.cells)


def test_models_merged_over_draws_are_paired_by_seed() -> None:
    results = [made_result("aggregate", {"sketch": 0.6 + n / 100}, seed=n) for n in (0, 1)]
    merged = [made_merged(0.65 + n / 100, (n, n, n)) for n in (0, 1)]
    table = build_tables([*results, *merged], "source")[0]
    assert row(table, "dmg, merged (3 runs)")[-1] == "+5.0 ± 0.0"
    notes = " ".join(table.notes)
    assert "it cost the training of 3 runs in each column and for each seed" in notes
    with pytest.raises(UnseenError, match="a table holds one of them"):
        build_tables([made_merged(0.7, (0, 1)), made_merged(0.8, (1, 2))], "source")


@pytest.fixture
def settings(start: Path) -> dict[str, Any]:
    return {key: value for key, value in TINY.items() if key != "data.unseen_domain"} | {
        "network.pretrained": str(start)
    }


def test_compare_adds_rows_of_merged_models(
    settings: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = commands_in(tmp_path, capsys, monkeypatch)
    words = ["compare", "digits", "--methods", "aggregate,dmg", "--seeds", "0,1", "--merge"]
    words += ["--unseen", "plain,outlines", "--workers", "0"]
    words += [f"{key}={value}" for key, value in settings.items()]
    answer = command(*words)
    assert answer.code == 0, answer.err
    assert "aggregate, merged (2 runs)" in answer.out
    [home] = (tmp_path / "runs/tables").iterdir()
    tables = home / "source"
    with (tables / "out_of_domain.csv").open() as file:
        lines = list(csv.DictReader(file))
    merged = [line for line in lines if line["method"] == "dmg, merged (2 runs)"]
    assert [line["column"] for line in merged][:3] == ["plain", "outlines", "overall"]
    assert all(line["planned"] == line["n"] == "1" for line in merged)
    for form in ("md", "tex"):
        assert "dmg, merged (2 runs)" in (tables / f"out_of_domain.{form}").read_text()
    assert command("report", str(tables)).code == 0
    page = (tables / "report/report.html").read_text()
    assert "dmg, merged (2 runs)" in page
    assert "unseen merge again/" in page
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*merged2*/*")}
    assert len(list((tmp_path / "runs").glob("*merged2*"))) == 4
    assert command(*words).code == 0
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "runs").glob("*merged2*/*")} == before


def test_a_sweep_merges_the_draws_of_each_seed(settings: dict[str, Any], tmp_path: Path) -> None:
    from rich.console import Console

    import unseen

    found = unseen.sweep(
        "digits",
        runs=tmp_path,
        merge="greedy",
        console=Console(quiet=True),
        methods="aggregate",
        unseen="outlines",
        seeds="0,1",
        draws=3,
        search="optimizer.lr",
        **{f"settings.{key}": value for key, value in settings.items()},
    )
    name = "aggregate, merged greedily (3 runs)"
    for rule in ("source", "last"):
        [merged] = [each for each in found.tables[rule][0].rows if each.name == name]
        assert merged.cells[0] is not None
        assert merged.cells[0].estimate is not None
        assert merged.cells[0].estimate.n == merged.cells[0].planned == 2
    assert [each.name for each in found.tables["oracle"][0].rows] == ["aggregate"]
    about = json.loads((found.home / "chosen.json").read_text())["merged"]
    assert [(each["seed"], each["method"]) for each in about] == [(0, name), (1, name)]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"settings.network.pretrained": False}, "random starts .* (aggregate)"),
        ({"seeds": "0", "draws": 1}, "give several seeds, or draws"),
        ({"settings.selection": "oracle"}, "labels of the unseen domain"),
    ],
)
def test_a_plan_that_cannot_be_merged_is_refused_before_it_trains(
    start: Path, changes: dict[str, Any], said: str
) -> None:
    basic = {"methods": "aggregate", "seeds": "0,1", "draws": 2, "search": "optimizer.lr"}
    basic["settings.network.pretrained"] = str(start)
    plan = plan_sweep(load_sweep("digits", basic | changes), "digits")
    with pytest.raises(UnseenError, match=said.replace("(", r"\(").replace(")", r"\)")):
        check_mergeable(plan)
