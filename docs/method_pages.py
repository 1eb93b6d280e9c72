"""Writes the table of settings into every page of docs/methods, from the methods' own classes.

make docs
"""

import re
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from unseen import catalog
from unseen.config import MethodSettings
from unseen.search import declared

PAGES = Path(__file__).parent / "methods"
MARK = "<!-- settings -->"
NOTHING = "It has no settings of its own."


def settings_table(config: type[MethodSettings]) -> str:
    """A Markdown table with one row for each setting that the method adds."""
    own = {
        name: field
        for name, field in config.model_fields.items()
        if name not in MethodSettings.model_fields
    }
    if not own:
        return NOTHING
    rows = [_row(name, field) for name, field in own.items()]
    header = "| setting | default | values | search | meaning |"
    return "\n".join([header, "|---|---|---|---|---|", *rows])


def _row(name: str, field: FieldInfo) -> str:
    cells = (f"`{name}`", _default(field), _values(field), _search(field), _meaning(field))
    return f"| {' | '.join(cells)} |"


def completed(page: str, table: str) -> str:
    """The page with the table in its place: after the mark, up to the next heading."""
    before, mark, after = page.partition(MARK)
    if not mark:
        raise SystemExit(f"a page lacks the line {MARK}: {page.splitlines()[0]}")
    following = re.search(r"^## ", after, flags=re.MULTILINE)
    rest = after[following.start() :] if following else ""
    return f"{before}{MARK}\n{table}\n\n{rest}"


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is None or value == ():
        return "empty"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _values(field: FieldInfo) -> str:
    signs = {"Gt": ">", "Ge": "≥", "Lt": "<", "Le": "≤"}
    bounds = [
        f"{signs[kind]} {getattr(rule, kind.lower())}"
        for rule in field.metadata
        if (kind := type(rule).__name__) in signs
    ]
    return ", ".join([*_kinds(field.annotation), *bounds])


def _kinds(annotation: Any) -> list[str]:
    if get_origin(annotation) is Literal:
        return [f"`{choice}`" for choice in get_args(annotation)]
    if get_origin(annotation) is Union or type(annotation).__name__ == "UnionType":
        return [kind for part in get_args(annotation) for kind in _kinds(part)]
    if get_origin(annotation) is tuple:
        return ["list"]
    names = {bool: "true or false", int: "whole number", float: "number", str: "name"}
    return [] if annotation is type(None) else [names[annotation]]


def _search(field: FieldInfo) -> str:
    """What `unseen sweep` draws it from."""
    return str(declared(field.metadata) or "")


def _meaning(field: FieldInfo) -> str:
    return " ".join((field.description or "").split()).replace("|", "\\|")


def main() -> None:
    for name in catalog.METHODS:
        page = PAGES / f"{name}.md"
        table = settings_table(catalog.load("method", name).Config)
        page.write_text(completed(page.read_text(encoding="utf-8"), table), encoding="utf-8")


if __name__ == "__main__":
    main()
