"""Selection by unlabelled target images, in whole runs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.tiny import tiny, train

import unseen
from unseen.cli.main import main
from unseen.data.batch import Task
from unseen.errors import SettingsError
from unseen.results.folder import RunFolder
from unseen.results.rules import WITHOUT_LABELS, Evaluation, choose
from unseen.training import validation
from unseen.training.build import build_method
from unseen.training.outputs import penultimate
from unseen.training.validation import scores_and_features


def adapt(path: Path, **changes: Any) -> RunFolder:
    changes = {"setting": "adaptation", "images_per_domain": 4, "evaluate_every": 2} | changes
    return train(tiny("digits/dann", **changes), path)


def judged(folder: RunFolder) -> dict[int, dict[str, float]]:
    records = folder.read_metrics()
    return {r["step"]: r["without_labels"] for r in records if "without_labels" in r}


def test_one_run_records_all_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = adapt(tmp_path / "run", selection="oracle")
    found, result = judged(folder), folder.read_result()
    with pytest.raises(SystemExit) as end:
        main(["show", str(folder.path)])
    assert end.value.code == 0
    shown = capsys.readouterr().out.partition("What each selection rule chose")[2]
    rows = [line.split("|")[1].strip() for line in shown.splitlines() if "%" in line]
    assert rows == ["source", "last", "infomax", "snd", "bnm", "dev", "oracle"]
    assert list(found) == [2, 4, 6]
    assert list(result.rules) == ["last", "source", "dev", "bnm", "snd", "infomax", "oracle"]
    for rule in WITHOUT_LABELS:
        best = max(found, key=lambda step, rule=rule: (found[step][rule], -step))
        assert result.under(rule).step == best
        assert result.under(rule).temperature is not None
        same = [other for other in result.rules if result.under(other).step == best]
        for other in same:
            assert folder.weights(other).read_bytes() == folder.weights(rule).read_bytes()


def test_a_run_is_chosen_by_it(tmp_path: Path) -> None:
    folder = adapt(tmp_path / "run", selection="snd")
    run = unseen.load_run(folder.path)
    assert run.result.selection == "snd"
    weights = load_file(folder.weights("snd"))
    for name, tensor in run.model.method.state_dict().items():
        torch.testing.assert_close(tensor, weights[name])


def test_only_images_that_training_sees_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the held-out ones of the target, and of no image of the target its label."""
    asked: list[np.ndarray] = []
    observe = validation._observe

    def remember(session: Any, rows: np.ndarray) -> Any:
        asked.append(rows)
        roles = session.runs[0].images.roles
        known = np.concatenate([roles.target_rows, *roles.validation.values()])
        assert set(rows) <= set(known)
        assert not set(rows) & set(np.concatenate(list(roles.out_of_domain.values())))
        return observe(session, rows)

    monkeypatch.setattr(validation, "_observe", remember)
    monkeypatch.setattr(validation, "MOST_IMAGES", 30)
    adapt(tmp_path / "run", steps=2)
    assert [len(rows) for rows in asked] == [30, 30]


def test_the_step_with_the_highest_value_and_the_earliest_of_equal_ones() -> None:
    values = {100: 0.2, 200: 0.5, 300: 0.5}
    records = [
        Evaluation(step, {"photo": 1.0 - step / 1000}, without_labels={"bnm": value})
        for step, value in values.items()
    ]
    assert choose("bnm", records) == 200
    with pytest.raises(SettingsError, match="has no value of the unlabelled target images"):
        choose("dev", records)


@pytest.mark.parametrize("method", ["dann", "dmg", "multihead"])
def test_features_are_what_the_classifier_sees(method: str) -> None:
    """Whether or not they come along with the answer: dmg masks them, multihead has other heads."""
    built = build_method(tiny(f"digits/{method}"), Task(("a", "b"), ("x", "y", "z"))).eval()
    images = torch.randn(5, 3, 16, 16)
    with torch.no_grad():
        scores, features = scores_and_features(built, images)
        torch.testing.assert_close(scores, built.predict(images))
        assert len(features) == 5
        assert features.ndim == 2
        if method == "dann":
            torch.testing.assert_close(features, penultimate(built.network, images))
