"""Tables of settings, from the settings classes themselves: one on each method's page, and the page
of all other settings; and the table of all methods."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from unseen.settings import catalog
from unseen.settings.experiment import DataSettings, Experiment, MethodSettings, Settings
from unseen.settings.ranges import declared

MARK = "<!-- settings -->"
HEADER = "| setting | meaning | default, values |\n|---|---|---|"


def method_pages(folder: Path) -> dict[Path, str]:
    """Every page of docs/methods, with its table as it should be."""
    pages = {}
    for name in catalog.METHODS:
        page = folder / f"{name}.md"
        added = _added(catalog.load("method", name).Config, MethodSettings)
        table = _table(added) if added else "This method has no settings of its own."
        pages[page] = completed(page.read_text(encoding="utf-8"), table)
    return pages


def methods_page(page: str, folder: Path) -> str:
    """The page of methods, with a table of those in the catalog for each family that their pages
    name."""
    targets = {"unused": "", "optional": ", also target images"}
    header = "| name | idea | learns from |\n|---|---|---|"
    parts = []
    for family, names in families(folder).items():
        rows = [f"### {family.capitalize()}", "", header]
        for name in names:
            traits = catalog.load("method", name).traits
            seen = "pixels" if traits.needs_pixels else "features"
            seen += ", in stacks" if traits.stackable else ""
            seen += targets.get(traits.target_images, ", and target images")
            idea = catalog.METHODS[name].description
            rows.append(f"| [`{name}`](methods/{name}.md) | {idea} | {seen} |")
        parts.append("\n".join(rows))
    before, _, after = page.partition("<!-- methods -->")
    _, _, rest = after.partition("<!-- end of methods -->")
    tables = "\n\n".join(parts)
    return f"{before}<!-- methods -->\n{tables}\n<!-- end of methods -->{rest}"


def families(folder: Path) -> dict[str, list[str]]:
    """The methods of each family, both in the order of the catalog."""
    found: dict[str, list[str]] = {}
    for name in catalog.METHODS:
        page = (folder / f"{name}.md").read_text(encoding="utf-8")
        family = re.search(r"^Family: \[(.+?)\]", page, flags=re.MULTILINE)
        if family is None:
            raise SystemExit(f"docs/methods/{name}.md lacks the line 'Family: [...](...)'")
        found.setdefault(family[1], []).append(name)
    return found


def settings_page(page: str) -> str:
    """The page of settings, with a table for each section of an experiment."""
    sections = {
        name: field.annotation
        for name, field in Experiment.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, Settings)
    }
    whole = {n: f for n, f in Experiment.model_fields.items() if n not in sections}
    parts = [f"## The run as a whole\n\n{_table(whole)}"]
    for name, section in sections.items():
        if name == "method":
            continue
        parts.append(f"## {name}\n\n{_table(section.model_fields, f'{name}.')}")
        parts += _dataset_tables() if name == "data" else []
    before, mark, _ = page.partition(MARK)
    return f"{before}{mark}\n\n" + "\n\n".join(parts) + "\n"


def completed(page: str, table: str) -> str:
    """The page with the table in its place: after the mark, up to the next heading."""
    before, mark, after = page.partition(MARK)
    if not mark:
        raise SystemExit(f"a page lacks the line {MARK}: {page.splitlines()[0]}")
    following = re.search(r"^## ", after, flags=re.MULTILINE)
    rest = after[following.start() :] if following else ""
    return f"{before}{MARK}\n{table}\n\n{rest}"


def _dataset_tables() -> list[str]:
    """The settings that only some datasets have; those of several datasets stand once."""
    owners: dict[str, list[str]] = {}
    for name in catalog.DATASETS:
        added = _added(catalog.load("dataset", name).Config, DataSettings)
        if added:
            owners.setdefault(_table(added, "data."), []).append(f"`{name}`")
    return [f"Only for {', '.join(names)}:\n\n{table}" for table, names in owners.items()]


def _added(config: type[Settings], base: type[Settings]) -> dict[str, FieldInfo]:
    return {n: field for n, field in config.model_fields.items() if n not in base.model_fields}


def _table(fields: Mapping[str, FieldInfo], prefix: str = "") -> str:
    rows = [_row(prefix + name, field) for name, field in fields.items()]
    return "\n".join([HEADER, *rows])


def _row(name: str, field: FieldInfo) -> str:
    values = ", ".join(each for each in (_default(field), _values(field)) if each)
    return f"| `{name}` | {_meaning(field)} | {values} |"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if value is None or value in ((), {}, ""):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _values(field: FieldInfo) -> str:
    """What a setting may be, as far as its default does not show it; and where sweeps search."""
    signs = {"Gt": ">", "Ge": "≥", "Lt": "<", "Le": "≤"}
    bounds = [
        f"{signs[kind]}\N{NO-BREAK SPACE}{getattr(rule, kind.lower())}"
        for rule in field.metadata
        if (kind := type(rule).__name__) in signs
    ]
    search = declared(field.metadata)
    searched = [f"search {search}".replace(", log", " (log)")] if search else []
    return ", ".join([*_kinds(field), *bounds, *searched])


def _kinds(field: FieldInfo) -> list[str]:
    shown = field.default is not None and not field.is_required()
    names = {bool: "true or false", int: "whole number", float: "number", Path: "path"}
    found = []
    for part in _parts(field.annotation):
        if get_origin(part) is Literal:
            others = [f"`{each}`" for each in get_args(part) if each != field.default]
            found.append(f"or {', '.join(others)}")
        elif get_origin(part) in (tuple, list):
            found.append("list")
        elif get_origin(part) in (dict, Mapping):
            found.append("mapping")
        elif part is Path or (part in names and not shown):
            found.append(names[part])
    return found


def _parts(annotation: Any) -> list[Any]:
    """The types that a union is made of, or the one type."""
    if get_origin(annotation) is Union or type(annotation).__name__ == "UnionType":
        return list(get_args(annotation))
    return [annotation]


def _meaning(field: FieldInfo) -> str:
    return " ".join((field.description or "").split()).replace("|", "\\|")
