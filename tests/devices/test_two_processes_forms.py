"""Two processes compute what one does, also where runs adapt, are averaged, mixed or paused."""

from pathlib import Path

import pytest
from tests.devices.two_processes import FORMS, assert_same, train_both_ways

from unseen.results.folder import RunFolder

pytestmark = pytest.mark.timeout(900)  # all train in one fixture
OF_ADAPTATION = ("adaptation", "union of targets")
NAMES = (
    *(f"{method}, {form}" for method in ("dann", "dsn") for form in OF_ADAPTATION),
    *(f"dmg, {form}" for form in FORMS if form not in OF_ADAPTATION),
)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, shared_cache: Path) -> tuple[Path, Path]:
    return train_both_ways(NAMES, tmp_path_factory.mktemp("forms"), shared_cache)


@pytest.mark.parametrize("name", NAMES)
def test_every_form_is_the_same(name: str, both: tuple[Path, Path]) -> None:
    """A domain may have fewer images than processes; one process ends what two began."""
    one, two = (RunFolder(at / name) for at in both)
    assert_same(two, one)
