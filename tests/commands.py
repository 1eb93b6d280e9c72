"""Commands of `unseen`, called as from a shell."""

from typing import Any, NamedTuple

import pytest

from unseen.cli.main import main


class Answer(NamedTuple):
    """How a command ended, and what it printed."""

    code: Any
    out: str
    err: str


def answer_to(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> Answer:
    with pytest.raises(SystemExit) as caught:
        main(words)
    printed = capsys.readouterr()
    return Answer(caught.value.code, printed.out, printed.err)
