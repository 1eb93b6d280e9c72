"""Sweep files: which runs, what is searched, which rule chooses. Read and checked like recipes.

A comparison is a sweep of one draw. No torch.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    model_validator,
)

from unseen.errors import SettingsError, unknown_name
from unseen.results.result import UPPER_BOUND
from unseen.settings import catalog, recipes
from unseen.settings.experiment import Experiment, Names, Settings, as_list
from unseen.settings.ranges import Choice, LogUniform, Range, Uniform
from unseen.settings.recipes import explain, flattened, nested

SWEEPS = Path(__file__).parent / "shipped"
_BY_NAME = ("by_method", "by_dataset")

Rule = Literal["source", "last", "leave-one-domain-out", "infomax", "snd", "bnm", "dev", "oracle"]


def as_seeds(value: Any) -> Any:
    """Read `0,1,2` or `0-4`, or both."""
    if not isinstance(value, int | str):
        return value
    seeds: list[int] = []
    for word in as_list(value):
        first, dash, last = word.partition("-")
        try:
            seeds += range(int(first), int(last) + 1) if dash else [int(first)]
        except ValueError:
            raise ValueError(f"seeds are numbers such as 0,1,2 or 0-4, got '{word}'") from None
    return list(dict.fromkeys(seeds))


def _as_values(value: Any) -> Any:
    """Read `1e-4,1e-3` as a list, too, and a single value as a list of one."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",")]
    return value if isinstance(value, list | tuple) else [value]


_KINDS: dict[str, Callable[..., Range]] = {
    "log_uniform": LogUniform,
    "uniform": Uniform,
    "choice": lambda *values: Choice(values),
}


def _as_range(value: Any) -> Range:
    """Read `{log_uniform: [1e-4, 1e-2]}`, `{uniform: [0, 1]}` or `{choice: [a, b]}`, which
    `_normal` has made a list of pairs."""
    if not isinstance(value, list) or len(value) != 1 or value[0][0] not in _KINDS:
        given = ", ".join(kind for kind, _ in value) if isinstance(value, list) else repr(value)
        raise ValueError(f"a range is one of {', '.join(_KINDS)}, got {given}")
    [(kind, values)] = value
    try:
        return _KINDS[kind](*(values if kind == "choice" else map(float, values)))
    except (SettingsError, TypeError, ValueError) as error:
        raise ValueError(str(error)) from None


def _as_settings(known: Range) -> dict[str, Any]:
    if isinstance(known, Choice):
        return {"choice": known.values}
    kind = "log_uniform" if isinstance(known, LogUniform) else "uniform"
    return {kind: (known.low, known.high)}


Ranges = dict[str, Annotated[Range, PlainValidator(_as_range), PlainSerializer(_as_settings)]]
Grid = dict[str, Annotated[tuple[Any, ...], BeforeValidator(_as_values), Field(min_length=1)]]


class MethodPart(Settings):
    """What is different for one method, or what a row of the tables is that is called otherwise."""

    variant_of: str = ""
    """The method (or recipe of the dataset) that this row is a variant of: `methods: aggregate,
    warm` and `by_method: {warm: {variant_of: aggregate, settings: …}}`; empty: its own name."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Over those of all runs."""
    ranges: Ranges = Field(default_factory=dict)
    """Search ranges beside, or in place of, those of all runs."""
    grid: Grid = Field(default_factory=dict)
    """Values beside those of all runs."""


class DatasetPart(Settings):
    """What is different for one dataset."""

    settings: dict[str, Any] = Field(default_factory=dict)
    """Over those of all runs, and below those of a method."""
    ranges: Ranges = Field(default_factory=dict)
    """Search ranges beside, or in place of, those of all runs."""
    pairs: Literal["none"] | None = None
    """`none`: no pairs on this dataset, because it has too few domains for them."""


class Halving(Settings):
    """Successive halving: all draws start, the best on validation images continue."""

    first: float = Field(default=0.2, gt=0, lt=1)
    """Share of a run's steps after which the first draws are stopped."""
    keep_one_in: int = Field(default=3, ge=2)
    """Of so many draws one continues, for so many times as long, until the next comparison."""


def _catalogued(named: Any) -> Any:
    """Give each method once, under its own name."""
    if isinstance(named, dict):
        return {catalog.method_name(name): part for name, part in named.items()}
    return tuple(dict.fromkeys(map(catalog.method_name, named)))


class Sweep(Settings):
    """A sweep: every combination of datasets, methods, backbones, unseen domains, seeds, draws."""

    datasets: Names = Field(min_length=1)
    """Datasets with recipes: `unseen list recipes`."""
    methods: Annotated[Names, AfterValidator(_catalogued)] = Field(min_length=1)
    """The first is what others are compared to; `all` for every one."""
    backbones: Names = ()
    """Empty: each recipe's own."""
    unseen: Names = ()
    """Domains to hold out, one after the other; empty: each domain in turn."""
    seeds: Annotated[tuple[int, ...], BeforeValidator(as_seeds)] = Field(default=(0,), min_length=1)
    """`0-2` is 0, 1, 2."""
    draws: int | None = Field(default=None, ge=1)
    """Random settings for each seed. Draw 0 is the recipe as it is."""
    grid: Grid = Field(default_factory=dict)
    """In place of draws: every combination of these values, `{optimizer.lr: [1e-4, 1e-3]}`."""
    ranges: Ranges = Field(default_factory=dict)
    """Search ranges beside, or in place of, those that stand on the settings:
    `{optimizer.lr: {log_uniform: [1e-4, 1e-2]}}`; also `uniform` and `choice`."""
    search: Names = ()
    """Settings that draws change; empty: all that have a range."""
    search_seed: int = Field(default=0, ge=0)
    """Another number gives other draws."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Of all runs, over their recipes."""
    by_method: Annotated[dict[str, MethodPart], AfterValidator(_catalogued)] = Field(
        default_factory=dict
    )
    """What is different for one method: settings, ranges, grid; and variants of methods, which are
    rows of their own."""
    by_dataset: dict[str, DatasetPart] = Field(default_factory=dict)
    """What is different for one dataset: settings, ranges, pairs."""
    split_by_seed: bool = False
    """Every seed holds out images of its own, also where published lists exist: a trial, as
    DomainBed calls it."""
    pairs: Literal["none", "all"] = "none"
    """`all`: also runs with two domains held out, for leave-one-domain-out selection."""
    selection: Rule | None = None
    """The rule whose table is printed; empty: leave-one-domain-out where there are pairs, else
    source. Where all runs adapt, also `infomax`, `snd`, `bnm` and `dev`."""
    halving: Halving | None = None
    """Stop hopeless draws early."""
    retries: int = Field(default=1, ge=0)
    """How often a run that failed is tried again."""

    @model_validator(mode="after")
    def _check(self) -> "Sweep":
        grids = self.grid or any(part.grid for part in self.by_method.values())
        if grids and self.draws is not None:
            raise ValueError("give either draws or grid ('draws=' takes a file's draws away)")
        if self.halving and self.pairs != "none":
            raise ValueError("halving stops draws that leave-one-domain-out would need: pairs=none")
        if self.pairs == "none" and self.rule == "leave-one-domain-out":
            raise ValueError("selection=leave-one-domain-out needs pairs=all")
        for name, part in self.by_method.items():
            known = catalog.is_known("method", name) or name in self.methods
            if not known and not part.variant_of:
                raise ValueError(f"by_method: {catalog.unknown('method', name)}")
        return self

    @property
    def rule(self) -> Rule:
        return self.selection or ("source" if self.pairs == "none" else "leave-one-domain-out")

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All that the runs of this sweep can be judged by."""
        pairs: tuple[Rule, ...] = ("leave-one-domain-out",) if self.pairs == "all" else ()
        return ("source", "last", *pairs, "oracle")


def make_comparison(
    dataset: str,
    methods: str | Sequence[str],
    seeds: str | Sequence[int] = (0,),
    backbone: str | None = None,
    unseen: str | Sequence[str] = (),
    overrides: Mapping[str, Any] | None = None,
    upper_bound: bool = False,
) -> Sweep:
    """Make a sweep of one draw: the recipes as they are. An upper bound is one network that gets
    the labels of the unseen domain, too."""
    bound = {"data": {"train_on_unseen": True}, "setting": "generalization", "target_images": None}
    rows = {UPPER_BOUND: {"variant_of": "aggregate", "settings": bound}} if upper_bound else {}
    settings = {
        "datasets": [dataset],
        "methods": [*as_list(methods), *rows],
        "backbones": [] if backbone is None else [backbone],
        "unseen": unseen,
        "seeds": seeds,
        "settings": nested(overrides or {}),
        "by_method": rows,
    }
    return _checked(settings, "this comparison cannot be trained")


def sweep_names() -> list[str]:
    """List all sweeps that ship with the package."""
    return recipes.file_names(SWEEPS)


def find_sweep(sweep: str | Path) -> Path:
    """Find the file of a shipped sweep, or a file of the user's own."""
    shipped = SWEEPS / f"{sweep}.yaml"
    if not (shipped.is_file() or recipes.is_own_file(sweep)):
        raise SettingsError(unknown_name("sweep", str(sweep), sweep_names(), "unseen list sweeps"))
    return shipped if shipped.is_file() else Path(sweep)


def load_sweep(sweep: str | Path, overrides: Mapping[str, Any] | None = None) -> Sweep:
    """Read a sweep file with overrides (nested or dotted), and check it."""
    file = recipes.read_yaml(find_sweep(sweep))
    settings = recipes.merge(_normal(file), _normal(overrides or {}))
    return _checked(settings, f"{sweep} is not a valid sweep")


def _checked(settings: Mapping[str, Any], complaint: str) -> Sweep:
    """Make the sweep with these settings; every mistake is named at once. A setting of the runs may
    have been taken for one of the sweep."""
    try:
        return Sweep.model_validate(settings)
    except ValidationError as error:
        problems = explain(Sweep, error)
    of_runs = Experiment.model_fields.keys() - {"seed"}  # which is nearly a key of the sweep's
    for number, problem in enumerate(problems):
        key = problem.partition(":")[0]
        if "unknown key" in problem and key.partition(".")[0] in of_runs:
            hint = f"{key}: unknown key; a setting of all runs is written settings.{key}"
            problems[number] = hint
    raise SettingsError(f"{complaint}:\n  " + "\n  ".join(problems))


def _normal(part: Mapping[str, Any]) -> dict[str, Any]:
    """Nest sections, whether they were dotted or not; but ranges and grid are by dotted setting,
    and a range is a list, which takes the place of another one as a whole. Names of methods stay as
    they are: an import string has dots, too."""
    normal = _nested({key: value for key, value in part.items() if key not in _BY_NAME})
    if isinstance(normal.get("grid"), Mapping):
        normal["grid"] = flattened(normal["grid"])
    if isinstance(normal.get("ranges"), Mapping):
        ranges: dict[str, list[Any]] = {}
        for path, value in flattened(normal["ranges"]).items():
            setting, _, kind = path.rpartition(".")
            ranges.setdefault(setting, []).append((kind, value))
        normal["ranges"] = ranges
    for key in _BY_NAME:
        if isinstance(parts := part.get(key), Mapping):
            own = {n: _normal(p) if isinstance(p, Mapping) else p for n, p in parts.items()}
            normal[key] = own
    return normal


def _nested(value: Any) -> Any:
    """Do what `nested` does at every depth."""
    if not isinstance(value, Mapping):
        return value
    return nested({key: _nested(below) for key, below in value.items()})
