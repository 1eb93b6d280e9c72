"""What all tests share: a cache of their own, small runs on the embedded digits."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.browser import start_browser
from tests.double_precision import double_precision

# The runs here are tiny: threads would only wait for each other, and sums differ by their number
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # for commands that tests start


@pytest.fixture(scope="session", autouse=True)
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Prepared digits, made once for all tests that only read them."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNSEEN_CACHE", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def _no_wait_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tests write in this process needs not outlive a power cut."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder that UNSEEN_DATA names; without it the test is skipped."""
    root = os.environ.get("UNSEEN_DATA")
    if not root:
        pytest.skip("UNSEEN_DATA is not set: real images are not at hand")
    return Path(root)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A real one: see `tests/browser.py`."""
    driver = start_browser(tmp_path_factory.mktemp("browser"))
    yield driver
    driver.quit()


@pytest.fixture
def in_double_precision() -> Iterator[None]:
    """For comparisons of two computations: see `tests/double_precision.py`."""
    with double_precision():
        yield
