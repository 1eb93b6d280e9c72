"""How it was made: every run with its command, what settings they share and differ in."""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from unseen.reports.page.parts import Code, Fold, PageCell, PageRow, PageTable, Part, Section
from unseen.reports.page.runs import Problem, Run, flattened
from unseen.reports.page.studies import Study


def making_section(study: Study) -> Section:
    flat = {run.name: flattened(run.settings) for run in study.runs}
    keys = list(dict.fromkeys(key for settings in flat.values() for key in settings))
    differing = [
        key for key in keys if len({_value(settings, key) for settings in flat.values()}) > 1
    ]
    first = flat[study.runs[0].name]
    shared = "\n".join(f"{key}: {_value(first, key)}" for key in keys if key not in differing)
    parts: list[Part] = [
        _run_table(study),
        Fold("Settings in which runs differ", (_differences(study, differing),)),
        Fold("Settings that all runs share", (Code("Shared settings", shared),)),
        Fold("Commands", (Code("To repeat every run", commands(study.runs)),)),
        Fold("Environment", (Code("Versions and hardware", _environments(study.runs)),)),
    ]
    return Section(
        "making",
        "How it was made",
        "Everything on this page is read from the run folders; nothing was trained for it.",
        tuple(parts),
    )


def _run_table(study: Study) -> PageTable:
    header = ("run", "method", "unseen", "seed", "state", "seconds", "remarks")
    rows = []
    for run in study.runs:
        seconds = run.timing.get("seconds")
        remarks = " ".join(run.result.remarks if run.result else ())
        steps = run.settings.get("steps")
        state = "finished" if run.result else f"step {run.steps_done} of {steps or '?'}"
        cells = (
            PageCell(run.name, run.name),
            PageCell(study.row_name(run.row), study.row_name(run.row)),
            PageCell(run.column, run.column),
            PageCell(str(run.seed), run.seed),
            PageCell(state, state),
            PageCell("–") if seconds is None else PageCell(f"{seconds:.0f}", seconds),
            PageCell(remarks, remarks),
        )
        rows.append(PageRow(cells, study.tags(run.row), study.color(run.row)))
    return PageTable("Runs", header, tuple(rows))


def _differences(study: Study, keys: list[str]) -> PageTable:
    rows = []
    for run in study.runs:
        settings = flattened(run.settings)
        texts = (run.name, *(_value(settings, key) for key in keys))
        cells = tuple(PageCell(text, text) for text in texts)
        rows.append(PageRow(cells, study.tags(run.row), study.color(run.row)))
    return PageTable("Differing settings", ("run", *keys), tuple(rows))


def commands(runs: Sequence[Run]) -> str:
    """How the runs were started, and a command for each that repeats it from its settings."""
    started = dict.fromkeys(
        shlex.join(run.environment["command"]) for run in runs if run.environment.get("command")
    )
    lines = [*(f"# started by: {each}" for each in started)]
    for run in runs:
        settings = shlex.quote(str(run.folder.settings))
        lines.append(f"unseen train {settings} --runs again")
    return "\n".join(lines)


def _environments(runs: Sequence[Run]) -> str:
    texts: dict[str, int] = {}
    for run in runs:
        about = {key: value for key, value in run.environment.items() if key != "command"}
        text = json.dumps(about, indent=1, ensure_ascii=False)
        texts[text] = texts.get(text, 0) + 1
    return "\n\n".join(f"{number} runs: {text}" for text, number in texts.items())


def problem_table(problems: Sequence[Problem]) -> PageTable:
    rows = tuple(
        PageRow((PageCell(each.path.name, each.path.name), PageCell(each.reason, each.reason)))
        for each in problems
    )
    return PageTable("Runs that could not be read and are left out", ("run", "why"), rows)


def _value(settings: Mapping[str, Any], key: str) -> str:
    return json.dumps(settings[key], ensure_ascii=False) if key in settings else "–"
