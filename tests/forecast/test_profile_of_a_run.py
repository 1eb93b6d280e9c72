"""The profile at the end of a run: what it holds, and that it is the same after a stop."""

import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from tests.tiny import TINY

from unseen.forecast.profile import Profile
from unseen.results.folder import RunFolder
from unseen.settings.recipes import load_experiment
from unseen.training.display import Display
from unseen.training.execute import execute


def train(folder: Path, method: str, *stops: int) -> RunFolder:
    experiment = load_experiment(f"digits/{method}", TINY)
    for until in (*stops, None):
        with Display(Console(quiet=True), 6, "run") as display:
            execute(experiment, RunFolder(folder), display, until=until)
    return RunFolder(folder)


@pytest.mark.parametrize("method", ["aggregate", "dmg"])
def test_it_holds_what_the_model_says_of_validation_images(tmp_path: Path, method: str) -> None:
    folder = train(tmp_path / "run", method)
    profile = Profile.read(folder.profile)
    result = folder.read_result()
    assert profile.domains == result.training_domains
    assert profile.classes == result.classes
    expected = json.loads(folder.data.read_text())["validation"]
    assert np.bincount(profile.domain).tolist() == list(expected.values())
    step = result.under(result.selection).step
    [record] = [r for r in folder.read_metrics() if "validation" in r and r["step"] == step]
    for number, accuracy in enumerate(record["validation"].values()):
        own = profile.domain == number
        right = profile.scores[own].argmax(axis=1) == profile.label[own]
        assert right.mean() == pytest.approx(accuracy)
    assert (profile.disagreement is None) == (method == "aggregate")
    assert profile.features is not None
    assert len(profile.features) == len(profile.statistics) == len(profile.described)
    assert np.isnan(profile.statistics[:, -1]).all()  # pictures in memory have no file
    assert np.isfinite(profile.statistics[:, :-1]).all()


def test_a_stopped_run_has_the_same(tmp_path: Path) -> None:
    one, other = train(tmp_path / "one", "dmg"), train(tmp_path / "other", "dmg", 3)
    assert one.profile.read_bytes() == other.profile.read_bytes()
