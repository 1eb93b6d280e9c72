"""Adaptation looks at target images and at none of their labels."""

import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from tests.sweeps.made_records import comparison_plan
from tests.tiny import TINY, train

import unseen
from unseen import api
from unseen.atomic import read_json
from unseen.data.datasets.digits import Digits
from unseen.data.index import Index, Split
from unseen.errors import SettingsError
from unseen.results.folder import RunFolder
from unseen.settings.recipes import load_experiment

ADAPTING = TINY | {"setting": "adaptation", "images_per_domain": 4, "steps": 8}
ADAPTING |= {"evaluate_every": 4, "checkpoint_every": 4}


class ShuffledTargets(Digits):
    """The digits, with the labels of one domain dealt out anew."""

    def index(self) -> Index:
        index = super().index()
        rows = np.flatnonzero(index.domain_of == index.domains.index("outlines"))
        labels = index.labels.copy()
        labels[rows] = np.random.default_rng(0).permutation(labels[rows])
        return dataclasses.replace(index, labels=labels)


class OtherTargets(Digits):
    """The digits, with other pictures in one domain."""

    def pixels(self, position: int):
        turned = self.index().names[position].startswith("outlines")
        return np.rot90(super().pixels(position), int(turned))


def run(method: str, dataset: str, path: Path, **changes: Any) -> RunFolder:
    name = dataset if dataset == "digits" else f"{__name__}:{dataset}"
    sys.modules[__name__] = sys.modules.get(__name__) or sys.modules["test_adaptation"]
    changes = {"data.name": name} | changes
    return train(load_experiment(f"digits/{method}", ADAPTING | changes), path)


@pytest.mark.parametrize("method", ["dann", "dsn", "reweighting", "aggregate"])
def test_shuffled_target_labels_change_nothing_before_the_evaluation(
    method: str, tmp_path: Path
) -> None:
    honest = run(method, "digits", tmp_path / "honest")
    shuffled = run(method, "ShuffledTargets", tmp_path / "shuffled")
    assert honest.metrics.read_bytes() == shuffled.metrics.read_bytes()
    for rule in ("source", "last"):
        assert honest.weights(rule).read_bytes() == shuffled.weights(rule).read_bytes()
    first, second = honest.read_result(), shuffled.read_result()
    assert first.rules["last"].step == second.rules["last"].step
    views = [result.rules["last"].views for result in (first, second)]
    assert views[0]["in_domain"] == views[1]["in_domain"]
    confusions = [view["out_of_domain"]["outlines"].counts for view in views]
    assert confusions[0] != confusions[1]  # only there the labels count


@pytest.mark.parametrize(("method", "used"), [("dann", True), ("dsn", True), ("aggregate", False)])
def test_target_images_are_really_used(method: str, used: bool, tmp_path: Path) -> None:
    usual = run(method, "digits", tmp_path / "usual")
    other = run(method, "OtherTargets", tmp_path / "other")
    same = usual.weights("last").read_bytes() == other.weights("last").read_bytes()
    assert same != used


def test_it_is_measured_on_images_that_training_did_not_look_at(tmp_path: Path) -> None:
    folder = run("dann", "digits", tmp_path / "run")
    index = Digits(load_experiment("digits/dann").data, None).index()
    target = index.domain_of == index.domains.index("outlines")
    held_out = target & np.isin(index.splits, [Split.VALIDATION, Split.TEST])
    views = folder.read_result().rules["source"].views
    assert views["out_of_domain"]["outlines"].images == held_out.sum()
    assert folder.read_result().setting == "adaptation"
    model = api.load_run(folder.path)
    assert model.evaluate()["out_of_domain"] == views["out_of_domain"]


def test_the_union_of_two_targets_is_looked_at_and_each_is_measured(tmp_path: Path) -> None:
    folder = run("dann", "digits", tmp_path / "union", **{"data.unseen_domain": "plain,outlines"})
    result, data = folder.read_result(), read_json(folder.data)
    index = Digits(load_experiment("digits/dann").data, None).index()
    train = {name: len(index.rows(name, Split.TRAIN)) for name in ("plain", "outlines")}
    assert data["target_by_domain"] == train
    assert data["target"] == sum(train.values())
    assert set(data["train"]) == {"blended", "coloured"}
    measured = result.view("source", "out_of_domain")
    held_out = {name: len(index.rows(name)) - train[name] for name in train}
    assert {name: each.images for name, each in measured.items()} == held_out
    assert f"| plain | target, seen without labels | {train['plain']} without" in (
        folder.card.read_text()
    )
    model = api.load_run(folder.path)
    assert model.evaluate()["out_of_domain"] == measured


def test_targets_one_after_the_other_or_together(tmp_path: Path) -> None:
    """`a,b` are two runs, `a+b` is one that adapts to both."""
    named = {"setting": "adaptation", "data.unseen_domain": "plain,outlines"}
    words = {"setting": "adaptation", "data.unseen_domain": "plain"}
    for overrides, chosen, held_out in (
        (named, {}, [("plain",), ("outlines",)]),
        (words, {"unseen": "outlines+plain,blended"}, [("plain", "outlines"), ("blended",)]),
    ):
        plan = comparison_plan("digits", "dann", **chosen, overrides=overrides)
        assert [run.experiment.data.unseen_domain for run in plan.singles] == held_out
    where = {"runs": tmp_path, "console": Console(quiet=True)}
    settings = ADAPTING | {"data.unseen_domain": "plain"}
    methods = "aggregate,dann"
    found = unseen.compare("digits", methods=methods, unseen="outlines+plain", **where, **settings)
    assert found.shown[0].columns[:2] == ("outlines+plain", "overall")
    with pytest.raises(SettingsError, match=r"unseen: unknown domain 'plain\+plain'"):
        comparison_plan("digits", "dann", unseen="plain+plain", overrides=words)
