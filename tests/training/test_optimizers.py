"""Rates, groups and optimizers, against values worked by hand and against plain torch."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from unseen.data.batch import Task
from unseen.methods.base import Method
from unseen.networks.backbones import build_network
from unseen.settings import catalog
from unseen.settings.experiment import NetworkSettings, OptimizerSettings, ScheduleSettings
from unseen.training.optimizers import build_optimizer, clip, schedule_factor, set_rates

TASK = Task(("one", "two"), ("photo", "sketch"))


def make(name: str, new_stages: tuple[str, ...] = (), **settings: object) -> Method:
    torch.manual_seed(0)
    frozen = "fc1" if name == "importance" else None
    network = build_network(
        NetworkSettings(name="small_cnn", image_size=16, freeze_until=frozen), 2
    )
    network.new_stages = new_stages
    kind = catalog.load("method", name)
    task = TASK._replace(target="clipart") if kind.traits.target_images == "dataset_pass" else TASK
    return kind(network, task, kind.Config(name=name, **settings))


@pytest.mark.parametrize(
    ("settings", "step", "expected"),
    [
        ({"name": "constant"}, 77, 1.0),
        ({"name": "exponential", "gamma": 0.5, "unit": "step"}, 3, 0.125),
        ({"name": "exponential", "gamma": 0.5, "unit": "epoch"}, 9, 1.0),
        ({"name": "exponential", "gamma": 0.5, "unit": "epoch"}, 25, 0.25),
        ({"name": "exponential", "gamma": 0.25, "unit": "run"}, 50, 0.5),
        ({"name": "inverse", "gamma": 1, "power": 2, "unit": "step"}, 3, 1 / 16),
        ({"name": "inverse", "gamma": 1, "power": 1, "unit": "epoch"}, 19, 1 / 2),
        ({"name": "inverse", "gamma": 10, "power": 0.75, "unit": "run"}, 0, 1.0),
        ({"name": "inverse", "gamma": 10, "power": 0.75, "unit": "run"}, 50, 6**-0.75),
        ({"name": "cosine"}, 0, 1.0),
        ({"name": "cosine"}, 50, 0.5),
        ({"name": "cosine"}, 100, 0.0),
        ({"name": "cosine"}, 25, (1 + math.sqrt(0.5)) / 2),
        ({"name": "cosine", "warmup": 0.5}, 24, (1 + math.cos(0.24 * math.pi)) / 4),
        ({"name": "flat", "warmup": 0.1}, 0, 0.1),
        ({"name": "flat", "warmup": 0.1}, 8, 0.9),
        ({"name": "flat", "warmup": 0.1}, 9, 1.0),
        ({"name": "flat", "warmup": 0.1}, 99, 1.0),
        ({"name": "flat", "decay_from": 0.6}, 60, 1.0),
        ({"name": "flat", "decay_from": 0.6}, 70, (1 + math.sqrt(0.5)) / 2),
        ({"name": "flat", "decay_from": 0.6}, 80, 0.5),
        ({"name": "flat", "decay_from": 0.6}, 100, 0.0),
        ({"name": "flat", "decay_from": 0.0}, 50, 0.5),
    ],
)
def test_schedules(settings: dict[str, object], step: int, expected: float) -> None:
    """100 steps, 10 of them an epoch; the sixth-last ones are DANN's lr_0 / (1 + 10 p)^0.75."""
    schedule = ScheduleSettings.model_validate(settings)
    assert schedule_factor(schedule, step, 100, 10) == pytest.approx(expected, abs=1e-12)


def test_a_rate_that_falls_before_it_is_up_is_refused() -> None:
    with pytest.raises(ValueError, match="decay_from lies before the end of warmup"):
        ScheduleSettings(name="flat", warmup=0.5, decay_from=0.4)


@pytest.mark.parametrize("schedule", ["run", "constant"])
def test_groups_follow_the_schedule_from_their_own_rates_or_leave_it(schedule: str) -> None:
    method = make("dmg", mask_lr=0.5, **({} if schedule == "run" else {"mask_schedule": schedule}))
    optimizer = build_optimizer(method, OptimizerSettings(lr=0.01))
    for step, factor in ((7, None), (0, 1.0), (10, 0.0), (5, 0.5)):  # in any order
        set_rates(optimizer, schedule_factor(ScheduleSettings(name="cosine"), step, 10, 5))
        if factor is not None:
            masks = 0.5 * (factor if schedule == "run" else 1)
            found = [group["lr"] for group in optimizer.param_groups]
            assert found == pytest.approx([masks, 0.01 * factor])


def rates(method: Method, settings: OptimizerSettings) -> dict[str, float]:
    names = {id(p): name for name, p in method.named_parameters()}
    groups = build_optimizer(method, settings).param_groups
    return {names[id(p)]: group["lr"] for group in groups for p in group["params"]}


@pytest.mark.parametrize("name", catalog.METHODS)
def test_rates_fall_towards_the_stem(name: str) -> None:
    """`pool` has no weights and does not count; what a method adds has the rate of the end. Every
    parameter that learns is in a group; torch refuses one that is in two."""
    method = make(name, ("fc2",))
    found = rates(method, OptimizerSettings(lr=0.1, layer_decay=0.5, new_layers_lr_factor=3))
    assert found.keys() == {n for n, p in method.named_parameters() if p.requires_grad}
    factors = {"conv1": 1 / 16, "conv2": 1 / 8, "conv3": 1 / 4, "fc1": 1 / 2, "fc2": 3}
    for stage, factor in factors.items():
        of_stage = {n: lr for n, lr in found.items() if f".stages.{stage}." in n}
        assert list(of_stage.values()) == pytest.approx([0.1 * factor] * len(of_stage))
    assert name == "importance" or any("stages.conv1." in n for n in found)


@pytest.mark.parametrize(
    ("name", "own", "expected"),
    [
        ("multihead", {"split": "fc1"}, {"heads.1.fc1.0.weight": 0.05, "heads.1.fc2.bias": 0.1}),
        ("multihead", {"split": "fc1"}, {"network.stages.conv3.0.weight": 0.025}),
        ("dmg", {"mask_lr": 0.5}, {"logits.0": 0.5}),
        ("dmg", {}, {"logits.0": 0.1}),
    ],
)
def test_copies_of_stages_have_the_rate_of_their_stage_and_masks_their_own(
    name: str, own: dict[str, Any], expected: dict[str, float]
) -> None:
    settings = OptimizerSettings(lr=0.1, layer_decay=0.5)
    found = rates(make(name, **own), settings)
    assert {each: found[each] for each in expected} == pytest.approx(expected)
    optimizer = build_optimizer(make("aggregate"), settings)
    assert optimizer.param_groups[-1]["lr"] == 0.1  # the one that is recorded


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({"mask_lr": 0.5, "mask_weight_decay": 0.25}, (0.5, 0.25)), ({}, (0.01, 0.1))],
)
def test_masks_have_their_own_rate_and_decay_where_they_are_given(
    settings: dict[str, float], expected: tuple[float, float]
) -> None:
    method = make("dmg", **settings)
    groups = build_optimizer(method, OptimizerSettings(lr=0.01, weight_decay=0.1)).param_groups
    masks, others = ((group["lr"], group["weight_decay"]) for group in groups)
    assert [p.shape for p in groups[0]["params"]] == [(2, 256), (2, 128)]
    assert (masks, others) == (expected, (0.01, 0.1))


@pytest.mark.parametrize(("name", "expected"), [("aggregate", 2), ("multihead", 4), ("dmg", 2)])
def test_new_layers_have_their_factor(name: str, expected: int) -> None:
    """Weight and bias of the classifier: two tensors, and two for each of multihead's heads."""
    settings = OptimizerSettings(lr=0.01, new_layers_lr_factor=10)
    groups = build_optimizer(make(name, ("fc2",)), settings).param_groups
    new, others = groups[-2:]
    assert new["lr"] == pytest.approx(0.1)
    assert len(new["params"]) == expected
    assert {p.shape[0] for p in new["params"]} == {2}
    assert others["lr"] == 0.01


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("Adam", {"weight_decay": 0.1}),
        ("AdamW", {"weight_decay": 0.1}),
        ("SGD", {"momentum": 0.8, "nesterov": True, "weight_decay": 0.1}),
        ("SGD", {"momentum": 0.0}),
    ],
)
def test_optimizers_take_the_steps_of_plain_torch(name: str, settings: dict[str, Any]) -> None:
    ours, theirs = make("aggregate"), make("aggregate")
    chosen = OptimizerSettings.model_validate({"name": name.lower(), "lr": 0.05, **settings})
    plain = getattr(torch.optim, name)(theirs.parameters(), lr=0.05, foreach=False, **settings)
    for method, optimizer in ((ours, build_optimizer(ours, chosen)), (theirs, plain)):
        generator = torch.Generator().manual_seed(0)
        for _ in range(3):
            for parameter in method.parameters():
                parameter.grad = torch.randn(parameter.shape, generator=generator)
            optimizer.step()
    for found, expected in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_a_parameter_may_start_to_learn_later(name: str) -> None:
    """In a method with phases some parameters have no gradient for a while."""
    method = make("multihead")
    settings = OptimizerSettings.model_validate({"name": name, "lr": 0.1, "weight_decay": 0.1})
    optimizer = build_optimizer(method, settings)
    early, late = list(method.parameters())[:2]
    before = late.detach().clone()
    for step in range(3):
        early.grad = torch.ones_like(early)
        late.grad = torch.ones_like(late) if step == 2 else None
        optimizer.step()
        assert torch.equal(late, before) == (step < 2)


def test_gradients_are_clipped_run_by_run() -> None:
    """Each as `clip_grad_norm_` clips it by itself, to a length of its own."""
    gradients = {"a": torch.randn(3, 4, 2), "b": torch.randn(3, 5)}
    largest = torch.tensor([0.1, 1.0, 1e3])
    expected = []
    for number, length in enumerate(largest.tolist()):
        own = [nn.Parameter(torch.zeros(each.shape[1:])) for each in gradients.values()]
        for parameter, gradient in zip(own, gradients.values(), strict=True):
            parameter.grad = gradient[number].clone()
        nn.utils.clip_grad_norm_(own, length)
        expected.append([parameter.grad for parameter in own])
    clip(gradients, largest)
    for found, each in zip(gradients.values(), zip(*expected, strict=True), strict=True):
        torch.testing.assert_close(found, torch.stack(each))
