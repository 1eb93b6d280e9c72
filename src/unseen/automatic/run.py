"""`unseen.auto`: from images to a chosen model, with what to expect of it, in a given time."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from rich.console import Console

from unseen.api import forecast_accuracy
from unseen.atomic import write_json
from unseen.audit.audit import audit
from unseen.automatic.adapt import adapt
from unseen.automatic.answer import ADAPTED, AUDIT, FILE, PAGE, REFERENCES, Answer
from unseen.automatic.budget import Clock
from unseen.automatic.search import Search
from unseen.automatic.subject import open_subject
from unseen.data.images import find_images
from unseen.errors import SettingsError
from unseen.results.folder import RunList, write_run_list
from unseen.serve.model import Model
from unseen.settings.recipes import merge, nested
from unseen.settings.typed import Overrides
from unseen.sweeps.sweep_file import as_seeds
from unseen.training.display import Display, progress_console

COPIES, GROUPS = "copies between domains", "copies.csv"


def auto(
    data: str | Path,
    /,
    minutes: float = 20,
    *,
    images: Iterable[str | Path] = (),
    output: str | Path | None = None,
    unseen: str | Sequence[str] = (),
    seeds: str | Sequence[int] = (0,),
    workers: int | None = 0,
    console: Console | None = None,
    **overrides: Unpack[Overrides],
) -> Answer:
    """Find the best model for images like these that this machine can train in so many minutes, and
    say what to expect of it at a new place.

    `data` is a folder `domain/class/*`, a manifest, or the name of a dataset; overrides are
    settings of all runs. Candidates are compared by leaving each domain out in turn, and the one
    that is chosen is trained on all of them. `unseen` names domains that are kept out of everything
    and measured at the end; `images` are files or folders of a new place, for which the answer has
    a forecast. Killed at any moment, the same call continues.

    `workers` is how many processes train (None: as many as there are cores); 0 trains in this
    process. A script that asks for workers has to guard its own code by
    `if __name__ == "__main__":`, because they import it.
    """
    try:
        repeated = as_seeds(seeds)
    except ValueError as error:
        raise SettingsError(f"--seeds: {error}") from None
    if minutes <= 0 or not repeated:
        raise SettingsError("auto needs some minutes and at least one seed")
    clock, console = Clock(60 * minutes), console or progress_console()
    subject = open_subject(data, unseen, overrides)
    home = Path(output) if output is not None else Path(f"auto-{subject.name}")
    with Display(console, len(subject.index), "images") as display:
        dataset, prepared = subject.prepared(display.preparing)
        report = audit(dataset, prepared)
    home.mkdir(parents=True, exist_ok=True)
    report.write_page(prepared, home / AUDIT)
    if report.of(COPIES) and getattr(subject.experiment.data, "group", "none") is None:
        report.write_groups(home / GROUPS)
        groups = {"data": {"group": str((home / GROUPS).resolve())}}
        subject = open_subject(data, unseen, merge(nested(overrides), groups))
    search = Search(subject, home, clock, console, repeated, workers)
    search.run()
    answer = replace(conclude(search), findings=report.findings)
    if files := list(find_images(str(each) for each in images)):
        run = answer.run.folder
        forecast = forecast_accuracy(run.path, files, home / REFERENCES)
        adaptation = adapt(search, Model.from_run(run), files, home / ADAPTED)
        answer = replace(answer, forecast=forecast, adaptation=adaptation)
    return write(answer)


def conclude(search: Search) -> Answer:
    """Trains the winner on all places, lists its references, and reads the answer from the
    records."""
    choice, run, expectation = search.winner(), search.finish(), search.expectation()
    assert expectation is not None
    references = tuple(planned.path for planned in search.runs_of(choice.row))
    note = f"Each left out a place: the references of {run.folder.path}."
    write_run_list(search.home / REFERENCES, RunList(references, note))
    counts, domains = search.subject.index.count_classes(), search.subject.domains
    # each left out a place, with what was chosen for it
    behind = ((row, frozenset({place})) for place, row in expectation.rows.items())
    return Answer(
        home=search.home,
        run=run,
        choice=choice,
        expectation=expectation,
        plain=search.expectation(plain=True),
        candidates=search.candidates,
        tried=search.design.worth(search.scores),
        runs=len(search.runs) + (1 if run.result.merged is None else len(run.result.merged.runs)),
        minutes=search.clock.used / 60,
        images={name: sum(counts[domain][name] for domain in domains) for name in run.classes},
        behind=tuple(search.runs[*each, seed] for each in behind for seed in search.seeds),
        problems=tuple(dict.fromkeys(search.problems)),
    )


def write(answer: Answer) -> Answer:
    """Writes the answer as JSON and as a page, and returns it."""
    write_json(answer.home / FILE, answer.as_json())
    answer.write_page(answer.home / PAGE)
    return answer
