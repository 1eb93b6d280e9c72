"""The version of all that is written to disk, in one place."""

from pathlib import Path
from typing import Any, cast

from unseen.errors import UnseenError

FORMAT = 2
"""Of run folders, lists of runs, the choices of a sweep, saved models and exported files. It is
raised by one with every change that older code, or newer code, would misread. Prepared images have
a version of their own (`data.cache.PREPARATION_VERSION`): they are made again by themselves."""


class FormatError(UnseenError):
    """Written by another version of unseen."""


def check_format(content: Any, path: Path, remedy: str) -> None:
    """Raise unless `content`, read from `path`, says that it has today's format.

    What says nothing is of the first format, which did not always name itself.
    """
    if not isinstance(content, dict):
        raise UnseenError(f"{path} is damaged: it should hold names and values")
    found = cast(dict[str, Any], content).get("format", 1)
    if found == FORMAT:
        return
    if isinstance(found, int) and found > FORMAT:
        remedy = "install a newer version of unseen to read it"
    raise FormatError(
        f"{path} was written in format {found}, and this version of unseen reads format {FORMAT}; "
        f"{remedy}"
    )
