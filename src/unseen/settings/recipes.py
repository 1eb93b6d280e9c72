"""Recipes: YAML files of settings, found by name, layered, overridden and checked. No torch."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError, create_model

from unseen.errors import SettingsError, nearest, unknown_name
from unseen.settings import catalog
from unseen.settings.experiment import Experiment, Settings


def flattened(values: Mapping[str, Any], separator: str = ".", prefix: str = "") -> dict[str, Any]:
    """Turns `{"optimizer": {"lr": 1}}` into `{"optimizer.lr": 1}`."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= flattened(value, separator, f"{prefix}{name}{separator}")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


_YAML = {".yaml", ".yml"}
RECIPES = Path(__file__).parents[1] / "recipes"


def recipe_names() -> list[str]:
    """Returns all recipes for which settings were chosen, as `dataset/method`."""
    return [
        f"{dataset}/{method}"
        for dataset in file_names(RECIPES)
        for method in sorted({"aggregate", *_family(dataset)[2]})
    ]


def file_names(folder: Path) -> list[str]:
    """Returns the YAML files in a folder, by the names under which they are found."""
    return sorted(file.stem for file in folder.glob("*.yaml"))


def read_recipe(recipe: str | Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Returns the settings of `dataset/method`, or those in a file over those of its `base`."""
    if not is_own_file(recipe):
        return _compose(str(recipe))
    path = Path(recipe).resolve()
    if path in above:
        raise SettingsError(f"{recipe}: its chain of bases leads back to itself")
    settings = read_yaml(Path(recipe))
    base = settings.pop("base", None)
    if base is None:
        return settings
    beside = path.parent / str(base)
    try:
        below = read_recipe(beside if beside.is_file() else str(base), (*above, path))
    except SettingsError as error:
        raise SettingsError(f"{recipe}: base: {error}") from error
    return merge(below, settings)


def is_own_file(recipe: str | Path) -> bool:
    """Returns whether this is a file of the user's rather than the name of a shipped one."""
    return Path(recipe).suffix in _YAML or Path(recipe).is_file()


def _compose(recipe: str) -> dict[str, Any]:
    """Returns the settings of the dataset, the defaults of the method, and what differs for the
    two."""
    dataset, _, name = recipe.rpartition("/")
    if not dataset:
        raise SettingsError(unknown_name("recipe", recipe, recipe_names(), "unseen list recipes"))
    (_, settings, methods), name = _family(dataset), catalog.method_name(name)
    if name not in methods and not catalog.is_known("method", name):
        names = {*methods, *catalog.entries("method"), *catalog.ALIASES}
        known = [f"{dataset}/{each}" for each in names]
        raise SettingsError(unknown_name("recipe", recipe, known, "unseen list recipes"))
    differs = {k: v for k, v in methods.get(name, {}).items() if k != "about"}
    base = differs.pop("base", "aggregate")
    if base != "aggregate":
        settings = read_recipe(base if "/" in base else f"{dataset}/{base}")
    if not catalog.is_known("method", name):  # `dmg` of a variant such as `dmg_views`
        name = max((m for m in catalog.METHODS if name.startswith(f"{m}_")), key=len)
    return merge(merge(settings, {"method": {"name": name}}), differs)


@cache
def _family(dataset: str) -> tuple[str, dict[str, Any], dict[str, dict[str, Any]]]:
    """Reads a dataset's file of recipes: what it is about, the settings of `dataset/aggregate`, in
    which other methods take its place, and what is different for a method or for a variant such as
    `dmg_views`. Where the file's `base` is another dataset, it has the recipes of that one, too; a
    dataset without a file has those of `folder`."""
    file = RECIPES / f"{dataset}.yaml"
    if file.is_file():
        content = read_yaml(file)
    elif catalog.is_known("dataset", dataset):
        content = {"base": "folder", "about": dataset, "data": {"name": dataset}}
    else:
        known = {*file_names(RECIPES), *catalog.entries("dataset")}
        raise SettingsError(unknown_name("dataset", dataset, known, "unseen list recipes"))
    about, base = content.pop("about"), content.pop("base", None)
    methods = {name: section or {} for name, section in content.pop("methods", {}).items()}
    below: Mapping[str, Any] = {"method": {"name": "aggregate"}}
    if base is not None and "/" in base:
        below = read_recipe(base)
    elif base is not None:
        _, below, others = _family(base)
        methods = merge(others, methods)
    return about, merge(below, content), methods


def about_recipe(recipe: str | Path) -> str:
    """Returns what a recipe is: a line, and below it what there is to say of cost and result. For a
    file (also one of a sweep) these are the comments at its top."""
    if is_own_file(recipe):
        lines = Path(recipe).read_text(encoding="utf-8").splitlines()
        return "\n".join(each[1:].strip() for each in takewhile(lambda o: o.startswith("#"), lines))
    dataset, _, name = str(recipe).rpartition("/")
    (about, _, methods), name = _family(dataset), catalog.method_name(name)
    if name in methods or name == "aggregate":
        return methods.get(name, {"about": about})["about"].strip()
    return f"{name} with its own defaults, and the settings of {dataset}/aggregate"


def read_yaml(path: Path) -> dict[str, Any]:
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(f"there is no file {path}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not YAML: {error}") from error
    if not isinstance(settings, dict):
        raise SettingsError(f"{path} should contain settings as 'key: value' lines")
    return settings


def merge(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Lays settings over others, key by key. Another method or dataset starts from its own
    defaults, and a length in steps takes the place of one in epochs (and the other way round)."""
    merged = dict(lower)
    for one, other in (("steps", "epochs"), ("epochs", "steps")):
        if upper.get(one) is not None:
            merged.pop(other, None)
    for key, value in upper.items():
        below = merged.get(key)
        if not (isinstance(value, Mapping) and isinstance(below, Mapping)):
            merged[key] = value
        elif (
            key in {"method", "data"}
            and {"name"} <= below.keys() & value.keys()
            and (below["name"] != value["name"])
        ):
            merged[key] = dict(value)
        else:
            merged[key] = merge(below, value)
    return merged


def parse_overrides(words: Iterable[str]) -> dict[str, Any]:
    """Reads words `a.b=value` as nested settings; values are YAML."""
    settings: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key:
            raise SettingsError(f"'{word}' is not an override; write key=value, as in seed=3")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise SettingsError(f"the value of '{word}' is not YAML: {error}") from error
        settings = merge(settings, nested({key: value}))
    return settings


def nested(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Turns `{"data.root": x}` into `{"data": {"root": x}}`."""
    settings: dict[str, Any] = {}
    for key, value in overrides.items():
        for part in reversed(key.split(".")):
            value = {part: value}
        settings = merge(settings, value)
    return settings


_NAMED: dict[str, catalog.Kind] = {"data": "dataset", "method": "method", "network": "backbone"}
"""Sections whose name may be an import string; all but the last bring settings of their own."""


def build_experiment(settings: Mapping[str, Any], source: str = "these settings") -> Experiment:
    """Returns complete, checked settings; reports all mistakes, with the nearest valid names."""
    experiment, problems = try_experiment(settings)
    if experiment is None:
        raise SettingsError(f"{source} is not a valid recipe:\n  " + "\n  ".join(problems))
    return experiment


def open_experiment(settings: Mapping[str, Any], path: Path) -> Experiment:
    """Returns the settings that were read from a file of a run or a saved model. It may come from
    anywhere, so modules that they name are imported only where the user trusts them."""
    for section, name, module in _named_modules(settings):
        if not catalog.is_trusted(module):
            raise SettingsError(
                f"{path} asks to import code: {section}.name is '{name}'. It was not opened; if "
                f"you trust the module {module}, add --trust-imports {module} (in Python: "
                f"unseen.trust_imports('{module}'))"
            )
    return build_experiment(settings, str(path))


def _named_modules(settings: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yields section, name and module of everything that is named by an import string."""
    for section, kind in _NAMED.items():
        name = _section_name(settings, section)
        if name is not None and (module := catalog.named_module(kind, name)) is not None:
            yield section, name, module


def try_experiment(settings: Mapping[str, Any]) -> tuple[Experiment | None, list[str]]:
    """Returns complete settings; or none, and a line for every mistake.

    The user has chosen these settings, so the modules that they name are trusted from now on."""
    catalog.trust_imports(*(module for _, _, module in _named_modules(settings)))
    classes: dict[str, type[Settings]] = {}
    problems: list[str] = []
    for section in ("data", "method"):
        kind, name = _NAMED[section], _section_name(settings, section)
        try:
            if name is None:
                raise SettingsError(f"is missing; 'unseen list {kind}s' shows what is available")
            found = catalog.settings_class(kind, name)
            if not (isinstance(found, type) and issubclass(found, Settings)):
                raise SettingsError(f"'{name}' is not a {kind}: it has no settings class 'Config'")
            classes[section] = found
        except SettingsError as error:
            problems.append(f"{section}.name: {error}")
    model = _experiment_class(**classes)
    try:
        experiment = model.model_validate(dict(settings))
    except ValidationError as error:
        # what a section without a valid name may hold is not known
        problems += explain(model, error, {"data", "method"} - classes.keys())
    else:
        if not problems:
            return experiment, []
    return None, list(dict.fromkeys(problems))


@cache
def _experiment_class(**sections: type[Settings]) -> type[Experiment]:
    """Returns the class of experiments with this dataset and method, as far as they are known."""
    fields: dict[str, Any] = {name: (kind, ...) for name, kind in sections.items()}
    return create_model("Experiment", __base__=Experiment, **fields)


def _section_name(settings: Mapping[str, Any], section: str) -> str | None:
    value = settings.get(section)
    name = value.get("name") if isinstance(value, Mapping) else None
    return name if isinstance(name, str) else None


def load_experiment(recipe: str | Path, overrides: Mapping[str, Any] | None = None) -> Experiment:
    """Returns a recipe with overrides (nested or dotted), complete and checked.

    It keeps the recipe's name, unless the overrides choose another method.
    """
    settings = read_recipe(recipe)
    changed = merge(settings, nested(overrides or {}))
    if _section_name(changed, "method") == _section_name(settings, "method"):
        name = Path(recipe)  # `dmg_views` of `pacs/dmg_views` and of a file `mine/dmg_views.yaml`
        last = name.stem if name.suffix in _YAML else name.name
        changed = {"recipe": catalog.method_name(last), **changed}
    return build_experiment(changed, str(recipe))


def explain(
    model: type[BaseModel], error: ValidationError, unclear: Collection[str] = ()
) -> list[str]:
    """Names every mistake in a line of its own (where it is, what was expected, what was found);
    those in an `unclear` section are left out."""
    lines: list[str] = []
    for problem in error.errors():
        keys, known = _place(model, problem["loc"])
        where, kind = ".".join(keys), problem["type"]
        message = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
        if kind == "extra_forbidden":
            message = f"unknown key{nearest(keys[-1], known)}"
        elif kind == "missing":
            message = "is missing"
        elif kind != "value_error":
            message = f"{message}, got {problem['input']!r}"
        if not {*problem["loc"][:1]} & {*unclear}:
            lines.append(f"{where}: {message}" if where else message)
    return list(dict.fromkeys(lines))


def _place(model: type[BaseModel], loc: tuple[int | str, ...]) -> tuple[list[str], list[str]]:
    """Returns keys as a file has them, and which ones the last of them could have been. What
    pydantic adds to tell the members of a union apart is cut."""
    keys: list[str] = []
    known: list[str] = []
    section: Any = model
    for part in loc:
        members = get_args(section)
        if type(None) in members and len(members) == 2:  # `X | None`
            (section,) = (member for member in members if member is not type(None))
        if get_origin(section) is dict:
            known, section = [], get_args(section)[1]
        elif isinstance(section, type) and issubclass(section, BaseModel):
            known = list(section.model_fields)
            field = section.model_fields.get(str(part))
            section = field.annotation if field else None
        else:
            break
        keys.append(str(part))
    return keys, known
