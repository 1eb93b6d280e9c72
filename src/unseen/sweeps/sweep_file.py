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

from unseen.errors import SettingsError
from unseen.results.result import UPPER_BOUND
from unseen.settings import catalog
from unseen.settings.experiment import Experiment, Names, Settings, as_list
from unseen.settings.ranges import Choice, LogUniform, Range, Uniform
from unseen.settings.recipes import (
    explain,
    file_names,
    find_file,
    flattened,
    merge,
    nested,
    read_yaml,
)

SWEEPS = Path(__file__).parent / "shipped"

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
    """`1e-4,1e-3` is a list, too, and a single value is a list of one."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",")]
    return value if isinstance(value, list | tuple) else [value]


_KINDS: dict[str, Callable[..., Range]] = {
    "log_uniform": LogUniform,
    "uniform": Uniform,
    "choice": lambda *values: Choice(values),
}


def _as_range(value: Any) -> Range:
    """Read `{log_uniform: [1e-4, 1e-2]}`, `{uniform: [0, 1]}` or `{choice: [a, b]}`."""
    if not isinstance(value, Mapping) or len(value) != 1 or not value.keys() <= _KINDS.keys():
        given = ", ".join(map(str, value)) if isinstance(value, Mapping) else repr(value)
        raise ValueError(f"a range is one of {', '.join(_KINDS)}, got {given}")
    ((kind, values),) = value.items()
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


def _catalogued(names: tuple[str, ...]) -> tuple[str, ...]:
    """Each method once, under its own name."""
    return tuple(dict.fromkeys(map(catalog.method_name, names)))


def _by_catalogued(parts: dict[str, MethodPart]) -> dict[str, MethodPart]:
    return {catalog.method_name(name): part for name, part in parts.items()}


class Sweep(Settings):
    """A sweep: every combination of datasets, methods, backbones, unseen domains, seeds, draws."""

    datasets: Names
    """Datasets with recipes: `unseen list recipes`."""
    methods: Annotated[Names, AfterValidator(_catalogued)]
    """The first is what others are compared to; `all` for every one."""
    backbones: Names = ()
    """Empty: each recipe's own."""
    unseen: Names = ()
    """Domains to hold out, one after the other; empty: each domain in turn."""
    seeds: Annotated[tuple[int, ...], BeforeValidator(as_seeds)] = (0,)
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
    by_method: Annotated[dict[str, MethodPart], AfterValidator(_by_catalogued)] = Field(
        default_factory=dict
    )
    """What is different for one method: settings, ranges, grid; and variants of methods, which are
    rows of their own."""
    by_dataset: dict[str, DatasetPart] = Field(default_factory=dict)
    """What is different for one dataset: settings, ranges, pairs."""
    split_by_seed: bool = False
    """Every seed holds out images of its own, also where published lists exist: a trial, as
    DomainBed calls it."""
    pairs: Literal["none", "all", "nested"] = "none"
    """Runs with two domains held out, for leave-one-domain-out selection; `nested`: only the draw
    that they choose is then trained with one domain held out."""
    selection: Rule | None = None
    """The rule whose table is printed; empty: leave-one-domain-out where there are pairs, else
    source. Where all runs adapt, also `infomax`, `snd`, `bnm` and `dev`."""
    halving: Halving | None = None
    """Stop hopeless draws early."""
    retries: int = Field(default=1, ge=0)
    """How often a run that failed is tried again."""

    @model_validator(mode="after")
    def _check(self) -> "Sweep":
        empty = [name for name in ("datasets", "methods", "seeds") if not getattr(self, name)]
        if empty:
            raise ValueError(f"a sweep needs at least one of its {', '.join(empty)}")
        grids = self.grid or any(part.grid for part in self.by_method.values())
        if grids and self.draws is not None:
            raise ValueError("give either draws or grid ('draws=' takes a file's draws away)")
        if self.halving and self.pairs != "none":
            raise ValueError("halving stops draws that leave-one-domain-out would need: pairs=none")
        if self.pairs == "none" and self.rule == "leave-one-domain-out":
            raise ValueError("selection=leave-one-domain-out needs pairs=all or pairs=nested")
        if self.pairs == "nested" and self.rule != "leave-one-domain-out":
            raise ValueError(f"pairs=nested serves leave-one-domain-out alone, not {self.rule}")
        strange = [
            name
            for name, part in self.by_method.items()
            if not catalog.is_known("method", name)
            and name not in self.methods
            and not part.variant_of
        ]
        if strange:
            raise ValueError(f"by_method: {catalog.unknown('method', strange[0])}")
        if self.pairs == "nested" and not all(map(self.has_pairs, self.datasets)):
            raise ValueError(
                "by_dataset: pairs=nested serves every dataset, so none can do without"
            )
        return self

    def has_pairs(self, dataset: str) -> bool:
        """Whether pairs of domains are held out on a dataset."""
        return self.pairs != "none" and self.by_dataset.get(dataset, DatasetPart()).pairs is None

    @property
    def rule(self) -> Rule:
        return self.selection or ("source" if self.pairs == "none" else "leave-one-domain-out")

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All that the runs of this sweep can be judged by."""
        if self.pairs == "nested":
            return ("leave-one-domain-out",)
        pairs: tuple[Rule, ...] = ("leave-one-domain-out",) if self.pairs == "all" else ()
        return ("source", "last", *pairs, "oracle")


_LABELLED_BOUND = MethodPart(
    variant_of="aggregate",
    settings={
        "data": {"train_on_unseen": True},
        "setting": "generalization",
        "target_images": None,
    },
)
"""What `--upper-bound` adds: one network that gets the labels of the unseen domain, too."""


def make_comparison(
    dataset: str,
    methods: str | Sequence[str],
    seeds: str | Sequence[int] = (0,),
    backbone: str | None = None,
    unseen: str | Sequence[str] = (),
    overrides: Mapping[str, Any] | None = None,
    upper_bound: bool = False,
) -> Sweep:
    """A sweep of one draw: the recipes as they are."""
    settings = {
        "datasets": [dataset],
        "methods": [*as_list(methods), UPPER_BOUND] if upper_bound else methods,
        "backbones": [] if backbone is None else [backbone],
        "unseen": unseen,
        "seeds": seeds,
        "settings": nested(overrides or {}),
        "by_method": {UPPER_BOUND: _LABELLED_BOUND} if upper_bound else {},
    }
    return _checked(settings, "this comparison cannot be trained")


def _checked(settings: Mapping[str, Any], complaint: str) -> Sweep:
    """The sweep with these settings; every mistake is named at once."""
    try:
        return Sweep.model_validate(settings)
    except ValidationError as error:
        problems = "\n  ".join(map(_with_hint, explain(Sweep, error)))
        raise SettingsError(f"{complaint}:\n  {problems}") from None


_BY_NAME = ("by_method", "by_dataset")


def sweep_names() -> list[str]:
    """All sweeps that ship with the package."""
    return file_names(SWEEPS)


def find_sweep(sweep: str | Path) -> Path:
    """The file of a shipped sweep, or a file of the user's own."""
    return find_file("sweep", sweep, SWEEPS)


def load_sweep(sweep: str | Path, overrides: Mapping[str, Any] | None = None) -> Sweep:
    """A sweep file with overrides (nested or dotted), checked."""
    settings = _lay_over(_normal(read_yaml(find_sweep(sweep))), _normal(overrides or {}))
    return _checked(settings, f"{sweep} is not a valid sweep")


def _with_hint(problem: str) -> str:
    """A setting of the runs that was taken for one of the sweep."""
    key = problem.partition(":")[0]
    own = {"seed"}  # nearly a key of the sweep's
    if "unknown key" in problem and key.partition(".")[0] in Experiment.model_fields.keys() - own:
        return f"{key}: unknown key; a setting of all runs is written settings.{key}"
    return problem


def _normal(part: Mapping[str, Any]) -> dict[str, Any]:
    """Sections nested, whether they were dotted or not; but ranges and grid by dotted setting.
    Names of methods stay as they are: an import string has dots, too."""
    normal = _nested({key: value for key, value in part.items() if key not in _BY_NAME})
    if isinstance(normal.get("grid"), Mapping):
        normal["grid"] = flattened(normal["grid"])
    if isinstance(normal.get("ranges"), Mapping):
        ranges: dict[str, Any] = {}
        for path, value in flattened(normal["ranges"]).items():
            setting, _, kind = path.rpartition(".")
            ranges.setdefault(setting, {})[kind] = value
        normal["ranges"] = ranges
    for key in _BY_NAME:
        if isinstance(parts := part.get(key), Mapping):
            own = {n: _normal(p) if isinstance(p, Mapping) else p for n, p in parts.items()}
            normal[key] = own
    return normal


def _nested(value: Any) -> Any:
    """As `nested`, at every depth."""
    if not isinstance(value, Mapping):
        return value
    return nested({key: _nested(below) for key, below in value.items()})


def _lay_over(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Later wins; a range takes the place of another one as a whole, whatever their kinds."""
    merged = merge(lower, upper)
    if isinstance(merged.get("ranges"), Mapping):
        merged["ranges"] = {**lower.get("ranges", {}), **upper.get("ranges", {})}
    for key in _BY_NAME:
        below, above = (each.get(key) or {} for each in (lower, upper))
        if isinstance(below, Mapping) and isinstance(above, Mapping):
            for name in below.keys() & above.keys():
                merged[key][name] = _lay_over(below[name], above[name])
    return merged
