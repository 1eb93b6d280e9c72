"""Text from anywhere, made fit for Markdown, for spreadsheets and for little room."""

import re
from collections.abc import Iterable, Sequence

MISSING = "–"
"""Stands where a number should be, and there is none."""


def escaped(text: str) -> str:
    """Returns one line with what Markdown acts on escaped; an underscore within a word is safe."""
    plain = re.sub(r"([\\`*|<>\[\]~$&#])", r"\\\1", one_line(text))
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", plain)


def one_line(text: str) -> str:
    """Replaces line breaks, escape codes and direction marks, which would break a table apart."""
    return "".join(character if character.isprintable() else " " for character in text)


def code(text: str) -> str:
    """Returns one line as code in Markdown, whatever it holds."""
    return "`" + one_line(text).replace("`", "'") + "`"


def csv_cell(value: object) -> object:
    """Returns a cell that no spreadsheet takes for a formula, with an apostrophe before a text that
    begins like one, and that no reader takes for two lines."""
    if not isinstance(value, str):
        return value
    text = value.replace("\r", " ")
    return f"'{text}" if text.lstrip().startswith(("=", "+", "-", "@")) else text


def pipe_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns a table whose cells may hold anything."""
    cells = ([escaped(str(cell)) for cell in row] for row in rows)
    lines = (header, ["---"] * len(header), *cells)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def aligned_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table whose cells are Markdown already, with columns aligned, so that it can be
    read as it is, too."""
    lines = [header, *rows]
    widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    padded = [[line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in (padded[0], rule, *padded[1:]))


def shortened(text: str, room: int) -> str:
    """Returns at most so many letters: the middle goes, for names differ at either end."""
    if len(text) <= room:
        return text
    end = (room - 1) // 2
    return text[: room - 1 - end] + "…" + text[len(text) - end :]


def wrapped(text: str, room: int) -> str:
    """Returns lines of at most so many letters, broken after spaces, underscores and other signs; a
    word that is longer loses its middle."""
    lines = [""]
    for word in words(text):
        if lines[-1] and len(lines[-1]) + len(word.rstrip()) > room:
            lines.append("")
        lines[-1] += shortened(word, room)
    return "\n".join(line.rstrip() for line in lines)


def words(text: str) -> list[str]:
    """Splits `lab_cellavision` into `lab_` and `cellavision`."""
    return [word for word in re.split(r"(?<=[\s_+=/-])", text) if word]
