"""The types of settings in calls from Python, from the settings' classes."""

from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from unseen.settings.experiment import Experiment
from unseen.sweeps.sweep_file import Sweep

FILE = Path("src/unseen/settings/typed.py")
LONG = 90
INTRODUCTION = '''\
"""The types of settings in calls from Python. `make docs` writes this file from their classes."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict
'''


def typed_settings() -> str:
    """Return a class for the keys of an experiment, and one for those of a sweep."""
    overrides, sweep = _class("Overrides", Experiment), _class("SweepKeys", Sweep)
    return "\n\n".join([INTRODUCTION, overrides, sweep])


def _class(name: str, model: type[BaseModel]) -> str:
    lines = [f"class {name}(TypedDict, total=False):"]
    for key, field in model.model_fields.items():
        if key != "recipe":
            kind = _type(field.annotation)
            if len(kind) > LONG:
                kind = "(\n        {}\n    )".format(kind.replace(" | ", "\n        | "))
            lines.append(f"    {key}: {kind}")
    return "\n".join(lines) + "\n"


def _type(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return f"Literal{list(get_args(annotation))}".replace("'", '"')
    if get_origin(annotation) is tuple:
        member = _type(get_args(annotation)[0])
        return f"str | Sequence[{member}]"
    if annotation in (bool, int, float, str):
        return annotation.__name__
    if annotation is Path:
        return "str | Path"
    if annotation is NoneType:
        return "None"
    if members := [each for each in get_args(annotation) if get_origin(annotation) is not dict]:
        return " | ".join(_type(member) for member in members)
    return "Mapping[str, Any]"
