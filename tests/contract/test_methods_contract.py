"""Rules that every catalogued method keeps, on the smallest network that has all the parts."""

import copy
import re
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.methods.side_by_side import gradients_of_one, gradients_of_two, rows
from torch import Tensor, nn

import unseen.methods as methods_folder
from unseen import across_devices
from unseen.data.batch import DomainBatch, Task, every_nth
from unseen.data.randomness import image_keys, step_key
from unseen.errors import SettingsError
from unseen.methods.base import (
    DatasetPassMethod,
    DomainAware,
    Method,
    Progress,
    TrainingImages,
    TwoPhases,
)
from unseen.networks.backbones import build_network
from unseen.networks.stages import Network
from unseen.settings import catalog
from unseen.settings.experiment import NetworkSettings, OptimizerSettings
from unseen.training.checkpoints import (
    Checkpoint,
    load_checkpoint,
    load_weights,
    save_checkpoint,
    save_weights,
)
from unseen.training.optimizers import build_optimizer

TASK = Task(("one", "two", "three"), ("photo", "sketch", "cartoon"))


def _forms() -> dict[str, dict[str, Any]]:
    """Each method in each setting that it is for, by the names that tests have."""
    forms: dict[str, dict[str, Any]] = {}
    for name in catalog.METHODS:
        wish = catalog.load("method", name).traits.target_images
        if wish in {"unused", "optional"}:
            forms[name] = {}
        if wish != "unused":
            forms[f"{name}, adaptation"] = {}
    forms["fishr"] = {"penalty_weight": 10.0}  # or the loss rises while its moving average fills up
    forms["importance"] = {"width": 64, "depth": 2}  # narrow and deep, it needs more steps
    return forms


FORMS = _forms() | {
    "dmg, routed": {"prediction": "routed"},
    "dsn, mmd": {"similarity": "mmd", "warm_up": 0.0, "similarity_weight": 0.1},
    "mldg, first order": {"second_order": False},
    "sam, aligned": {"alignment": 0.3},
}
methods = pytest.mark.parametrize("form", FORMS)
LINEAR = {
    *("aggregate", "multihead", "dmg", "metareg", "epifcr", "fusion", "dsn", "dann"),
    *("reweighting", "importance", "coral", "mmd", "mixup", "sagnet"),
}
"""Methods whose loss is linear in the cross-entropy, so that what smoothing does to it is known."""

WHOLE = {form for form in FORMS if form.partition(",")[0] in {
    "coral", "mmd", "fishr", "groupdro", "irm", "vrex", "mixup", "mldg", "metareg", "sam", "rsc",
    "sagnet", "dsn", "cdann", "iberm",
}} | {"dmg, routed"}  # fmt: skip
"""Methods whose loss is no mean over images."""


def network_for(form: str, frozen: str | None = None, name: str = "small_cnn") -> Network:
    frozen = "fc1" if form.startswith("importance") else frozen
    settings = NetworkSettings(name=name, image_size=16, freeze_until=frozen)
    return build_network(settings, len(TASK.classes))


def make(
    form: str, seed: int = 0, label_smoothing: float = 0.0, network: Network | None = None
) -> Method:
    torch.manual_seed(seed)
    name = form.partition(",")[0]
    network = network or network_for(form)
    kind = catalog.load("method", name)
    target = "clipart" if adapts(form) else None
    config = kind.Config(name=name, **FORMS[form])
    task = TASK._replace(target=target, label_smoothing=label_smoothing)
    method = kind(network, task, config)
    if isinstance(method, DatasetPassMethod):
        method.use_dataset_pass(method.dataset_pass(training_images()))
    return method


def batch(
    step: int = 0,
    per_domain: int = 4,
    domains: list[int] | None = None,
    target: bool = False,
) -> DomainBatch:
    """Each class is a brightness, so that there is something to learn."""
    places = torch.arange(per_domain * 3)
    labels = places % 3
    images = pictures(labels, step)
    return DomainBatch(
        images,
        labels,
        torch.tensor(domains) if domains else places // per_domain,
        image_keys(0, step, places),
        3,
        positions=places,
        step_key=step_key(0, step),
        target=pictures(labels, step + 1000) + 0.2 if target else None,
    )


def pictures(labels: Tensor, seed: int) -> Tensor:
    noise = torch.randn(len(labels), 3, 16, 16, generator=torch.Generator().manual_seed(seed))
    return labels[:, None, None, None] - 1 + 0.3 * noise


def training_images() -> TrainingImages:
    def target() -> Iterator[Tensor]:
        yield pictures(torch.arange(12) % 3, 1000) + 0.2

    return TrainingImages(lambda: iter([batch()]), target)


def adapts(form: str) -> bool:
    return form.endswith(", adaptation")


def steps(
    form: str, method: Method, optimizer: torch.optim.Optimizer, numbers: range, total: int = 20
) -> list[float]:
    losses = []
    method.train()
    for number in numbers:
        progress = Progress(number, total)
        loss = method(batch(number, target=adapts(form)), progress)["loss"]
        optimizer.zero_grad()
        loss.backward()
        method.edit_gradients(progress)
        optimizer.step()
        method.after_update(progress)
        losses.append(loss.item())
    return losses


@methods
@pytest.mark.parametrize("ratio", [0, 0.95])
def test_labels_are_smoothed_as_the_task_asks(form: str, ratio: float) -> None:
    """With ε, cross-entropy is (1 − ε) that of the labels and ε that of each class alike; so is a
    loss that is linear in it. In both phases, and in training only."""
    progress = Progress(round(20 * ratio), 20)
    given = batch(target=adapts(form))
    smoothed = make(form, label_smoothing=0.9)
    found = smoothed.loss(given, progress)["loss"]
    plain = make(form).loss(given, progress)["loss"]
    assert abs(found - plain) > 2e-5  # new classifiers are unsure: little changes
    if form.partition(",")[0] in LINEAR:
        every = [
            make(form).loss(given._replace(labels=torch.full((12,), label)), progress)["loss"]
            for label in range(3)
        ]
        torch.testing.assert_close(found, 0.1 * plain + 0.9 * torch.stack(every).mean())
    images = given.images
    smoothed.preparing = False
    unsmoothed = make(form)
    unsmoothed.loss(given, progress)  # which may keep statistics of the images
    unsmoothed.preparing = False
    assert torch.equal(smoothed.eval().predict(images), unsmoothed.eval().predict(images))


@methods
@pytest.mark.parametrize("domains", [None, [0] * 8 + [1] * 4])
@pytest.mark.parametrize("ratio", [0, 0.95])
def test_losses_are_finite_scalars_and_every_parameter_gets_a_gradient(
    form: str, domains: list[int] | None, ratio: float
) -> None:
    """Also in a pooled batch in which one domain is missing, in the first phase and the last."""
    method = make(form)
    given = batch(domains=domains, target=adapts(form))
    images = given.images.clone()
    losses = method.loss(given, Progress(round(20 * ratio), 20))
    assert torch.equal(given.images, images)
    assert [n for n, v in losses.items() if v.shape != () or not v.isfinite()] == []
    losses["loss"].backward()
    learning = [(n, p) for n, p in method.named_parameters() if p.requires_grad]
    assert [n for n, p in learning if p.grad is None or not p.grad.isfinite().all()] == []


@methods
def test_layers_without_pretrained_weights_are_new(form: str) -> None:
    """Pretrained weights are all 1/8 here: those of the network's stages before the head, and of
    copies of them. New is everything else, unless the method gives it a rate of its own."""
    network = network_for(form)
    for stage in network.names[:-1]:
        for weight in network.stage(stage).parameters():
            nn.init.constant_(weight, 1 / 8)
    network.new_stages = (network.head,)
    method = make(form, network=network)
    groups = method.parameter_groups()
    own = {p for group in groups if not group.get("new") for p in group["params"]}
    new = {p for group in groups if group.get("new") for p in group["params"]}
    learning = {p for p in method.parameters() if p.requires_grad}
    assert (new - own) & learning == {p for p in learning - own if (p != 1 / 8).any()}


@methods
@pytest.mark.parametrize("ratio", [0, 0.95])
def test_batch_norm_takes_in_a_step_once(form: str, ratio: float) -> None:
    """However often a method runs a network or copies of it; in each phase what it trains."""
    method = make(form, network=network_for(form, name="mnist_cnn")).train()
    method.loss(batch(target=adapts(form)), Progress(round(20 * ratio), 20))
    learning = {n.rpartition(".")[0] for n, p in method.named_parameters() if p.requires_grad}
    counts = {n: int(b) for n, b in method.named_buffers() if n.endswith("num_batches_tracked")}
    assert counts == {name: int(name.rpartition(".")[0] in learning) for name in counts}


@methods
def test_ten_steps_lower_the_loss(form: str) -> None:
    method = make(form)
    if hasattr(method.config, "penalty_anneal"):  # or the loss rises where the penalty begins
        method.config = method.config.model_copy(update={"penalty_anneal": 0.0})
    optimizer = build_optimizer(method, OptimizerSettings(lr=1e-2))
    losses = steps(form, method, optimizer, range(10))
    assert sum(losses[-3:]) < 0.8 * sum(losses[:3])


@methods
@pytest.mark.parametrize("pause", [4, 5])  # where a second phase begins, and beside it
def test_state_survives_a_checkpoint_bit_for_bit(form: str, pause: int, tmp_path) -> None:
    """Some steps, save, go on; against load into a fresh method and the same steps. All phases."""
    first = make(form)
    first_optimizer = build_optimizer(first, OptimizerSettings(lr=1e-2, weight_decay=1e-2))
    steps(form, first, first_optimizer, range(pause), total=10)
    file = tmp_path / "checkpoint.safetensors"
    save_checkpoint(file, first, first_optimizer, Checkpoint(pause, 0, [], 0.0))
    steps(form, first, first_optimizer, range(pause, 10), total=10)
    second = make(form, seed=99)
    if isinstance(second, DatasetPassMethod):  # what it found is kept in a file of its own
        other = make(form)
        assert isinstance(other, DatasetPassMethod)
        second.use_dataset_pass(other.dataset_pass(training_images()))
    second_optimizer = build_optimizer(second, OptimizerSettings(lr=1e-2, weight_decay=1e-2))
    about = load_checkpoint(file, second, second_optimizer)
    assert about is not None
    assert about.step == pause
    steps(form, second, second_optimizer, range(pause, 10), total=10)
    expected, found = first.state_dict(), second.state_dict()
    assert expected.keys() == found.keys()
    assert [n for n in expected if not torch.equal(expected[n], found[n])] == []


@methods
def test_predictions_are_class_scores_and_repeatable(form: str) -> None:
    method = make(form).eval()
    images = batch().images
    with torch.no_grad():
        unknown = method.predict(images)
        known = [method.predict(images, domain=d) for d in range(3)]
        assert torch.equal(unknown, method.predict(images))
    assert unknown.shape == (len(images), len(TASK.classes))
    assert all(scores.shape == unknown.shape for scores in known)
    assert isinstance(method, DomainAware) != all(torch.equal(scores, unknown) for scores in known)


@methods
def test_a_model_without_what_only_training_needs_predicts_the_same(form: str, tmp_path) -> None:
    trained = make(form)
    optimizer = build_optimizer(trained, OptimizerSettings(lr=1e-2))
    steps(form, trained, optimizer, range(20))
    save_weights(tmp_path / "model.safetensors", trained)
    loaded = make(form, seed=99)
    load_weights(tmp_path / "model.safetensors", loaded)
    images = batch().images
    with torch.no_grad():
        expected, found = trained.eval().predict(images), loaded.eval().predict(images)
    assert torch.equal(expected, found)


@pytest.mark.usefixtures("in_double_precision")
@methods
@pytest.mark.parametrize("ratio", [0, 0.95])
def test_two_devices_compute_what_one_does(
    form: str, ratio: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random draws belong to images, and what a device has to know of the other's images goes
    through `across_devices`; the second device has no image of a domain."""
    first = [0, 1, 2, 3, 4, 8]
    method, whole = make(form), batch(target=adapts(form))
    method.train()
    progress = Progress(round(20 * ratio), 20)
    halves = [rows(whole, first), rows(whole, [p for p in range(12) if p not in first])]
    found = gradients_of_two(method, halves, progress, monkeypatch)
    expected = gradients_of_one(method, whole, progress)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)


@pytest.mark.usefixtures("in_double_precision")
@pytest.mark.parametrize(
    ("form", "step"),
    [(form, step) for form in FORMS for step in ([0] if form in WHOLE else [0, 19])],
)
def test_parts_of_a_batch_add_up_to_it_or_are_refused(form: str, step: int) -> None:
    """`devices.accumulate`: a method whose loss is no mean over images says so at once."""
    whole, progress = batch(target=adapts(form)), Progress(step, 20)
    method = make(form).train()
    expected = gradients_of_one(method, whole, progress)
    refused = pytest.raises(SettingsError, match=r"devices\.accumulate computes a batch in parts")
    with refused if form in WHOLE else nullcontext(), across_devices.on_part_of_batch():
        for first in range(2):
            (method(every_nth(whole, first, 2), progress)["loss"] / 2).backward()
    if form not in WHOLE:
        found = {name: p.grad for name, p in method.named_parameters() if p.grad is not None}
        torch.testing.assert_close(found, expected, atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("name", catalog.METHODS)
def test_a_single_domain_is_refused_by_those_that_compare_domains(name: str) -> None:
    kind, network = catalog.load("method", name), network_for(name)
    task = TASK._replace(domains=("photo",))
    if kind.traits.target_images == "dataset_pass":
        task = task._replace(target="clipart")
    if not kind.traits.compares_domains:
        assert kind(network, task, kind.Config(name=name)).task == task
        return
    message = rf"^{name} {re.escape(kind.traits.compares_domains)}: .*or more, found one \(photo\)"
    with pytest.raises(SettingsError, match=message):
        kind(network, task, kind.Config(name=name))
    if kind.traits.target_images == "optional":
        kind(network, task._replace(target="clipart"), kind.Config(name=name))


@pytest.mark.parametrize(
    "name", [n for n in catalog.METHODS if catalog.load("method", n).traits.acts_on_features]
)
def test_features_that_do_not_learn_are_remarked_on(name: str) -> None:
    assert make(name).remarks == ()
    (remark,) = make(name, network=network_for(name, "fc2")).remarks
    what = catalog.load("method", name).traits.acts_on_features
    assert f"nothing before 'fc2' learns, so {what} changes nothing" in remark


@methods
def test_images_and_their_stored_features_are_the_same_to_a_method(form: str) -> None:
    """Loss, prediction and what learns: what is frozen has no gradient and no copy that learns."""
    method = make(form, network=network_for(form, "fc1"))
    if method.traits.needs_pixels:
        return
    given = batch(target=adapts(form))
    stored = given._replace(
        images=method.network.start(given.images),
        target=None if given.target is None else method.network.start(given.target),
    )
    assert stored.images.shape[1:] == method.network.input_shapes["fc1"]
    for progress in (Progress(0, 20), Progress(19, 20)):
        one, other = copy.deepcopy(method), copy.deepcopy(method)  # some remember what they saw
        torch.testing.assert_close(one.loss(stored, progress), other.loss(given, progress))
    method.loss(given, Progress(0, 20))["loss"].backward()
    frozen = [p for p in method.parameters() if not p.requires_grad]
    assert all(p.grad is None for p in frozen)
    method.eval()
    torch.testing.assert_close(method.predict(stored.images), method.predict(given.images))


@pytest.mark.parametrize(
    "name", [n for n in catalog.METHODS if issubclass(catalog.load("method", n), TwoPhases)]
)
def test_each_phase_leaves_what_it_does_not_train_bit_for_bit(name: str) -> None:
    """Under Adam with weight decay. A model can be chosen once a step of the second phase is made,
    and there always is one."""
    method = make(name)
    assert isinstance(method, TwoPhases)
    optimizer = build_optimizer(method, OptimizerSettings(lr=1e-2, weight_decay=0.1))
    boundary = method.boundary(20)
    for numbers in (range(boundary), range(boundary, 20)):
        method.preparing = numbers.start < boundary
        idle = {id(parameter) for parameter in method.idle_parameters()}
        before = {n: p.detach().clone() for n, p in method.named_parameters() if p.requires_grad}
        for number in numbers:
            steps(name, method, optimizer, range(number, number + 1))
            assert method.preparing == (number < boundary)
        parameters = dict(method.named_parameters())
        changed = {n for n, value in before.items() if not torch.equal(value, parameters[n])}
        assert changed == {n for n in before if id(parameters[n]) not in idle}
    assert all(method.boundary(total) < total for total in (1, 2, 3, 10))


@pytest.mark.parametrize("name", catalog.METHODS)
def test_what_only_training_needs_exists_and_settings_say_what_they_mean(name: str) -> None:
    form = next(form for form in FORMS if form.partition(",")[0] == name)
    method = make(form)
    parts = {key.partition(".")[0] for key in method.state_dict()}
    assert set(method.traits.training_only) <= parts
    assert all(field.description for field in type(method.config).model_fields.values())


def test_the_folder_is_the_list_of_methods() -> None:
    files = {p.stem for p in Path(methods_folder.__path__[0]).glob("*.py")}
    assert files - {"__init__", "base"} == set(catalog.METHODS)
