"""What happens around the loop of one run."""

from pathlib import Path
from typing import Any

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


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("seed", (0, 1, 2), 1),
        ("data.unseen_domain", ("plain", "outlines"), 1),
        ("data.validation_share", (0.1, 0.2, 0.1), 2),  # other splits are another dataset
    ],
)
def test_the_lengths_of_many_runs_need_one_index(
    name: str, values: tuple[Any, ...], expected: int, opened: list[Digits]
) -> None:
    datasets = OpenDatasets()
    for value in values:
        assert length(load_experiment("digits/dmg", SHORT | {name: value}), datasets) > 0
    assert len(opened) == expected
