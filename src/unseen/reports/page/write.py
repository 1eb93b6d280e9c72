"""A folder of runs becomes one file: no script, style, font or image is fetched from anywhere."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unseen.errors import UnseenError
from unseen.reports.figures.figure import Figure, check_can_print, write_figures
from unseen.reports.page.accuracy import comparison_section, published_section, tables_section
from unseen.reports.page.classes import classes_section
from unseen.reports.page.conclusion import Conclusion, conclude
from unseen.reports.page.importance import importance_section, summary_text
from unseen.reports.page.making import making_section, problem_table
from unseen.reports.page.masks import masks_section
from unseen.reports.page.parts import Fold, Part, Section
from unseen.reports.page.pictures import features_section
from unseen.reports.page.runs import load_runs
from unseen.reports.page.studies import Study, make_studies
from unseen.reports.page.training import reweighting_section, training_section
from unseen.reports.rendering import TEMPLATES, render_page, write_whole
from unseen.results.folder import find_runs, read_run_list, safe_name
from unseen.results.rules import RULES, check_rule, meaning
from unseen.settings.experiment import Metric

SECTIONS: tuple[Callable[[Study], Section | None], ...] = (
    tables_section,
    comparison_section,
    published_section,
    training_section,
    masks_section,
    importance_section,
    reweighting_section,
    classes_section,
    features_section,
    making_section,
)
"""In the order of the page; one that has nothing to show is left out."""


@dataclass(frozen=True)
class Chapter:
    """A study with its conclusion under each rule, and its sections."""

    study: Study
    conclusions: tuple[Conclusion, ...]
    sections: tuple[Section, ...]
    number: int


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
    chapters = [_chapter(study, number) for number, study in enumerate(studies)]
    listed = read_run_list(runs)
    content: dict[str, Any] = {
        "chapters": chapters,
        "left_out": problem_table(problems) if problems else None,
        "note": listed.note if listed else "",
        "rules": {each: _meaning(studies, each) for each in recorded},
        "chosen": rule or (studies[0].main_rule if studies else "source"),
        "refresh": refresh,
    }
    page = folder / "report.html"
    write_whole(page, render_page(TEMPLATES / "page.html", content))
    if summary := summary_text(studies):
        write_whole(folder / "summary_report.txt", summary)
    for chapter in chapters if figures else ():
        home = folder / "figures" / (safe_name(chapter.study.title) if len(chapters) > 1 else "")
        parts = (part for section in chapter.sections for part in section.parts)
        write_figures(_figures(parts), home)
    return page


def _chapter(study: Study, number: int) -> Chapter:
    drawn = (section(study) for section in SECTIONS)
    return Chapter(
        study,
        tuple(conclude(study, rule) for rule in study.rules or (study.main_rule,)),
        tuple(section for section in drawn if section is not None),
        number,
    )


def _meaning(studies: list[Study], rule: str) -> str:
    meanings = {study.meaning(rule) for study in studies}
    return meanings.pop() if len(meanings) == 1 else meaning(rule, None)


def _figures(parts: Iterable[Part]) -> Iterator[Figure]:
    for part in parts:
        if isinstance(part, Fold):
            yield from _figures(part.parts)
        elif isinstance(part, Figure):
            yield part


def watch(
    runs: Path,
    write: Callable[[], Path],
    seconds: float,
    sleep: Callable[[float], None] = time.sleep,
    written: Callable[[Path], None] = lambda page: None,
) -> None:
    """Write the page now, and again whenever a record has changed; until it is interrupted."""
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
