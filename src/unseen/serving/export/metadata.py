"""What an exported file says about itself."""

import math
from pathlib import Path
from typing import Any, NamedTuple

from unseen.errors import UnseenError
from unseen.records.format import check_format

UNKNOWN = -1
"""The value of the input `domain` where the domain is not known."""


class Metadata(NamedTuple):
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
    profile: str = ""
    """What the model made of its validation images, as `Profile.to_text` writes it."""
    temperature: float | None = None
    """What class scores were divided by before they became probabilities; None in files of versions
    that fitted none."""


def read_metadata(path: Path, found: dict[str, Any]) -> Metadata:
    """Checked, since any file may carry the right extension."""
    if "format" not in found:
        raise UnseenError(
            f"{path} was not made by 'unseen export': it does not name its classes and domains"
        )
    check_format(found, path, "export a run of this version, or use the version that wrote it")
    if not set(Metadata._fields) - set(Metadata._field_defaults) <= found.keys():
        raise UnseenError(f"{path} is damaged: its metadata is not complete; export the run again")
    metadata = Metadata(**found)
    if not are_names(metadata.classes, metadata.domains):
        raise UnseenError(f"{path} is damaged: its classes or domains are not lists of names")
    if metadata.temperature is not None and not is_temperature(metadata.temperature):
        raise UnseenError(f"{path} is damaged: its temperature is not a number above 0")
    return metadata


def is_temperature(value: object) -> bool:
    """Whether this is a number that scores can be divided by."""
    return isinstance(value, float | int) and value is not True and 0 < value < math.inf


def are_names(*lists: object) -> bool:
    """Whether all of these are lists of names, and not empty."""
    return all(
        isinstance(each, list) and each and all(isinstance(name, str) for name in each)
        for each in lists
    )
