"""Settings: bounds, names typed in a shell, and the identity of a run."""

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
    build_experiment,
    load_experiment,
    read_recipe,
    recipe_names,
)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("photo", ("photo",)),
        ("photo, sketch", ("photo", "sketch")),
        (["photo", "sketch"], ("photo", "sketch")),
        ("", ()),
        (2007, ("2007",)),
    ],
)
def test_names_as_they_are_typed(typed: object, expected: tuple[str, ...]) -> None:
    settings = DataSettings.model_validate({"name": "folder", "unseen_domain": typed})
    assert settings.unseen_domain == expected


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


@pytest.mark.parametrize("recipe", recipe_names())
def test_settings_survive_the_way_to_disk_and_back(recipe: str) -> None:
    adapting = read_recipe(recipe).get("setting") == "adaptation"  # to one domain alone
    experiment = load_experiment(recipe, {"data.unseen_domain": "a" if adapting else "a,b"})
    again = build_experiment(complete_settings(experiment))
    assert complete_settings(again) == complete_settings(experiment)
    assert identity(again) == identity(experiment)
    assert type(again.method) is type(experiment.method)
    assert type(again.data) is type(experiment.data)
