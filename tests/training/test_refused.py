"""Settings that do not go together are refused with what to set instead, most of them before there
is a folder."""

from pathlib import Path
from typing import Any

import pytest
from tests.tiny import tiny, train

from unseen.data.dataset import open_dataset
from unseen.data.roles import choose_roles
from unseen.errors import SettingsError
from unseen.training.build import build_method, build_sampler, build_task

FROZEN = {"network__freeze_until": "fc1"}
ADAPTING = {"setting": "adaptation"}
STYLES = {"augment__mixstyle": 0.5, "augment__mixstyle_stages": "conv2"}
NO_NUMBER = {"data__unseen_domain": []}
AT_ONCE: list[tuple[str, dict[str, Any], str]] = [
    ("aggregate", {"selection": "oracle"} | NO_NUMBER, r"set data\.unseen_domain"),
    ("aggregate", {"data__unseen_domain": "outline"}, "did you mean 'outlines'"),
    ("aggregate", {"averaging__name": "swad"}, r"6 steps have 2; set evaluate_every=1"),
    (
        "reweighting",
        {"setting": "generalization"},
        r"set setting=adaptation and data\.unseen_domain",
    ),
    ("dann", ADAPTING | NO_NUMBER, "needs a target domain"),
    ("dann", ADAPTING | {"data__train_on_unseen": True}, "leave one of them out"),
    ("dann", {"target_images": 8}, "target_images are for setting=adaptation"),
    ("dann", {"selection": "infomax"}, "infomax chooses by unlabelled target images"),
    ("aggregate", {"network__views": 2}, r"none are stored; set freeze_until=STAGE"),
    (
        "aggregate",
        FROZEN | {"network__views": 2, "network__store_features": False},
        r"none are stored; set freeze_until=STAGE",
    ),
    ("aggregate", FROZEN | {"network__view_seed": 2}, "view_seed=2 needs views"),
    ("aggregate", FROZEN | {"network__views": -1}, "network.views"),
    ("aggregate", STYLES | {"augment__mixstyle_stages": ""}, "needs a probability and stages"),
    (
        "aggregate",
        FROZEN | {"augment__erasing": 0.5},
        "augment.erasing changes pixels, but this run trains from stored features .* set "
        "network.store_features=false",
    ),
    (
        "aggregate",
        {"data__training_domains": "plain", "augment__amplitude_mix": 1},
        r"different training domains, found one \(plain\); train on more domains",
    ),
]
LATER: list[tuple[str, dict[str, Any], str]] = [
    (
        "aggregate",
        {"devices__accumulate": 3},
        r"among 1 devices with devices\.accumulate=3; choose a .* 3",
    ),
    (
        "dmg",
        {"devices__number": 3},
        r"among 3 devices .*; choose a multiple of 3",
    ),
    ("aggregate", {"precision": "fp16"}, r"precision=fp16 needs a CUDA GPU.*set precision=bf16"),
    ("aggregate", {"compile": True}, "compile=true makes steps no quicker on a processor"),
    ("coral", {"devices__accumulate": 2}, "the loss of this run looks at the"),
    ("dmg", FROZEN | {"method__sites": "pool"}, "'pool' lies in the .* choose one from 'fc1' on"),
    ("multihead", FROZEN | {"method__split": "pool"}, "'pool' lies in the frozen part"),
    ("aggregate", STYLES | {"augment__mixstyle_stages": "fc1"}, "'fc1' is no stage with maps of"),
    (
        "aggregate",
        STYLES | {"augment__mixstyle_stages": "conv9"},
        "'conv9' is no stage .* choose from conv1, conv2",
    ),
    (
        "aggregate",
        STYLES | {"network__freeze_until": "conv3"},
        "'conv2' is no stage .*store_features=false changes that.* choose from conv3",
    ),
    (
        "aggregate",
        STYLES | {"sampling": "pooled", "devices__number": 2},
        "set sampling=balanced or devices.number=1",
    ),
]


@pytest.mark.parametrize(("method", "changes", "message"), AT_ONCE)
def test_settings_that_leave_no_folder(
    method: str, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match=message):
        train(tiny(f"digits/{method}", **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("method", "changes", "message"), LATER)
def test_settings_that_do_not_suit_the_method_or_the_machine(
    method: str, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    def build_and_train() -> None:
        """What the parts refuse is refused before processes are started."""
        experiment = tiny(f"digits/{method}", **changes)
        index = open_dataset(experiment.data).index()
        build_method(experiment, build_task(index, experiment))
        build_sampler(experiment, choose_roles(index, experiment.data))
        train(experiment, tmp_path / "run")

    with pytest.raises(SettingsError, match=message):
        build_and_train()
