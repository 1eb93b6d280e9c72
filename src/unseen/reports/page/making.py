"""How it was made: every run with its command, what settings they share and differ in."""

import json
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from unseen.reports.page.parts import Code, Fold, PageRow, PageTable, Section, number, page_cells
from unseen.reports.page.runs import Problem, Run
from unseen.reports.page.studies import Study
from unseen.settings.recipes import flattened


def making_section(study: Study) -> Section:
    flat = {run.name: flattened(run.settings) for run in study.runs}
    keys = list(dict.fromkeys(key for settings in flat.values() for key in settings))
    first = flat[study.runs[0].name]
    alike = [k for k in keys if len({_value(settings, k) for settings in flat.values()}) == 1]
    shared = "\n".join(f"{key}: {_value(first, key)}" for key in alike)
    differing = [key for key in keys if key not in alike]
    rows = tuple(
        study.table_row(run.row, run.name, *(_value(flat[run.name], key) for key in differing))
        for run in study.runs
    )
    differences = PageTable("Differing settings", ("run", *differing), rows)
    return Section(
        "making",
        "How it was made",
        "Everything on this page is read from the run folders; nothing was trained for it.",
        (
            _run_table(study),
            Fold("Settings in which runs differ", (differences,)),
            Fold("Settings that all runs share", (Code("Shared settings", shared),)),
            Fold("Commands", (Code("To repeat every run", commands(study.runs)),)),
            Fold("Environment", (Code("Versions and hardware", _environments(study.runs)),)),
        ),
    )


def _value(settings: Mapping[str, Any], key: str) -> str:
    return json.dumps(settings[key], ensure_ascii=False) if key in settings else "–"


def _run_table(study: Study) -> PageTable:
    """Lists the runs. Remarks that all of them share stand below the table, once."""
    remarks = [run.result.remarks for run in study.runs if run.result]
    several = len(remarks) > 1
    shared = [r for r in remarks[0] if all(r in own for own in remarks)] if several else []
    rows = []
    for run in study.runs:
        own = run.result.remarks if run.result else ()
        steps = run.settings.get("steps") or "?"
        about = (
            study.row_name(run.row),
            run.column,
            run.seed,
            "finished" if run.result else f"step {run.steps_done} of {steps}",
            number(run.timing.get("seconds"), ".0f"),
            " ".join(each for each in own if each not in shared),
        )
        rows.append(study.table_row(run.row, run.name, *about))
    header = ("run", "method", "unseen", "seed", "state", "seconds", "remarks")
    return PageTable("Runs", header, tuple(rows), tuple(f"All runs: {each}" for each in shared))


def commands(runs: Sequence[Run]) -> str:
    """Says how the runs were started, and gives for each the command that repeats it."""
    started = dict.fromkeys(
        shlex.join(run.environment["command"]) for run in runs if run.environment.get("command")
    )
    lines = [f"# started by: {each}" for each in started]
    for run in runs:
        merged = run.result.merged if run.result else None
        if merged is not None:
            parts = " ".join(shlex.quote(f"again/{each.folder}") for each in merged.runs)
            output = shlex.quote(f"again/{run.name}")
            lines.append(f"unseen merge {parts} --choose {merged.choose} -o {output}")
        else:
            lines.append(f"unseen train {shlex.quote(str(run.folder.settings))} --runs again")
    return "\n".join(lines)


def _environments(runs: Sequence[Run]) -> str:
    records = ({k: v for k, v in run.environment.items() if k != "command"} for run in runs)
    texts = Counter(json.dumps(each, indent=1, ensure_ascii=False) for each in records)
    return "\n\n".join(f"{number} runs: {text}" for text, number in texts.items())


def problem_table(problems: Sequence[Problem]) -> PageTable:
    rows = tuple(PageRow(page_cells(each.path.name, each.reason)) for each in problems)
    return PageTable("Runs that could not be read and are left out", ("run", "why"), rows)
