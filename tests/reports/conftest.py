"""Runs that were never trained, for pages whose numbers are known; the page, read back."""

import json
import re
from collections.abc import Callable, Sequence
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from tests.made_results import made_result

from unseen.reports.page.studies import Study, load_runs, make_studies
from unseen.reports.page.write import write_report
from unseen.results.files import FORMAT, write_arrays
from unseen.results.folder import RunFolder

MakeRun = Callable[..., Path]
Tables = dict[tuple[str, str], list[list[str]]]
"""All tables of a page by title and rule, as rows of texts."""


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """`make_run("dmg", {"sketch": 0.6}, seed=1)` is a run folder below tmp_path / "runs"."""

    def make(
        method: str,
        unseen: dict[str, float],
        training: dict[str, float] | None = None,
        *,
        metrics: Sequence[dict[str, Any]] = (),
        settings: dict[str, Any] | None = None,
        finished: bool = True,
        arrays: dict[str, Any] | None = None,
        **about: Any,
    ) -> Path:
        """`settings` are those of the method; without a result, a run is not `finished`."""
        result = made_result(method, unseen, training, **about)
        path = tmp_path / "runs" / re.sub("[/<]", "_", result.run)
        path.mkdir(parents=True)
        domains = {"unseen_domain": result.unseen_domains, "training_domains": []}
        own = ("steps", "selection", "seed", "metric", "recipe")
        files: dict[str, Any] = {
            "settings.json": {
                "format": FORMAT,
                "data": {"name": result.dataset} | domains,
                "network": {"name": result.backbone},
                "method": {"name": method} | (settings or {}),
                **{name: getattr(result, name) for name in own},
            },
            "environment.json": {"command": ["unseen", "compare", "pacs"], "python": "3.11"},
        }
        for name, content in files.items():
            (path / name).write_text(json.dumps(content))
        lines = "".join(json.dumps(record) + "\n" for record in metrics)
        (path / "metrics.jsonl").write_text(lines)
        if arrays:
            write_arrays(path / "arrays.npz", arrays)
        if finished:
            RunFolder(path).write_result(result)
        return path

    return make


@pytest.fixture
def report(tmp_path: Path) -> Callable[..., str]:
    """`report(rule="last")` is the page of the runs that were made."""

    def write(**options: Any) -> str:
        page = write_report(tmp_path / "runs", tmp_path / "out", **options)
        return page.read_text(encoding="utf-8")

    return write


@pytest.fixture
def studies(tmp_path: Path) -> Callable[[], list[Study]]:
    return lambda: make_studies(load_runs(tmp_path / "runs")[0], None)


@pytest.fixture
def read_tables() -> Callable[[str], Tables]:
    def text(cell: str) -> str:
        return unescape(re.sub("<.*?>", "", cell)).strip()

    def read(page: str) -> Tables:
        found: Tables = {}
        table = r'class="table"(?: data-rule="(\w+)")?>.*?<h3>(.*?)(?: <span.*?)?</h3>(.*?)</table>'
        for rule, title, content in re.findall(table, page, flags=re.S):
            rows = re.findall(r"<tr.*?</tr>", content, flags=re.S)
            cells = [re.findall(r"<t[hd][ >].*?</t[hd]>", row, flags=re.S) for row in rows]
            found[title, rule] = [[text(cell) for cell in row] for row in cells]
        return found

    return read
