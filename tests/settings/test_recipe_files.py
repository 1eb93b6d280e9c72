"""Settings and recipes: found, layered, overridden; every mistake is named at once, with what is
near it; and the identity of a run."""

import copy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from unseen.errors import SettingsError
from unseen.settings.experiment import (
    DataSettings,
    OptimizerSettings,
    complete_settings,
    identity,
)
from unseen.settings.recipes import (
    about_recipe,
    build_experiment,
    load_experiment,
    merge,
    parse_overrides,
    read_recipe,
    recipe_names,
)
from unseen.sweeps.sweep_file import Sweep

VALID: dict[str, Any] = {
    "data": {"name": "digits"},
    "network": {"name": "small_cnn"},
    "method": {"name": "dmg"},
    "steps": 10,
}

OWN_PARTS = """
from unseen.data.datasets.digits import Digits
from unseen.methods.aggregate import Aggregate

class Mine(Aggregate):
    class Config(Aggregate.Config):
        strength: float = 0.5
        "How much."

class MoreDigits(Digits):
    class Config(Digits.Config):
        zoom: int = 2
        "How far."

class Bare:
    pass
"""


@pytest.fixture
def own_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module of the user's own with a method and a dataset."""
    (tmp_path / "own_parts_for_recipes.py").write_text(OWN_PARTS)
    monkeypatch.syspath_prepend(tmp_path)
    yield "own_parts_for_recipes"
    sys.modules.pop("own_parts_for_recipes", None)


def problems(settings: dict[str, Any]) -> list[str]:
    """The lines that name a mistake."""
    with pytest.raises(SettingsError) as caught:
        build_experiment(settings, "recipe.yaml")
    first, *lines = str(caught.value).split("\n")
    assert first.startswith("recipe.yaml")
    assert "not a valid recipe" in first
    return [line.strip() for line in lines]


def test_all_mistakes_are_reported_at_once() -> None:
    """The example of the design, and more of them."""
    wrong = {
        "optimizer": {"lrr": 1e-3},
        "steps": -1,
        "method": {"name": "dmg", "overlap_wait": 1, "mask_lr": "fast"},
        "augmnt": {},
        "network": {"nam": "small_cnn"},
    }
    assert problems({**VALID, **wrong}) == [
        "network.name: is missing",
        "network.nam: unknown key; did you mean 'name'?",
        "method.mask_lr: should be a valid number, unable to parse string as a number, got 'fast'",
        "method.overlap_wait: unknown key; did you mean 'overlap_weight'?",
        "optimizer.lrr: unknown key; did you mean 'lr'?",
        "steps: should be greater than 0, got -1",
        "augmnt: unknown key; did you mean 'augment'?",
    ]


def test_a_wrong_name_is_the_only_mistake_of_its_section() -> None:
    """Which keys an unknown method has is not known: only its name is complained about."""
    settings = {**VALID, "method": {"name": "dmgg", "overlap_weight": 1}, "data": {"name": "digit"}}
    assert problems(settings) == [
        "data.name: unknown dataset 'digit'; did you mean 'digits'? "
        "('unseen list datasets' shows all)",
        "method.name: unknown method 'dmgg'; did you mean 'dmg'? ('unseen list methods' shows all)",
    ]


def test_erm_is_another_name_of_aggregate() -> None:
    """In recipes, in names of recipes and in sweeps; what is recorded is the catalogued name."""
    assert load_experiment("digits/erm") == load_experiment("digits/aggregate")
    assert load_experiment("digits/dmg", {"method.name": "erm"}).method.name == "aggregate"
    settings = {"datasets": "digits", "methods": "erm,dmg,aggregate", "by_method": {"erm": {}}}
    sweep = Sweep.model_validate(settings)
    assert sweep.methods == ("aggregate", "dmg")
    assert list(sweep.by_method) == ["aggregate"]
    (problem,) = problems({**VALID, "method": {"name": "ermm"}})
    assert "unknown method 'ermm'; did you mean 'erm'?" in problem


def test_missing_sections_say_where_the_choice_is() -> None:
    assert problems({"data": 3}) == [
        "data.name: is missing; 'unseen list datasets' shows what is available",
        "method.name: is missing; 'unseen list methods' shows what is available",
        "network: is missing",
    ]
    for length in ({"steps": 3, "epochs": 1}, {"steps": None}):
        assert problems({**VALID, **length}) == ["give either steps or epochs"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps: [1", "is not YAML"),
        ("\x00", "is not YAML"),
        ("steps: !!python/object/apply:os.getcwd []", "is not YAML"),
        ("- one\n- two", "should contain settings as 'key: value' lines"),
        ("", "should contain settings as 'key: value' lines"),
        ("base: mine.yaml", "its chain of bases leads back to itself"),
        ("base: digits/dgm", r"base: unknown recipe 'digits/dgm'; did you"),
    ],
)
def test_broken_files(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(SettingsError, match=rf"mine\.yaml.*{message}"):
        load_experiment(tmp_path / "mine.yaml")


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ("digits/dmgg", "unknown recipe 'digits/dmgg'; did you mean 'digits/dmg'?"),
        ("folder/agregate_views", "did you mean 'folder/aggregate_views'?"),
        ("digit/dmg", "unknown dataset 'digit'; did you mean 'digits'?"),
        ("dmg", "unknown recipe 'dmg'"),
        ("mine.yaml", "there is no file mine.yaml"),
    ],
)
def test_unknown_recipes(recipe: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_experiment(recipe)
    assert message in str(caught.value)


def test_recipes_compose() -> None:
    """The settings of the dataset, the defaults of the method, and what differs."""
    plain, coral = (read_recipe(f"rotated_mnist/{name}") for name in ("aggregate", "coral"))
    assert coral == plain | {"method": {"name": "coral"}}
    assert about_recipe("rotated_mnist/coral").startswith("coral with its own defaults")
    views = load_experiment("folder/dmg_views")
    assert views.recipe == "dmg_views"
    assert views.method.name == "dmg"
    below = read_recipe("folder/aggregate_views")
    assert views.network.views == below["network"]["views"] > 0
    assert load_experiment("folder/dmg_views", {"method.name": "irm"}).recipe == ""
    assert load_experiment("mnist/dmg").data.name == "mnist"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("seed=3", {"seed": 3}),
        ("data.unseen_domain=photo,sketch", {"data": {"unseen_domain": "photo,sketch"}}),
        ("data.unseen_domain=[photo,sketch]", {"data": {"unseen_domain": ["photo", "sketch"]}}),
        ("data.root=/a=b", {"data": {"root": "/a=b"}}),
        ("network.pretrained=true network.name=x", {"network": {"pretrained": True, "name": "x"}}),
        ("seed=1 seed=2", {"seed": 2}),
        ("method.x=1 method.name=dmg", {"method": {"x": 1, "name": "dmg"}}),
        ("clip_gradient=", {"clip_gradient": None}),
    ],
)
def test_overrides(words: str, expected: dict[str, Any]) -> None:
    assert parse_overrides(words.split()) == expected


@pytest.mark.parametrize("word", ["seed", "=3", "", "--seed", "a=[1"])
def test_words_that_are_no_overrides(word: str) -> None:
    write = r"is not an override; write key=value, as in seed=3|the value of 'a=\[1' is not YAML"
    with pytest.raises(SettingsError, match=write):
        parse_overrides([word])


def test_overrides_reach_the_settings() -> None:
    words = ["data.unseen_domain=photo,sketch", "optimizer.lr=1e-2", "epochs=0.5"]
    experiment = load_experiment("digits/dmg", parse_overrides(words))
    assert experiment.data.unseen_domain == ("photo", "sketch")
    assert experiment.optimizer.lr == 0.01
    assert (experiment.steps, experiment.epochs) == (None, 0.5)


METHOD = {"method": {"name": "dmg", "mask_lr": 1}}


@pytest.mark.parametrize(
    ("lower", "upper", "expected"),
    [
        (METHOD, {"method": {"name": "aggregate"}}, {"method": {"name": "aggregate"}}),
        (METHOD, {"method": {"x": 2}}, {"method": {"name": "dmg", "mask_lr": 1, "x": 2}}),
        ({"data": {"name": "a", "root": "x"}}, {"data": {"name": "b"}}, {"data": {"name": "b"}}),
        (
            {"network": {"name": "a", "image_size": 32}},
            {"network": {"name": "b"}},
            {"network": {"name": "b", "image_size": 32}},
        ),
        ({"steps": 5}, {"epochs": 2}, {"epochs": 2}),
        ({"epochs": 2}, {"steps": 5}, {"steps": 5}),
        ({"steps": 5}, {"epochs": None}, {"steps": 5, "epochs": None}),
    ],
)
def test_another_method_dataset_or_length_starts_anew(
    lower: dict[str, Any], upper: dict[str, Any], expected: dict[str, Any]
) -> None:
    before = copy.deepcopy(lower)
    assert merge(lower, upper) == expected
    assert lower == before


def test_a_base_may_be_shipped_or_lie_beside(tmp_path: Path) -> None:
    (tmp_path / "first.yaml").write_text("base: digits/dmg\nseed: 5\nmethod: {mask_lr: 0.5}\n")
    (tmp_path / "second.yaml").write_text("base: first.yaml\nepochs: 2\n")
    settings = read_recipe(tmp_path / "second.yaml")
    assert (settings["seed"], settings["epochs"]) == (5, 2)
    expected = {"name": "dmg", "start_kept": 0.95, "overlap_weight": 0.01}
    assert settings["method"] == expected | {"mask_lr": 0.5}
    assert not {"steps", "base"} & settings.keys()


def test_import_strings_bring_their_own_settings(own_parts: str) -> None:
    settings = {
        **VALID,
        "method": {"name": f"{own_parts}:Mine", "strength": 0.7},
        "data": {"name": f"{own_parts}:MoreDigits"},
    }
    complete = complete_settings(build_experiment(settings))
    assert complete["method"] == {"name": f"{own_parts}:Mine", "strength": 0.7}
    assert complete["data"]["zoom"] == 2
    wrong = {**settings, "method": {"name": f"{own_parts}:Mine", "strenth": 1}}
    assert problems(wrong) == ["method.strenth: unknown key; did you mean 'strength'?"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module_here:Mine", "cannot be imported: No module named 'no_such_module_here'"),
        ("own_parts_for_recipes:Yours", "has no attribute 'Yours'"),
        ("own_parts_for_recipes:Bare", "is not a method: it has no settings class 'Config'"),
        (":Mine", "should be a name or an import string module:Name"),
        ("module:", "should be a name or an import string module:Name"),
    ],
)
def test_import_strings_that_lead_nowhere(own_parts: str, name: str, message: str) -> None:
    (line,) = problems({**VALID, "method": {"name": name}})
    assert line.startswith("method.name: ")
    assert message in line


@pytest.mark.parametrize("recipe", recipe_names())
def test_shipped_recipes_are_valid_say_what_they_are_and_survive_the_disk(recipe: str) -> None:
    adapting = read_recipe(recipe).get("setting") == "adaptation"  # to one domain alone
    experiment = load_experiment(recipe, {"data.unseen_domain": "a" if adapting else "a,b"})
    family, _, method = recipe.partition("/")
    assert family.startswith(experiment.data.name)
    assert method.partition("_")[0] == experiment.method.name  # a variant: importance_vit
    assert len(about_recipe(recipe).partition("\n")[0]) > 10
    again = build_experiment(complete_settings(experiment))
    assert complete_settings(again) == complete_settings(experiment)
    assert identity(again) == identity(experiment)
    assert type(again.method) is type(experiment.method)
    assert type(again.data) is type(experiment.data)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [("photo", ["photo"]), ("photo, sketch", ["photo", "sketch"]), ("", []), (2007, ["2007"])],
)
def test_names_as_they_are_typed(typed: object, expected: list[str]) -> None:
    for given in (typed, expected):
        settings = DataSettings.model_validate({"name": "folder", "unseen_domain": given})
        assert settings.unseen_domain == tuple(expected)


def test_settings_are_frozen_and_closed() -> None:
    settings = OptimizerSettings()
    with pytest.raises(ValidationError, match="frozen"):
        settings.lr = 1.0  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(ValidationError, match="Extra inputs"):
        OptimizerSettings.model_validate({"lrr": 1.0})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"data.unseen_domain": "plain", "data.training_domains": "plain,blended"},
            "data: plain cannot be trained on and unseen at once",
        ),
        (
            {"data.validation_share": 0.5, "data.test_share": 0.5},
            "data: validation_share + test_share leave nothing to train on",
        ),
        (
            {"optimizer.name": "sgd", "optimizer.momentum": 0, "optimizer.nesterov": True},
            "optimizer: nesterov needs a momentum above 0",
        ),
        ({"precision": 16}, "precision: should be '32', 'bf16' or 'fp16', got '16'"),
        ({"seed": -1}, "seed: should be greater than or equal to 0, got -1"),
    ],
)
def test_combinations_that_make_no_sense(changes: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_experiment("digits/aggregate", changes)
    assert message in str(caught.value)
