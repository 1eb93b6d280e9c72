"""Two processes compute what one does, for every method: gradients, weights, records, counts."""

from pathlib import Path

import pytest
from tests.devices.two_processes import assert_same, experiment, run, train_both_ways

from unseen.errors import SettingsError
from unseen.results.folder import RunFolder
from unseen.settings import catalog
from unseen.training.build import build_sampler

pytestmark = pytest.mark.timeout(900)  # all train in one fixture


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, shared_cache: Path) -> tuple[Path, Path]:
    return train_both_ways(tuple(catalog.METHODS), tmp_path_factory.mktemp("methods"), shared_cache)


@pytest.mark.parametrize("method", catalog.METHODS)
def test_every_method_is_the_same(method: str, both: tuple[Path, Path]) -> None:
    one, two = (RunFolder(at / method) for at in both)
    # crossgrad moves images by gradients, which jump where maxima over flat areas are equal
    assert_same(two, one, 1e-3 if method == "crossgrad" else 1e-7)


def test_mistakes_come_back_as_they_are(tmp_path: Path) -> None:
    """An error of a child process reaches the caller as itself, not as a traceback in text."""
    wrong = experiment("dmg", 2, **{"network.freeze_until": "fc9"})
    with pytest.raises(SettingsError, match=r"unknown stage 'fc9'"):
        run(wrong, tmp_path / "run")


def test_a_batch_that_cannot_be_shared_out_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"among 3 devices .*; choose a multiple of 3"):
        build_sampler(experiment("dmg", 3), None)  # pyright: ignore[reportArgumentType]
