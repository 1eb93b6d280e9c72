"""The draws of a sweep: values of settings that have a range, or the points of a grid."""

from collections.abc import Iterator
from itertools import product
from typing import Any, get_args

from pydantic.fields import FieldInfo

from unseen import catalog
from unseen.config import Settings
from unseen.errors import nearest
from unseen.experiments.bases import SET_BY_THE_SWEEP, Base, named_ranges
from unseen.experiments.sweep_file import MethodPart, Sweep
from unseen.recipe_files import merge, nested, try_experiment
from unseen.search import Range, declared, fraction


def setting_fields(settings: Settings, prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every single setting, by its dotted path."""
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, Settings):
            yield from setting_fields(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field


def search_ranges(sweep: Sweep, base: Base) -> dict[str, Range]:
    """Ranges of a method's settings: those that stand on them, then the file's, which win."""
    fields = dict(setting_fields(base.experiment))
    found = {path: declared(field.metadata) for path, field in fields.items()}
    for path, described in named_ranges(sweep, base).items():
        if path in fields:
            found[path] = described.range(whole=_takes_whole_numbers(fields[path]))
    return {
        path: known
        for path, known in found.items()
        if known is not None and (not sweep.search or path in sweep.search)
    }


def choices(sweep: Sweep, base: Base, seed: int) -> list[dict[str, Any]]:
    """What each draw changes, by dotted path; the draw's number is its place in the list."""
    grid = sweep.grid | sweep.by_method.get(base.method, MethodPart()).grid
    if grid:
        own = {path: values for path, values in grid.items() if path in _paths(base)}
        return [dict(zip(own, point, strict=True)) for point in product(*own.values())]
    ranges = search_ranges(sweep, base)
    return [
        {path: _draw(sweep, base, number, seed, path, ranges[path]) for path in ranges if number}
        for number in range(sweep.draws or 1)
    ]


def _draw(sweep: Sweep, base: Base, number: int, seed: int, path: str, known: Range) -> Any:
    """The same on every machine, and for every held-out domain; another one for each seed."""
    return known.draw(fraction(sweep.search_seed, base.method, number, seed, path))


def range_mistakes(sweep: Sweep, bases: list[Base]) -> Iterator[str]:
    """Names that no method has, and values beyond the bounds of a setting."""
    own = {path for base in bases for path in _paths(base)}
    known = own | _paths_of_all_methods()
    ranged = {path for base in bases for path in search_ranges(sweep, base)}
    named = [("ranges", sweep.ranges, known), ("grid", sweep.grid, known)]
    named.append(("search", dict.fromkeys(sweep.search), known))
    for dataset, about in sweep.by_dataset.items():
        named.append((f"by_dataset.{dataset}.ranges", about.ranges, known))
    for base in bases:
        part = sweep.by_method.get(base.method, MethodPart())
        for key, given in (("ranges", part.ranges), ("grid", part.grid)):
            named.append((f"by_method.{base.method}.{key}", given, _paths(base)))
    for key, path, valid in ((key, path, valid) for key, given, valid in named for path in given):
        if path in SET_BY_THE_SWEEP:
            yield f"{key}.{path}: is chosen by '{SET_BY_THE_SWEEP[path]}'"
        elif path.startswith("devices."):
            yield f"{key}.{path}: has no influence on the result"
        elif path not in valid:
            yield f"{key}.{path}: unknown setting{nearest(path, valid)}"
        elif key == "ranges" and sweep.search and path not in sweep.search:
            yield f"ranges.{path}: is not searched; add it to search, or leave search out"
        elif key == "search" and path not in ranged and path in own:
            yield f"search: {path} has no range; give it one under ranges"
    for base in bases:
        yield from _value_mistakes(sweep, base)


def _value_mistakes(sweep: Sweep, base: Base) -> Iterator[str]:
    """Values that a setting of the method does not accept."""
    grid = sweep.grid | sweep.by_method.get(base.method, MethodPart()).grid
    ranges = {} if grid else search_ranges(sweep, base)
    values = [("ranges", path, value) for path in ranges for value in ranges[path].extremes()]
    values += [("grid", path, value) for path, many in grid.items() for value in many]
    for key, path, value in values:
        if path in _paths(base) and path not in SET_BY_THE_SWEEP:
            _, problems = try_experiment(merge(base.settings, nested({path: value})))
            yield from (f"{key}: {problem} ({base.name})" for problem in problems)


def _paths(base: Base) -> set[str]:
    return {path for path, _ in setting_fields(base.experiment)}


def _paths_of_all_methods() -> set[str]:
    """A file may speak of a method that a shorter list of methods leaves out."""
    configs = [catalog.load("method", name).Config for name in catalog.METHODS]
    return {f"method.{name}" for config in configs for name in config.model_fields}


def _takes_whole_numbers(field: FieldInfo) -> bool:
    kinds = get_args(field.annotation) or (field.annotation,)
    return int in kinds and float not in kinds
