"""The identity of a run: what decides its result, however it is spelled, and nothing else."""

from pathlib import Path
from typing import Annotated, Any

import pytest

from unseen.settings.experiment import (
    NO_EFFECT_ON_RESULT,
    Experiment,
    MethodSettings,
    Settings,
    identity,
)
from unseen.settings.recipes import build_experiment, load_experiment


def build(**changes: Any) -> Experiment:
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    return load_experiment("digits/dmg", dotted)


def test_identity_has_a_known_value() -> None:
    """A change here makes every finished run a run of other settings: it must be meant."""
    parts = {"data": "digits", "network": "small_cnn", "method": "dmg"}
    named = {section: {"name": name} for section, name in parts.items()}
    assert identity(build_experiment({**named, "steps": 300})) == "bf8855798be1"


@pytest.mark.parametrize(
    "changes",
    [
        {"log_every": 7},
        {"checkpoint_every": 7},
        {"devices__accelerator": "cpu"},
        {"devices__number": 2},
    ],
)
def test_where_and_how_often_something_is_written_makes_no_other_run(
    changes: dict[str, Any],
) -> None:
    assert identity(build(**changes)) == identity(build())


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"evaluate_every": 7},
        {"selection": "last"},
        {"data__cache": "encoded"},
        {"data__cache": "decoded"},
        {"data__bad_images": "skip"},
        {"optimizer__lr": 0.5},
        {"method__overlap_weight": 0.5},
        {"network__image_size": 16},
        {"steps": 7},
        {"data__unseen_domain": "plain"},
        {"data__split_seed": 1},
        {"data__share": 0.5},
        {"method__masks": "shared"},
        {"method__start_kept": 0.9},
        {"method__mask_schedule": "constant"},
        {"method__overlap_ramp": 0.5},
        {"schedule__name": "constant"},
        {"augment__jitter": 0.1},
        {"precision": "bf16"},
    ],
)
def test_what_may_change_a_number_makes_another_run(changes: dict[str, Any]) -> None:
    assert identity(build(**changes)) != identity(build())


def of_root(root: str | Path) -> str:
    return identity(load_experiment("folder/dmg", {"data.root": str(root)}))


def test_one_folder_of_images_has_many_spellings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = tmp_path / "images"
    images.mkdir()
    (tmp_path / "link").symlink_to(images)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    spellings = [images, "images", "images/", "./images", "link", "../" + tmp_path.name + "/images"]
    spellings.append("~/images")
    assert len({of_root(spelling) for spelling in spellings}) == 1
    (tmp_path / "others").mkdir()
    assert of_root("others") != of_root("images")


def test_one_file_of_weights_has_many_spellings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = ("weights.pth", tmp_path / "weights.pth", "other.pth")
    short, long, other = (identity(build(network__pretrained=str(name))) for name in names)
    assert short == long != other


def test_a_new_setting_is_part_of_the_identity_unless_it_is_marked() -> None:
    class Section(Settings):
        deciding: int = 1
        marked: Annotated[int, NO_EFFECT_ON_RESULT] = 1

    class Method(MethodSettings):
        deciding: int = 1
        marked: Annotated[int, NO_EFFECT_ON_RESULT] = 1
        section: Section = Section()

    base = build()

    def of(**changes: Any) -> str:
        return identity(base.model_copy(update={"method": Method(name="mine", **changes)}))

    assert of(marked=2) == of() == of(section=Section(marked=2))
    assert len({of(), of(deciding=2), of(section=Section(deciding=2))}) == 3
