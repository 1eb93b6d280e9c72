"""Long names where there is little room."""

import re


def shortened(text: str, room: int) -> str:
    """At most so many letters: the middle goes, for names differ at either end."""
    if len(text) <= room:
        return text
    end = (room - 1) // 2
    return text[: room - 1 - end] + "…" + text[len(text) - end :]


def wrapped(text: str, room: int) -> str:
    """On lines of at most so many letters, broken after spaces, underscores and other signs; a
    word that is longer loses its middle."""
    lines = [""]
    for word in words(text):
        if lines[-1] and len(lines[-1]) + len(word.rstrip()) > room:
            lines.append("")
        lines[-1] += shortened(word, room)
    return "\n".join(line.rstrip() for line in lines)


def words(text: str) -> list[str]:
    """`lab_cellavision` as `lab_` and `cellavision`."""
    return [word for word in re.split(r"(?<=[\s_+=/-])", text) if word]
