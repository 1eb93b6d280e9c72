"""What travels with an exported file, and how it is read back."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from unseen.errors import UnseenError

FORMAT = 1
UNKNOWN = -1
"""The value of the input `domain` where the domain is not known."""


class About(NamedTuple):
    """Names of classes and domains in the order of the numbers, and what the model is."""

    format: int
    classes: list[str]
    domains: list[str]
    image_size: int
    opinions: bool
    """Whether the file has the input `domain` and the output `opinions`."""
    method: str
    backbone: str
    dataset: str
    selection: str
    run: str


def read_about(path: Path, found: Mapping[str, Any]) -> About:
    """Checked, since any file may carry the right extension."""
    if found.get("format") != FORMAT or set(found) != set(About._fields):
        raise UnseenError(
            f"{path} was not made by this version of 'unseen export': what it says about its "
            f"classes and domains is missing or of format {found.get('format')}, expected "
            f"{FORMAT}; export the run again"
        )
    about = About(**found)
    if not are_names(about.classes, about.domains):
        raise UnseenError(f"{path} is damaged: its classes or domains are no lists of names")
    return about


def are_names(*lists: object) -> bool:
    """Whether all of these are lists of names, and not empty."""
    return all(
        isinstance(each, list) and each and all(isinstance(name, str) for name in each)
        for each in lists
    )
