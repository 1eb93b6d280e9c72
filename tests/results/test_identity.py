"""The identity of a run: what decides its result, however it is spelled, and nothing else."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest

from unseen.settings.experiment import NO_EFFECT_ON_RESULT, MethodSettings, Settings, identity
from unseen.settings.recipes import build_experiment, load_experiment

BASE = load_experiment("digits/dmg")


def of(key: str, value: Any, recipe: str = "digits/dmg") -> str:
    return identity(load_experiment(recipe, {key: value}))


def test_identity_has_a_known_value() -> None:
    """A change here makes every finished run a run of other settings: it must be meant."""
    parts = {"data": "digits", "network": "small_cnn", "method": "dmg"}
    named = {section: {"name": name} for section, name in parts.items()}
    assert identity(build_experiment({**named, "steps": 300})) == "bf8855798be1"


SAME = {
    **{"log_every": 7, "checkpoint_every": 7},
    **{"devices.accelerator": "cpu", "devices.number": 2},
}
"""Where, and how often something is written."""
OTHER = {
    **{"seed": 1, "evaluate_every": 7, "selection": "last", "steps": 7, "precision": "bf16"},
    **{"data.cache": "encoded", "data.bad_images": "skip", "data.unseen_domain": "plain"},
    **{"data.split_seed": 1, "data.share": 0.5, "network.image_size": 16, "optimizer.lr": 0.5},
    **{"method.masks": "shared", "method.start_kept": 0.9, "method.mask_schedule": "constant"},
    **{"method.overlap_ramp": 0.5, "method.overlap_weight": 0.5, "schedule.name": "constant"},
    "augment.jitter": 0.1,
}
"""What may change a number."""


@pytest.mark.parametrize("key", SAME | OTHER)
def test_what_may_change_a_number_makes_another_run_and_nothing_else(key: str) -> None:
    assert (of(key, (SAME | OTHER)[key]) == identity(BASE)) == (key in SAME)


def test_one_folder_and_one_file_have_many_spellings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = tmp_path / "images"
    images.mkdir()
    (tmp_path / "others").mkdir()
    (tmp_path / "link").symlink_to(images)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))

    def identities(key: str, recipe: str, spellings: Sequence[str | Path]) -> set[str]:
        return {of(key, str(spelling), recipe) for spelling in spellings}

    folders = [images, "images", "images/", "./images", "link", f"../{tmp_path.name}/images"]
    root = ("data.root", "folder/dmg")
    assert len(identities(*root, [*folders, "~/images"])) == 1
    assert len(identities(*root, ["images", "others"])) == 2
    weights = ("network.pretrained", "digits/dmg")
    assert len(identities(*weights, ["weights.pth", tmp_path / "weights.pth"])) == 1
    assert len(identities(*weights, ["weights.pth", "other.pth"])) == 2


def test_a_new_setting_is_part_of_the_identity_unless_it_is_marked() -> None:
    class Section(Settings):
        deciding: int = 1
        marked: Annotated[int, NO_EFFECT_ON_RESULT] = 1

    class Method(MethodSettings):
        deciding: int = 1
        marked: Annotated[int, NO_EFFECT_ON_RESULT] = 1
        section: Section = Section()

    def of(**changes: Any) -> str:
        return identity(BASE.model_copy(update={"method": Method(name="mine", **changes)}))

    assert of(marked=2) == of() == of(section=Section(marked=2))
    assert len({of(), of(deciding=2), of(section=Section(deciding=2))}) == 3
