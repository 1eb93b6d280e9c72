"""A folder of runs becomes one file: no script, style, font or image is fetched from anywhere."""

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from unseen.errors import UnseenError
from unseen.reports.figures.figure import Figure, check_can_print, write_figures
from unseen.reports.page import classes, parts, results, training
from unseen.reports.page.parts import Fold, PageTable, Part, Section
from unseen.reports.page.studies import Run, Study, load_runs, make_studies
from unseen.reports.text import MISSING
from unseen.results.folder import read_run_list, safe_name
from unseen.results.rules import RULES, check_rule, meaning
from unseen.settings.experiment import Metric
from unseen.settings.recipes import flattened


def write_report(
    runs: Path,
    folder: Path,
    rule: str | None = None,
    figures: bool = False,
    metric: Metric | None = None,
) -> Path:
    """Returns the path of the page. `metric`: shown in place of the one that each run's checkpoint
    was chosen by."""
    if rule is not None:
        check_rule(rule)
    if figures:
        check_can_print()
    if not runs.is_dir():
        raise UnseenError(f"{runs} is not a folder; give the folder that holds the runs")
    loaded, problems = load_runs(runs)
    if not loaded and not problems:
        raise UnseenError(f"there are no runs below {runs}; 'unseen compare digits' makes some")
    studies = make_studies(loaded, rule, metric)
    recorded = [each for each in RULES if any(each in study.rules for study in studies)]
    if rule is not None and recorded and rule not in recorded:
        raise UnseenError(
            f"no run recorded the selection rule '{rule}' (recorded: {', '.join(sorted(recorded))})"
        )
    chapters = []
    for study in studies:
        rules = study.rules or (study.main_rule,)
        conclusions = [results.conclude(study, each) for each in rules]
        chapters.append((study, conclusions, _sections(study)))
    listed = read_run_list(runs)
    damaged = tuple(parts.page_row(path.name, reason) for path, reason in problems)
    about = "Runs that could not be read and are left out"
    content: dict[str, Any] = {
        "chapters": chapters,
        "left_out": PageTable(about, ("run", "why"), damaged),
        "note": listed.note if listed else "",
        "rules": {each: _meaning(studies, each) for each in recorded},
        "chosen": rule or (studies[0].main_rule if studies else "source"),
    }
    page = folder / "report.html"
    parts.write_whole(page, parts.render_page(parts.TEMPLATES / "page.html", content))
    if summary := training.summary_text(studies):
        parts.write_whole(folder / "summary_report.txt", summary)
    for study, _, sections in chapters if figures else ():
        home = folder / "figures" / (safe_name(study.title) if len(studies) > 1 else "")
        write_figures(_figures(part for section in sections for part in section.parts), home)
    return page


def _meaning(studies: list[Study], rule: str) -> str:
    meanings = {study.meaning(rule) for study in studies}
    return meanings.pop() if len(meanings) == 1 else meaning(rule, None)


def _sections(study: Study) -> list[Section]:
    """Returns the sections in the order of the page; one that has nothing to show is left out."""
    sections = (
        results.tables_section,
        results.comparison_section,
        classes.classes_section,
        training.training_section,
        training.masks_section,
        training.importance_section,
        training.reweighting_section,
        classes.features_section,
        results.published_section,
        _making_section,
    )
    return [made for section in sections if (made := section(study)).parts]


def _figures(found: Iterable[Part]) -> Iterator[Figure]:
    for part in found:
        if isinstance(part, Fold):
            yield from _figures(part.parts)
        elif isinstance(part, Figure):
            yield part


def _making_section(study: Study) -> Section:
    """Tells every run with its command, and which settings runs share and differ in."""
    settings = [
        {key: json.dumps(value, ensure_ascii=False) for key, value in found.items()}
        for found in (flattened(run.settings) for run in study.runs)
    ]
    keys = dict.fromkeys(key for own in settings for key in own)
    differing = [key for key in keys if len({own.get(key) for own in settings}) > 1]
    rows = tuple(
        study.table_row(run.row, run.name, *(own.get(key, MISSING) for key in differing))
        for run, own in zip(study.runs, settings, strict=True)
    )
    differences = PageTable("Differing settings", ("run", *differing), rows)
    shared = "\n".join(f"{key}: {settings[0][key]}" for key in keys if key not in differing)
    machines = [
        {key: value for key, value in run.environment.items() if key != "command"}
        for run in study.runs
    ]
    counted = Counter(json.dumps(each, indent=1, ensure_ascii=False) for each in machines)
    environments = "\n\n".join(f"{times} runs: {text}" for text, times in counted.items())
    return Section(
        "making",
        "How it was made",
        "Everything on this page is read from the run folders; nothing was trained for it.",
        (
            Fold(f"Runs ({len(study.runs)})", (_run_table(study),)),
            Fold("Settings in which runs differ", (differences,)),
            Fold("Settings that all runs share", code=shared),
            Fold("Commands to repeat every run", code=_commands(study.runs)),
            Fold("Environment: versions and hardware", code=environments),
        ),
    )


def _run_table(study: Study) -> PageTable:
    """Lists the runs. Remarks that all of them share stand below the table, once."""
    remarks = [run.result.remarks for run in study.runs if run.result]
    shared = [each for each in remarks[0] if all(each in own for own in remarks)] if remarks else []
    shared *= len(remarks) > 1
    rows = []
    for run in study.runs:
        state = f"step {run.steps_done} of {run.settings.get('steps') or '?'}"
        about = (study.row_name(run.row), run.column, run.seed, "finished" if run.result else state)
        own = run.result.remarks if run.result else ()
        remark = " ".join(each for each in own if each not in shared)
        seconds = parts.number(run.timing.get("seconds"), ".0f")
        rows.append(study.table_row(run.row, run.name, *about, seconds, remark))
    header = ("run", "method", "unseen", "seed", "state", "seconds", "remarks")
    return PageTable("Runs", header, tuple(rows), tuple(f"All runs: {each}" for each in shared))


def _commands(runs: Sequence[Run]) -> str:
    """Says how the runs were started, and gives for each the command that repeats it."""
    commands = [run.environment["command"] for run in runs if run.environment.get("command")]
    lines = [f"# started by: {each}" for each in dict.fromkeys(map(shlex.join, commands))]
    for run in runs:
        merged = run.result.merged if run.result else None
        words = ["train", str(run.folder.settings), "--runs", "again"]
        if merged is not None:
            folders = [f"again/{each.folder}" for each in merged.runs]
            words = ["merge", *folders, "--choose", merged.choose, "-o", f"again/{run.name}"]
        lines.append(shlex.join(["unseen", *words]))
    return "\n".join(lines)
