"""A folder of runs becomes one file: no script, style, font or image is fetched from anywhere."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unseen.errors import UnseenError
from unseen.reports.figures.figure import Figure, check_can_print, write_figures
from unseen.reports.page.accuracy import comparison_section, tables_section
from unseen.reports.page.classes import classes_section
from unseen.reports.page.conclusion import Conclusion, conclude
from unseen.reports.page.making import making_section, problem_table
from unseen.reports.page.masks import masks_section
from unseen.reports.page.methods.importance import importance_section, summary_text
from unseen.reports.page.methods.reweighting import reweighting_section
from unseen.reports.page.parts import Fold, PageTable, Part, Section
from unseen.reports.page.pictures import features_section
from unseen.reports.page.published import published_section
from unseen.reports.page.runs import load_runs
from unseen.reports.page.studies import Study, make_studies
from unseen.reports.page.training import training_section
from unseen.reports.rendering import TEMPLATES, render_page, write_whole
from unseen.results.folder import read_run_list, safe_name
from unseen.results.rules import RULES, check_rule, meaning
from unseen.settings.experiment import Metric

PAGE = "report.html"
SUMMARY = "summary_report.txt"


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
    """The path of the page. `refresh`: it reloads itself every so many seconds. `metric`: shown in
    the place of that which each run's checkpoint was chosen by."""
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
    _check_recorded(studies, rule)
    chapters = [_chapter(study, number) for number, study in enumerate(studies)]
    left_out = problem_table(problems) if problems else None
    page = folder / PAGE
    listed = read_run_list(runs)
    note = listed.note if listed else ""
    write_whole(page, render(chapters, left_out, rule, refresh, note))
    summary = summary_text(studies)
    if summary:
        write_whole(folder / SUMMARY, summary)
    if figures:
        _write_figures(chapters, folder / "figures")
    return page


def _check_recorded(studies: list[Study], rule: str | None) -> None:
    recorded = {each for study in studies for each in study.rules}
    if rule is not None and recorded and rule not in recorded:
        raise UnseenError(
            f"no run recorded the selection rule '{rule}' (recorded: {', '.join(sorted(recorded))})"
        )


def _chapter(study: Study, number: int) -> Chapter:
    sections = [
        tables_section(study),
        comparison_section(study),
        published_section(study),
        training_section(study),
        masks_section(study),
        importance_section(study),
        reweighting_section(study),
        classes_section(study),
        features_section(study),
        making_section(study),
    ]
    rules = study.rules or (study.main_rule,)
    return Chapter(
        study,
        tuple(conclude(study, rule) for rule in rules),
        tuple(section for section in sections if section is not None),
        number,
    )


def render(
    chapters: list[Chapter],
    left_out: PageTable | None,
    rule: str | None,
    refresh: int | None,
    note: str,
) -> str:
    """The page as text."""
    recorded = [each for each in RULES if any(each in c.study.rules for c in chapters)]
    content: dict[str, Any] = {
        "chapters": chapters,
        "left_out": left_out,
        "note": note,
        "rules": {each: _meaning(chapters, each) for each in recorded},
        "chosen": rule or (chapters[0].study.main_rule if chapters else "source"),
        "refresh": refresh,
    }
    return render_page(TEMPLATES / "page.html", content)


def _meaning(chapters: list[Chapter], rule: str) -> str:
    told = {chapter.study.meaning(rule) for chapter in chapters}
    return told.pop() if len(told) == 1 else meaning(rule, None)


def _write_figures(chapters: list[Chapter], folder: Path) -> None:
    for chapter in chapters:
        home = folder / safe_name(chapter.study.title) if len(chapters) > 1 else folder
        parts = (part for section in chapter.sections for part in section.parts)
        write_figures(_figures(parts), home)


def _figures(parts: Iterable[Part]) -> Iterator[Figure]:
    for part in parts:
        if isinstance(part, Fold):
            yield from _figures(part.parts)
        elif isinstance(part, Figure):
            yield part
