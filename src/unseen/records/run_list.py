"""Runs that belong together: those below a folder, or those that a folder of tables lists."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from unseen.atomic import read_json, write_json
from unseen.errors import UnseenError
from unseen.records.folder import RunFolder
from unseen.records.format import FORMAT, FormatError, check_format

_RUN_LIST = "runs.json"


class RunList(NamedTuple):
    """Runs that belong together, wherever they lie, and what a reader should know of the choice."""

    runs: tuple[Path, ...]
    note: str = ""
    rows: tuple[str, ...] = ()
    """What the tables call each run's method; empty: the methods' own names."""


def write_run_list(folder: Path, chosen: RunList) -> None:
    """`runs.json` beside the tables made of them; the folder then stands for these runs."""
    names = [Path(os.path.relpath(run, folder)).as_posix() for run in chosen.runs]
    content = {"format": FORMAT, "runs": names, "note": chosen.note, "rows": list(chosen.rows)}
    write_json(folder / _RUN_LIST, content)


def read_run_list(folder: Path) -> RunList | None:
    """The runs that a folder of tables was made of; None for any other folder."""
    path = folder / _RUN_LIST
    if not path.is_file():
        return None
    content = read_json(path)
    check_format(content, path, "make the tables again: unseen compare, or unseen sweep")
    try:
        runs = tuple(folder / name for name in content["runs"])
        return RunList(runs, str(content["note"]), tuple(content.get("rows", ())))
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


def about_other_formats(runs: Path) -> str:
    """What to say where runs of another version lie among those to come; they are not touched."""
    others: list[str] = []
    for settings in sorted(runs.glob("*/settings.json")):
        try:
            RunFolder(settings.parent).read_settings()
        except FormatError:
            others.append(settings.parent.name)
        except UnseenError:
            continue
    if not others:
        return ""
    one = len(others) == 1
    return (
        f"{runs} holds {len(others)} run{'' if one else 's'} that another version of unseen wrote "
        f"(this one writes format {FORMAT}), for example {others[0]}; "
        f"{'it is' if one else 'they are'} left alone and not counted. Move "
        f"{'it' if one else 'them'} away, or choose another folder with --runs DIR"
    )
