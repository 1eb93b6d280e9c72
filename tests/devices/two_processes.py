"""Runs by one process and by two (gloo), which are started once for all of them: starting costs
more than the runs."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning_fabric import Fabric
from safetensors.torch import load_file
from tests.double_precision import double_precision
from tests.tiny import TINY, train

from unseen import across_devices
from unseen.results.folder import RunFolder
from unseen.settings.experiment import Experiment, complete_settings
from unseen.settings.recipes import load_experiment
from unseen.training import loop, outputs
from unseen.training.devices import Interrupted, launch
from unseen.training.execute import _train_in_process
from unseen.training.loop import save
from unseen.training.session import Session
from unseen.training.validation import finish

SETTINGS = TINY | {
    "images_per_domain": 4,
    "steps": 4,
    "evaluate_every": 2,
    "optimizer.name": "sgd",
    "optimizer.lr": 0.05,
}
FORMS: dict[str, dict[str, Any]] = {
    "adaptation": {"setting": "adaptation"},
    "union of targets": {"setting": "adaptation", "data.unseen_domain": "plain,outlines"},
    "upper bound": {"data.train_on_unseen": True},
    "routed": {"method.prediction": "routed"},
    "averaged": {"averaging.name": "mean", "averaging.start": 0.5, "schedule.name": "flat"},
    "in a valley": {"averaging.name": "swad", "averaging.valley_start": 1, "evaluate_every": 1},
    "styles mixed": {"augment.mixstyle": 1.0, "augment.mixstyle_stages": "conv2"},
    "amplitudes mixed": {"augment.amplitude_mix": 1.0},
    "from views": {"network.freeze_until": "fc1", "network.views": 2},
    "classes balanced": {"sampling": "class_balanced", "metric": "macro_f1"},
    "in parts": {"devices.accumulate": 2, "devices.readers": 2, "devices.evaluation_batch": 5},
    "head first": {"head_first": True, "label_smoothing": 0.1, "optimizer.layer_decay": 0.5},
    "sparse": {"data.validation_share": 0.004},  # `blended` has one validation image
    "paused": {},
}


def experiment(name: str, number: int = 1, **changes: Any) -> Experiment:
    """A method, or `METHOD, FORM`."""
    method, _, form = name.partition(", ")
    more = FORMS.get(form, {})
    if number == 1:  # the whole batch at once
        more = {key: value for key, value in more.items() if not key.startswith("devices.")}
    settings = SETTINGS | {"devices.number": number} | more | changes
    return load_experiment(f"digits/{method}", settings)


def train_both_ways(names: Sequence[str], folder: Path, cache: Path) -> tuple[Path, Path]:
    """Trains each by one process and by two; what is paused there goes on with one. Returns the
    places of their runs."""
    with pytest.MonkeyPatch.context() as patch, double_precision():
        patch.setenv("UNSEEN_CACHE", str(cache))
        patch.setenv("PYTHONWARNINGS", "error")
        few = ("ANSWERED", "LOOKED_AT", "MAPPED")
        for name in few:
            patch.setattr(outputs, name, 8)
        for name in names:
            train(experiment(name), folder / "one" / name)
            RunFolder(folder / "two" / name).create(experiment(name, 2))
        settings = {name: complete_settings(experiment(name, 2)) for name in names}
        launch(experiment("dmg", 2), _train_all, settings, folder / "two")
        for name in names:
            if "paused" in name:
                paused = RunFolder(folder / "two" / name)
                assert not paused.finished
                assert paused.checkpoint.is_file()
                train(experiment(name), paused.path)
    return folder / "one", folder / "two"


def _train_all(fabric: Fabric, settings: dict[str, Any], folder: Path) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError("only rank 0 writes")

    def compare(session: Session) -> None:
        """Weights are the same on both: so are all gradients."""
        parameters = session.learner.method.parameters()
        both = across_devices.gather(torch.cat([p.detach().flatten() for p in parameters])[None])
        assert torch.equal(both[0], both[1])
        finish(session)

    def pause(session: Session) -> None:
        save(session)
        raise Interrupted(session.runs[0].folder.path, session.step, 15)

    outputs.ANSWERED = outputs.LOOKED_AT = outputs.MAPPED = 8
    if not fabric.is_global_zero:
        tempfile.mkstemp = refuse  # what every atomic file begins with
        Path.touch = refuse  # and what the log of the metrics begins with
    loop.finish = compare
    with double_precision():
        for name, chosen in settings.items():
            loop.save = pause if "paused" in name else save
            error = _train_in_process(fabric, chosen, folder / name)
            if isinstance(error, Interrupted) == ("paused" in name):
                continue
            raise error or AssertionError(f"{name} was not paused")


def assert_same(found: RunFolder, expected: RunFolder, atol: float = 1e-7) -> None:
    """Weights, records and counts."""
    ours, theirs = (load_file(each.weights("last")) for each in (found, expected))
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, atol=atol, rtol=1e-6, msg=name)
    result, wanted = found.read_result(), expected.read_result()
    for record, other in zip(found.read_metrics(), expected.read_metrics(), strict=True):
        assert record.keys() == other.keys()
        numbers = {key: value for key, value in other.items() if isinstance(value, float)}
        assert {key: record[key] for key in numbers} == pytest.approx(numbers, rel=1e-3, abs=1e-5)
        judged = other.get("without_labels", {})
        assert record.get("without_labels", {}) == pytest.approx(judged, rel=1e-3, abs=1e-5)
        assert bool(judged) == (wanted.setting == "adaptation" and "validation" in other)
        assert set(record.get("validation", ())) == set(other.get("validation", ()))
    for rule, chosen in wanted.rules.items():
        assert result.under(rule).temperature == pytest.approx(chosen.temperature, rel=0.05), rule
        for view, by_domain in chosen.views.items():
            for domain, measured in by_domain.items():
                same = result.view(rule, view)[domain]
                assert (same.confusion.sum(axis=1) == measured.confusion.sum(axis=1)).all()
                assert same.accuracy == pytest.approx(measured.accuracy, abs=0.03)
    assert result.model_copy(update={"rules": {}}) == wanted.model_copy(update={"rules": {}})
