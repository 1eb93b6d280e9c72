"""Two processes compute what one does, for every method and where runs adapt, are averaged, mixed
or paused: gradients, weights, records, counts."""

from pathlib import Path

import pytest
from tests.devices.two_processes import FORMS, assert_same, experiment, train_both_ways
from tests.tiny import train

from unseen.errors import SettingsError
from unseen.results.folder import RunFolder
from unseen.settings import catalog

pytestmark = pytest.mark.timeout(900)  # all train in one fixture
OF_ADAPTATION = ("adaptation", "union of targets")
NAMES = (
    *catalog.METHODS,
    *(f"{method}, {form}" for method in ("dann", "dsn") for form in OF_ADAPTATION),
    *(f"dmg, {form}" for form in FORMS if form not in OF_ADAPTATION),
)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, shared_cache: Path) -> tuple[Path, Path]:
    return train_both_ways(NAMES, tmp_path_factory.mktemp("runs"), shared_cache)


@pytest.mark.parametrize("name", NAMES)
def test_both_are_the_same(name: str, both: tuple[Path, Path]) -> None:
    """A domain may have fewer images than processes; one process ends what two began."""
    one, two = (RunFolder(at / name) for at in both)
    # crossgrad moves images by gradients, which jump where maxima over flat areas are equal
    assert_same(two, one, 1e-3 if name == "crossgrad" else 1e-7)


def test_mistakes_come_back_as_they_are(tmp_path: Path) -> None:
    """An error of a child process reaches the caller as itself, not as a traceback in text."""
    wrong = experiment("dmg", 2, **{"network.freeze_until": "fc9"})
    with pytest.raises(SettingsError, match=r"unknown stage 'fc9'"):
        train(wrong, tmp_path / "run")
