"""Commands of `unseen`, called as from a shell."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from unseen.cli.main import main


class Answer(NamedTuple):
    """How a command ended, and what it printed."""

    code: Any
    out: str
    err: str


def commands_in(
    folder: Path, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch
) -> Callable[..., Answer]:
    """Commands given in this folder, in a wide terminal."""
    patch.setenv("COLUMNS", "200")
    patch.chdir(folder)
    patch.setattr(sys, "path", [*sys.path])

    def run(*words: str) -> Answer:
        with pytest.raises(SystemExit) as caught:
            main(words)
        printed = capsys.readouterr()
        return Answer(caught.value.code, printed.out, printed.err)

    return run
