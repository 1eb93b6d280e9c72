"""Errors that a user can act on: what was found, what was expected, and how to fix it."""

import difflib
from collections.abc import Iterable, Sequence

_FEW = 8


class UnseenError(Exception):
    """A mistake in input, settings or data; the command line prints it without a traceback."""


class SettingsError(UnseenError):
    """One or more mistakes in a recipe or in overrides."""


class DataError(UnseenError):
    """Images, lists or folders that cannot be used as they are."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` where something close is known, else an empty string."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else ""


def unknown_name(kind: str, name: str, known: Iterable[str], listed_by: str = "") -> str:
    """The message for a name that is in no catalog: the nearest one, and all of them where they are
    few; of many, the command that lists them."""
    known = sorted(known)
    message = f"unknown {kind} '{name}'{nearest(name, known)}"
    if len(known) <= _FEW:
        return f"{message} (known: {', '.join(known)})"
    if listed_by:
        return f"{message} ('{listed_by}' shows all)"
    return f"{message} (known: {', '.join(known[:_FEW])} and {len(known) - _FEW} more)"


def first_few(items: Sequence[str], limit: int = 5) -> str:
    """Write `a, b, c, ... (12 in all)`."""
    shown = ", ".join(items[:limit])
    return shown if len(items) <= limit else f"{shown}, ... ({len(items)} in all)"
