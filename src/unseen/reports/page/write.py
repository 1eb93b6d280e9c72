"""A folder of runs becomes one file: no script, style, font or image is fetched from anywhere."""

import json
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from unseen.errors import UnseenError
from unseen.reports.figures.figure import Figure, check_can_print, write_figures
from unseen.reports.page.accuracy import comparison_section, tables_section
from unseen.reports.page.classes import classes_section
from unseen.reports.page.conclusion import conclude
from unseen.reports.page.methods import (
    importance_section,
    masks_section,
    reweighting_section,
    summary_text,
)
from unseen.reports.page.parts import (
    TEMPLATES,
    Fold,
    PageTable,
    Part,
    Section,
    number,
    page_row,
    render_page,
    write_whole,
)
from unseen.reports.page.pictures import features_section
from unseen.reports.page.published import published_section
from unseen.reports.page.studies import Run, Study, load_runs, make_studies
from unseen.reports.page.training import training_section
from unseen.results.folder import find_runs, read_run_list, safe_name
from unseen.results.rules import RULES, check_rule, meaning
from unseen.settings.experiment import Metric
from unseen.settings.recipes import flattened


def write_report(
    runs: Path,
    folder: Path,
    rule: str | None = None,
    figures: bool = False,
    refresh: int | None = None,
    metric: Metric | None = None,
) -> Path:
    """Returns the path of the page. `refresh`: it reloads itself every so many seconds. `metric`:
    shown in place of the one that each run's checkpoint was chosen by."""
    if rule is not None:
        check_rule(rule)
    if figures:
        check_can_print()
    if not runs.is_dir():
        raise UnseenError(f"{runs} is not a folder; give the folder that holds the runs")
    loaded, problems = load_runs(runs)
    if not loaded and not problems and refresh is None:
        raise UnseenError(f"there are no runs below {runs}; 'unseen compare digits' makes some")
    studies = make_studies(loaded, rule, metric)
    recorded = [each for each in RULES if any(each in study.rules for study in studies)]
    if rule is not None and recorded and rule not in recorded:
        raise UnseenError(
            f"no run recorded the selection rule '{rule}' (recorded: {', '.join(sorted(recorded))})"
        )
    sections = [_sections(study) for study in studies]
    listed = read_run_list(runs)
    damaged = tuple(page_row(path.name, reason) for path, reason in problems)
    content: dict[str, Any] = {
        "chapters": [
            (study, [conclude(study, each) for each in study.rules or (study.main_rule,)], parts)
            for study, parts in zip(studies, sections, strict=True)
        ],
        "left_out": PageTable(
            "Runs that could not be read and are left out", ("run", "why"), damaged
        ),
        "note": listed.note if listed else "",
        "rules": {each: _meaning(studies, each) for each in recorded},
        "chosen": rule or (studies[0].main_rule if studies else "source"),
        "refresh": refresh,
    }
    page = folder / "report.html"
    write_whole(page, render_page(TEMPLATES / "page.html", content))
    if summary := summary_text(studies):
        write_whole(folder / "summary_report.txt", summary)
    for study, own in zip(studies, sections, strict=True) if figures else ():
        home = folder / "figures" / (safe_name(study.title) if len(studies) > 1 else "")
        write_figures(_figures(part for section in own for part in section.parts), home)
    return page


def _meaning(studies: list[Study], rule: str) -> str:
    meanings = {study.meaning(rule) for study in studies}
    return meanings.pop() if len(meanings) == 1 else meaning(rule, None)


def _sections(study: Study) -> list[Section]:
    """Returns the sections in the order of the page; one that has nothing to show is left out."""
    sections = (
        tables_section,
        comparison_section,
        classes_section,
        training_section,
        masks_section,
        importance_section,
        reweighting_section,
        features_section,
        published_section,
        _making_section,
    )
    drawn = (section(study) for section in sections)
    return [section for section in drawn if section is not None and section.parts]


def _figures(parts: Iterable[Part]) -> Iterator[Figure]:
    for part in parts:
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
    keys = list(dict.fromkeys(key for own in settings for key in own))
    alike = [key for key in keys if len({own.get(key) for own in settings}) == 1]
    differing = [key for key in keys if key not in alike]
    rows = tuple(
        study.table_row(run.row, run.name, *(own.get(key, "–") for key in differing))
        for run, own in zip(study.runs, settings, strict=True)
    )
    differences = PageTable("Differing settings", ("run", *differing), rows)
    shared = "\n".join(f"{key}: {settings[0][key]}" for key in alike)
    environments = Counter(
        json.dumps(_without_command(run.environment), indent=1, ensure_ascii=False)
        for run in study.runs
    )
    machines = "\n\n".join(f"{times} runs: {text}" for text, times in environments.items())
    return Section(
        "making",
        "How it was made",
        "Everything on this page is read from the run folders; nothing was trained for it.",
        (
            Fold(f"Runs ({len(study.runs)})", (_run_table(study),)),
            Fold("Settings in which runs differ", (differences,)),
            Fold("Settings that all runs share", code=shared),
            Fold("Commands to repeat every run", code=_commands(study.runs)),
            Fold("Environment: versions and hardware", code=machines),
        ),
    )


def _without_command(environment: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in environment.items() if key != "command"}


def _run_table(study: Study) -> PageTable:
    """Lists the runs. Remarks that all of them share stand below the table, once."""
    remarks = [run.result.remarks for run in study.runs if run.result]
    several = len(remarks) > 1
    shared = [r for r in remarks[0] if all(r in own for own in remarks)] if several else []
    rows = []
    for run in study.runs:
        steps = run.settings.get("steps") or "?"
        state = "finished" if run.result else f"step {run.steps_done} of {steps}"
        seconds = number(run.timing.get("seconds"), ".0f")
        own = " ".join(e for e in (run.result.remarks if run.result else ()) if e not in shared)
        about = (study.row_name(run.row), run.column, run.seed, state, seconds, own)
        rows.append(study.table_row(run.row, run.name, *about))
    header = ("run", "method", "unseen", "seed", "state", "seconds", "remarks")
    return PageTable("Runs", header, tuple(rows), tuple(f"All runs: {each}" for each in shared))


def _commands(runs: Sequence[Run]) -> str:
    """Says how the runs were started, and gives for each the command that repeats it."""
    commands = [run.environment["command"] for run in runs if run.environment.get("command")]
    lines = [f"# started by: {each}" for each in dict.fromkeys(map(shlex.join, commands))]
    for run in runs:
        merged = run.result.merged if run.result else None
        if merged is not None:
            parts = " ".join(shlex.quote(f"again/{each.folder}") for each in merged.runs)
            output = shlex.quote(f"again/{run.name}")
            lines.append(f"unseen merge {parts} --choose {merged.choose} -o {output}")
        else:
            lines.append(f"unseen train {shlex.quote(str(run.folder.settings))} --runs again")
    return "\n".join(lines)


def watch(
    runs: Path,
    write: Callable[[], Path],
    seconds: float,
    sleep: Callable[[float], None] = time.sleep,
    written: Callable[[Path], None] = lambda page: None,
) -> None:
    """Writes the page now, and again whenever a record has changed; until it is interrupted."""
    before: object = None
    while True:
        now = _state(runs)
        if now != before:
            written(write())
            before = now
        sleep(seconds)


def _state(runs: Path) -> list[tuple[str, int, int]]:
    """Returns size and time of the files that a page is made of."""
    found = []
    for run in find_runs(runs):
        for path in (run.settings, run.metrics, run.result):
            with suppress(OSError):  # not there yet
                about = path.stat()
                found.append((str(path), about.st_size, about.st_mtime_ns))
    return found
