"""Runs that belong together: those below a folder, or those that a folder of tables lists."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from unseen.atomic import read_json, write_json
from unseen.errors import UnseenError
from unseen.records.folder import RunFolder

_RUN_LIST = "runs.json"


class RunList(NamedTuple):
    """Runs that belong together, wherever they lie, and what a reader should know of the choice."""

    runs: tuple[Path, ...]
    note: str = ""


def write_run_list(folder: Path, chosen: RunList) -> None:
    """`runs.json` beside the tables made of them; the folder then stands for these runs."""
    names = [Path(os.path.relpath(run, folder)).as_posix() for run in chosen.runs]
    write_json(folder / _RUN_LIST, {"runs": names, "note": chosen.note})


def read_run_list(folder: Path) -> RunList | None:
    """The runs that a folder of tables was made of; None for any other folder."""
    path = folder / _RUN_LIST
    if not path.is_file():
        return None
    content = read_json(path)
    try:
        return RunList(tuple(folder / name for name in content["runs"]), str(content["note"]))
    except (KeyError, TypeError) as error:
        raise UnseenError(f"{path} is damaged: it should hold 'runs' and 'note'") from error


def find_runs(folder: Path) -> Iterator[RunFolder]:
    """Every run below a folder, in order of name; or those that a folder of tables lists."""
    listed = read_run_list(folder)
    if listed is not None:
        yield from (RunFolder(run) for run in listed.runs)
        return
    for settings in sorted(folder.rglob("settings.json")):
        yield RunFolder(settings.parent)
