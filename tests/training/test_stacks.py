"""Runs that train together: the same results and files as one by one, and nobody spoils another."""

import json
import math
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.tiny import tiny, train

from unseen.atomic import read_json
from unseen.data.batch import Task
from unseen.errors import UnseenError
from unseen.methods.base import Method
from unseen.results.files import read_arrays_if_whole
from unseen.results.folder import RunFolder
from unseen.settings import catalog
from unseen.settings.experiment import Experiment
from unseen.training import execute as rules
from unseen.training import loop, validation
from unseen.training.build import build_method
from unseen.training.devices import Interrupted, StopFlag
from unseen.training.display import SilentDisplay
from unseen.training.execute import RunsFailed, stackable_groups, train_together

pytestmark = pytest.mark.usefixtures("few_pictures")
Build = Callable[..., Experiment]
FIVE = [  # two of them see the same batches
    {"seed": 0, "data__unseen_domain": "outlines"},
    {"seed": 1, "data__unseen_domain": "plain"},
    {"seed": 0, "data__unseen_domain": "outlines"},
    {"seed": 2, "data__unseen_domain": "blended,plain"},
    {"seed": 2, "data__unseen_domain": "coloured", "data__training_domains": "plain,outlines"},
]


@pytest.fixture
def heads(trunk: str) -> Build:
    """Settings of a run that learns fc1 and fc2 from stored features."""

    how_long = {"steps": 12, "evaluate_every": 5, "checkpoint_every": 12, "log_every": 4}
    return partial(tiny, network__pretrained=trunk, network__freeze_until="fc1", **how_long)


def together(experiments: Sequence[Experiment], folder: Path) -> list[RunFolder]:
    folders = [RunFolder(folder / str(number)) for number in range(len(experiments))]
    train_together(experiments, folders, SilentDisplay())
    return folders


def alone(experiments: Sequence[Experiment], folder: Path) -> list[RunFolder]:
    return [train(each, folder / str(number)) for number, each in enumerate(experiments)]


def assert_same(one: RunFolder, other: RunFolder) -> None:
    """Files, weights, chosen steps, accuracies and records."""
    files = {path.name for path in one.path.iterdir()}
    assert {path.name for path in other.path.iterdir()} == files
    assert other.settings.read_bytes() == one.settings.read_bytes()
    assert other.data.read_bytes() == one.data.read_bytes()
    for file in (one.path / "weights").iterdir():
        first, second = load_file(file), load_file(other.path / "weights" / file.name)
        assert list(first) == list(second)
        for name, tensor in first.items():
            torch.testing.assert_close(second[name], tensor, atol=1e-6, rtol=0)
    close(other.read_metrics(), one.read_metrics())
    close(read_json(other.result), read_json(one.result))
    for rule, expected in one.read_result().rules.items():
        for view, by_domain in expected.views.items():
            for domain, measured in other.read_result().view(rule, view).items():
                assert measured.counts == by_domain[domain].counts
    first, second = (read_arrays_if_whole(run.path / "pictures.npz") for run in (one, other))
    assert first.keys() == second.keys() != set()
    assert (first["mistakes/name"] == second["mistakes/name"]).all()


def close(found: Any, expected: Any) -> None:
    """The same keys in the same order, whole numbers the same, fractions almost."""
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for key, value in expected.items():
            close(found[key], value)
    elif isinstance(expected, list):
        for each, other in zip(found, expected, strict=True):
            close(each, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, abs=1e-5, rel=1e-5, nan_ok=True)
    else:
        assert found == expected


STACKABLE = [name for name in catalog.METHODS if catalog.load("method", name).traits.stackable]


def fractions_of(method: str) -> dict[str, float]:
    """A value for each number with a fraction among a method's settings, near its default. It has
    few binary digits: numbers that runs differ in are single precision."""
    defaults = dict(catalog.load("method", method).Config(name=method))
    numbers = {name: value for name, value in defaults.items() if isinstance(value, float)}
    return {
        f"method__{name}": 2.0 ** math.floor(math.log2(value) - 1)
        for name, value in numbers.items()
        if value > 0
    }


@pytest.mark.usefixtures("in_double_precision")
@pytest.mark.parametrize(
    ("method", "changes", "numbers"),
    [
        *((method, {}, fractions_of(method)) for method in STACKABLE),
        ("aggregate", {"optimizer__name": "adam"}, {}),
        ("aggregate", {"optimizer__name": "adamw", "selection": "oracle"}, {}),
        ("aggregate", {"optimizer__name": "sgd", "clip_gradient": 0.5}, {"clip_gradient": 0.3}),
        ("aggregate", {"optimizer__name": "sgd", "optimizer__nesterov": True}, {}),
        ("aggregate", {"optimizer__name": "sgd"}, {"optimizer__momentum": 0.25}),
        (
            "dmg",
            {"method__mask_lr": 1e-2, "method__mask_schedule": "constant"},
            {"method__overlap_weight": 0.5, "method__overlap_ramp": 0.125},
        ),
        ("dmg", {"method__masks": "shared"}, {"method__start_kept": 0.125}),
        ("dmg", {"method__masks": "dropout"}, {}),
        ("dmg", {}, {"method__mask_lr": 0.03}),
        ("multihead", {"optimizer__new_layers_lr_factor": 3.0, "head_first": True}, {}),
        ("aggregate", {"network__views": 2}, {}),
        ("aggregate", {"sampling": "class_balanced", "metric": "balanced"}, {}),
        ("aggregate", {"averaging__name": "mean", "averaging__start": 0.4}, {}),
        ("dmg", {"averaging__name": "ema", "averaging__decay": 0.75, "schedule__warmup": 0.5}, {}),
    ],
)
def test_a_stack_equals_runs_one_by_one(
    method: str, changes: dict[str, Any], numbers: dict[str, float], heads: Build, tmp_path: Path
) -> None:
    """Both learners train every method that says that it can be stacked, and what may differ among
    the runs of a stack does."""
    experiments = []
    for number, choice in enumerate(FIVE):
        own = {name: value * (1 + number / 8) for name, value in numbers.items()}
        own |= {
            "optimizer__lr": 2e-3 * (1 + number),
            "optimizer__weight_decay": 0.02 * number,
            "schedule__name": "exponential",
            "schedule__unit": "run",
            "schedule__gamma": 0.5 / (1 + number),
        }
        experiments.append(heads(f"digits/{method}", **choice | changes | own))
    groups = [[0, 1, 2], [3, 4]]
    assert stackable_groups(experiments) == [tuple(experiments[n] for n in g) for g in groups]
    ones = alone(experiments, tmp_path / "alone")
    for one, other in zip(ones, together(experiments, tmp_path / "together"), strict=True):
        assert_same(one, other)


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": 13},
        {"images_per_domain": 3},
        {"evaluate_every": 6},
        {"selection": "last"},
        {"optimizer__name": "sgd"},
        {"schedule__name": "exponential"},
        {"clip_gradient": 1.0},
        {"data__split_seed": 1},
        {"data__share": 0.5},
        {"data__validation_share": 0.2},
        {"data__unseen_domain": "plain,outlines"},
        {"network__freeze_until": "fc2"},
        {"averaging__name": "mean"},
        {"recipe": "digits/dmg"},
    ],
)
def test_what_may_not_differ(changes: dict[str, Any], heads: Build) -> None:
    """What may goes together, with another run between."""
    first, other = heads(), heads(**changes)
    second = heads(seed=7, data__unseen_domain="plain", optimizer__lr=0.3, schedule__gamma=0.5)
    assert stackable_groups([first, other, second]) == [(first, second), (other,)]


def test_views_of_another_augmentation_are_other_images(heads: Build) -> None:
    """Without views, nothing is augmented."""
    for views, together in ((0, 1), (2, 2)):
        several = [heads(network__views=views, augment__jitter=jitter) for jitter in (0.2, 0.3)]
        assert len(stackable_groups(several)) == together


@pytest.mark.parametrize(
    "changes",
    [
        {"network__freeze_until": None},
        {"network__freeze_until": "conv3"},
        {"network__pretrained": False},
        {"network__store_features": False},
        {"augment__mixstyle": 0.5, "augment__mixstyle_stages": "fc1"},
        {"sampling": "pooled"},
        {"precision": "bf16"},
        {"averaging__name": "swad", "evaluate_every": 1},
        {"compile": True},
        {"devices__number": 2},
        {"setting": "adaptation"},
        {"recipe": "digits/mldg"},
        {"recipe": "digits/dsn"},
        {"recipe": "digits/dmg", "method__prediction": "routed"},
        {"network__name": "mnist_cnn", "network__pretrained": False, "seed": 0},
        {"data__unseen_domain": "nowhere"},
    ],
)
def test_who_trains_alone(changes: dict[str, Any], heads: Build) -> None:
    """The last but one: dropout and batch norm lie behind the boundary."""
    pair = [heads(**{"seed": seed} | changes) for seed in (0, 1)]
    assert stackable_groups(pair) == [(pair[0],), (pair[1],)]


def test_frozen_dropout_and_batch_norm_do_no_harm() -> None:
    choice = {"network__name": "mnist_cnn", "network__freeze_until": "fc2"}
    pair = tuple(tiny(**choice, optimizer__lr=lr) for lr in (0.1, 0.2))
    assert stackable_groups(pair) == [pair]


def test_shared_weights_are_not_stacked(heads: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    def tied(experiment: Experiment, task: Task) -> Method:
        method = build_method(experiment, task)
        method.register_parameter("again", method.network.stage("fc2").weight)  # pyright: ignore
        return method

    pair = [heads(seed=seed) for seed in (0, 1)]
    assert len(stackable_groups(pair)) == 1
    monkeypatch.setattr(rules.build, "build_method", tied)
    assert len(stackable_groups(pair)) == 2


def test_groups_fit_the_memory(heads: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run has 34,186 numbers that learn and 6 x 256 in a batch; 8 copies of 4 bytes each."""
    runs = [heads(seed=seed) for seed in range(7)]
    monkeypatch.setattr(rules, "MEMORY", 3 * 4 * 8 * (34_186 + 6 * 256))
    assert [len(group) for group in stackable_groups(runs)] == [3, 3, 1]
    monkeypatch.setattr(rules, "LARGEST", 2)
    assert [len(group) for group in stackable_groups(runs)] == [2, 2, 2, 1]


@pytest.mark.usefixtures("in_double_precision")
@pytest.mark.parametrize(
    ("huge", "changes", "message"),
    [
        (1e300, {}, "the loss is not finite at step"),
        # the last update makes them endless, after the last loss
        (1e308, {"steps": 1}, "the weights are not finite after step 1"),
    ],
)
def test_a_run_that_diverges_fails_alone(
    huge: float, changes: dict[str, Any], message: str, heads: Build, tmp_path: Path
) -> None:
    rates = [(huge, huge * (huge > 1e300)), (1e-3, 0.0), (1e-2, 0.0)]  # and decays of weights
    experiments = [
        heads(optimizer={"name": "sgd", "lr": lr, "weight_decay": decay}, **changes)
        for lr, decay in rates
    ]
    with pytest.raises(RunsFailed) as failure:
        together(experiments, tmp_path / "together")
    (path,) = failure.value.errors
    assert path == tmp_path / "together" / "0"
    with pytest.raises(UnseenError, match=message) as expected:
        alone(experiments[:1], tmp_path / "alone")
    told = str(expected.value).replace(str(tmp_path / "alone" / "0"), str(path))
    assert str(failure.value.errors[path]) == told
    assert not RunFolder(path).finished
    close(RunFolder(path).read_metrics(), RunFolder(tmp_path / "alone" / "0").read_metrics())
    for number, one in enumerate(alone(experiments[1:], tmp_path / "again"), start=1):
        assert_same(one, RunFolder(tmp_path / "together" / str(number)))


@pytest.mark.usefixtures("in_double_precision")
def test_a_stack_that_was_killed_is_repeated(
    heads: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiments = [heads(seed=seed) for seed in range(4)]
    write, seen = validation.write_files, []

    def break_down(*arguments: Any) -> None:
        seen.append(arguments)
        if len(seen) == 2:
            raise KeyboardInterrupt
        write(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(validation, "write_files", break_down)
        with pytest.raises(KeyboardInterrupt):
            together(experiments, tmp_path / "together")
    states = [RunFolder(tmp_path / "together" / str(n)).finished for n in range(4)]
    assert states == [True, False, False, False]
    finished = RunFolder(tmp_path / "together" / "0").result
    before = finished.stat().st_mtime_ns
    (resumed,) = alone(experiments[1:2], tmp_path / "elsewhere")
    # one of the three goes on by itself, then the stack is repeated
    train(experiments[1], tmp_path / "together" / "1")
    repeated = together(experiments, tmp_path / "together")
    assert finished.stat().st_mtime_ns == before
    assert json.loads(resumed.result.read_text()) == json.loads(repeated[1].result.read_text())
    (last,) = alone(experiments[3:], tmp_path / "last")
    assert_same(last, repeated[3])


def test_a_signal_stops_a_stack(
    heads: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def told_to_stop() -> Iterator[StopFlag]:
        flag = StopFlag()
        flag.signal_number = signal.SIGTERM
        yield flag

    experiments = [heads(seed=seed) for seed in range(2)]
    with monkeypatch.context() as patch:
        patch.setattr(loop, "stop_requests", told_to_stop)
        with pytest.raises(Interrupted, match="stopped at step 1 of runs that train together"):
            together(experiments, tmp_path)
    assert not (tmp_path / "0" / "metrics.jsonl").exists()
    assert all(run.finished for run in together(experiments, tmp_path))


def test_a_run_with_a_checkpoint_goes_on_from_it(heads: Build, tmp_path: Path) -> None:
    experiments = [heads(seed=seed, checkpoint_every=4) for seed in range(3)]
    train(experiments[0], tmp_path / "together" / "0", until=8)
    runs = together(experiments, tmp_path / "together")
    (one,) = alone(experiments[:1], tmp_path / "alone")
    assert runs[0].weights("last").read_bytes() == one.weights("last").read_bytes()
    assert not any(run.checkpoint.exists() for run in runs)


def test_rules_that_chose_the_same_step_share_a_file(heads: Build, tmp_path: Path) -> None:
    for way, name in ((alone, "alone"), (together, "together")):
        first, second = way([heads(steps=5, seed=s) for s in (0, 1)], tmp_path / name)
        for run in (first, second):
            assert run.weights("source").samefile(run.weights("last"))
        assert not first.weights("last").samefile(second.weights("last"))


@pytest.mark.usefixtures("in_double_precision")
def test_upper_bounds_are_stacked_with_each_other_only(heads: Build, tmp_path: Path) -> None:
    bounds = [heads(data__train_on_unseen=True, seed=seed) for seed in (0, 1)]
    assert stackable_groups([*bounds, heads()]) == [tuple(bounds), (heads(),)]
    ones = alone(bounds, tmp_path / "alone")
    for one, other in zip(ones, together(bounds, tmp_path / "together"), strict=True):
        assert_same(one, other)
        assert other.read_result().trained_on_unseen
