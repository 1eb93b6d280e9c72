"""How it was made: every run with its command, what settings they share and differ in."""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from unseen.reports.page.look import method_row, number, page_cells
from unseen.reports.page.parts import Code, Fold, PageRow, PageTable, Part, Section
from unseen.reports.page.runs import Problem, Run
from unseen.reports.page.studies import Study
from unseen.settings.recipes import flattened


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
        Fold("Settings in which runs differ", (_differences(study, flat, differing),)),
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
    """Remarks that all runs share stand below the table, once."""
    header = ("run", "method", "unseen", "seed", "state", "seconds", "remarks")
    said = [run.result.remarks for run in study.runs if run.result]
    several = len(said) > 1
    shared = [each for each in said[0] if all(each in own for own in said)] if several else []
    rows = tuple(_run_row(study, run, shared) for run in study.runs)
    return PageTable("Runs", header, rows, tuple(f"All runs: {each}" for each in shared))


def _run_row(study: Study, run: Run, said: Sequence[str]) -> PageRow:
    seconds = number(run.timing.get("seconds"), ".0f")
    own = run.result.remarks if run.result else ()
    remarks = " ".join(each for each in own if each not in said)
    steps = run.settings.get("steps") or "?"
    state = "finished" if run.result else f"step {run.steps_done} of {steps}"
    about = (study.row_name(run.row), run.column, run.seed, state, seconds, remarks)
    return method_row(study, run.row, run.name, *about)


def _differences(study: Study, flat: Mapping[str, Mapping[str, Any]], keys: list[str]) -> PageTable:
    rows = tuple(
        method_row(study, run.row, run.name, *(_value(flat[run.name], key) for key in keys))
        for run in study.runs
    )
    return PageTable("Differing settings", ("run", *keys), rows)


def commands(runs: Sequence[Run]) -> str:
    """How the runs were started, and a command for each that repeats it from its settings."""
    started = dict.fromkeys(
        shlex.join(run.environment["command"]) for run in runs if run.environment.get("command")
    )
    lines = [*(f"# started by: {each}" for each in started)]
    for run in runs:
        if run.merged is not None:
            parts = " ".join(shlex.quote(f"again/{each.folder}") for each in run.merged.runs)
            output = shlex.quote(f"again/{run.name}")
            lines.append(f"unseen merge {parts} --choose {run.merged.choose} -o {output}")
            continue
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
    rows = tuple(PageRow(page_cells(each.path.name, each.reason)) for each in problems)
    return PageTable("Runs that could not be read and are left out", ("run", "why"), rows)


def _value(settings: Mapping[str, Any], key: str) -> str:
    return json.dumps(settings[key], ensure_ascii=False) if key in settings else "–"
