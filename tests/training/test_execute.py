"""What happens around the loop of one run."""

from pathlib import Path

import pytest

import unseen
from unseen.data.dataset import OpenDatasets
from unseen.data.datasets.digits import Digits
from unseen.settings.recipes import load_experiment
from unseen.training.execute import length

SHORT = {"epochs": 0.05, "images_per_domain": 4, "network": {"image_size": 16}}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Digits]:
    """Every dataset that is opened from now on."""
    found: list[Digits] = []
    begin = Digits.__init__

    def remember(self: Digits, *arguments: object) -> None:
        found.append(self)
        begin(self, *arguments)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(Digits, "__init__", remember)
    return found


def test_a_run_opens_its_dataset_once(tmp_path: Path, opened: list[Digits]) -> None:
    """Its length in epochs, its roles and its images come from one index."""
    unseen.fit("digits/aggregate", runs=tmp_path, **SHORT)
    assert len(opened) == 1


def test_the_lengths_of_many_runs_need_one_index(opened: list[Digits]) -> None:
    datasets = OpenDatasets()
    lengths = {
        length(
            load_experiment("digits/dmg", SHORT | {"seed": seed, "data.unseen_domain": domain}),
            datasets,
        )
        for seed in range(3)
        for domain in ("plain", "outlines")
    }
    assert len(opened) == 1
    assert all(steps > 0 for steps in lengths)


def test_other_splits_are_another_dataset(opened: list[Digits]) -> None:
    datasets = OpenDatasets()
    for share in (0.1, 0.2, 0.1):
        length(load_experiment("digits/dmg", SHORT | {"data.validation_share": share}), datasets)
    assert len(opened) == 2
