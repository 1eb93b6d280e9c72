"""Rules that every catalogued method keeps, on the smallest network that has all the parts."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from unseen import catalog
from unseen.config import NetworkSettings, OptimizerSettings
from unseen.data.batch import DomainBatch, Task
from unseen.data.randomness import image_keys
from unseen.methods.base import Method, Progress
from unseen.networks.backbones import build_network
from unseen.training.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from unseen.training.optimizers import build_optimizer

TASK = Task(("one", "two", "three"), ("photo", "sketch", "cartoon"))
methods = pytest.mark.parametrize("name", catalog.METHODS)


def make(name: str, seed: int = 0) -> Method:
    torch.manual_seed(seed)
    network = build_network(NetworkSettings(name="small_cnn", image_size=16), len(TASK.classes))
    kind = catalog.load("method", name)
    return kind(network, TASK, kind.Config(name=name))


def batch(step: int = 0, per_domain: int = 4, domains: list[int] | None = None) -> DomainBatch:
    """Each class is a brightness, so that there is something to learn."""
    places = torch.arange(per_domain * 3)
    labels = places % 3
    noise = torch.randn(len(places), 3, 16, 16, generator=torch.Generator().manual_seed(step))
    images = labels[:, None, None, None] - 1 + 0.3 * noise
    domain_of = torch.tensor(domains) if domains else places // per_domain
    return DomainBatch(images, labels, domain_of, image_keys(0, step, places), 3)


def steps(method: Method, optimizer: torch.optim.Optimizer, numbers: range) -> list[float]:
    losses = []
    method.train()
    for number in numbers:
        loss = method(batch(number), Progress(number, 20))["loss"]
        optimizer.zero_grad()
        loss.backward()
        method.edit_gradients(Progress(number, 20))
        optimizer.step()
        method.after_update(Progress(number, 20))
        losses.append(loss.item())
    return losses


@methods
def test_losses_are_finite_scalars_and_loss_has_a_gradient(name: str) -> None:
    losses = make(name).loss(batch(), Progress(0, 10))
    assert losses["loss"].requires_grad
    for part, value in losses.items():
        assert value.shape == (), part
        assert torch.isfinite(value), part


@methods
@pytest.mark.parametrize("domains", [None, [0] * 8 + [1] * 4])
def test_every_parameter_gets_a_gradient(name: str, domains: list[int] | None) -> None:
    """Also in a pooled batch in which one domain is missing."""
    method = make(name)
    method.loss(batch(domains=domains), Progress(0, 10))["loss"].backward()
    missing = [n for n, p in method.named_parameters() if p.requires_grad and p.grad is None]
    assert missing == []


@methods
def test_ten_steps_lower_the_loss(name: str) -> None:
    method = make(name)
    optimizer = build_optimizer(method, OptimizerSettings(lr=1e-2))
    losses = steps(method, optimizer, range(10))
    assert sum(losses[-3:]) < 0.8 * sum(losses[:3])


@methods
def test_state_survives_a_checkpoint_bit_for_bit(name: str, tmp_path) -> None:
    """Five steps, save, five more; against load into a fresh method and the same five more."""
    first = make(name)
    first_optimizer = build_optimizer(first, OptimizerSettings(lr=1e-2))
    steps(first, first_optimizer, range(5))
    file = tmp_path / "checkpoint.safetensors"
    save_checkpoint(file, first, first_optimizer, Checkpoint(5, 0, [], 0.0))
    steps(first, first_optimizer, range(5, 10))
    second = make(name, seed=99)
    second_optimizer = build_optimizer(second, OptimizerSettings(lr=1e-2))
    about = load_checkpoint(file, second, second_optimizer)
    assert about is not None
    assert about.step == 5
    steps(second, second_optimizer, range(5, 10))
    expected, found = first.state_dict(), second.state_dict()
    assert expected.keys() == found.keys()
    assert [n for n in expected if not torch.equal(expected[n], found[n])] == []


@methods
def test_predictions_are_class_scores_and_repeatable(name: str) -> None:
    method = make(name).eval()
    images = batch().images
    with torch.no_grad():
        unknown = method.predict(images)
        known = [method.predict(images, domain=d) for d in range(3)]
        assert torch.equal(unknown, method.predict(images))
    assert unknown.shape == (len(images), len(TASK.classes))
    assert all(scores.shape == unknown.shape for scores in known)
    assert method.uses_domain != all(torch.equal(scores, unknown) for scores in known)


@methods
def test_halves_of_a_batch_give_the_gradient_of_the_whole(name: str) -> None:
    """What data parallelism relies on: random draws belong to images, not to processes."""

    def gradients(parts: list[Callable[[Tensor], Tensor]]) -> dict[str, Tensor]:
        method = make(name)
        total = {n: torch.zeros_like(p) for n, p in method.named_parameters()}
        for part in parts:
            whole = batch()
            piece = DomainBatch(
                part(whole.images), part(whole.labels), part(whole.domains), part(whole.keys), 3
            )
            method.zero_grad()
            method(piece, Progress(0, 10))["loss"].backward()
            for n, p in method.named_parameters():
                assert p.grad is not None
                total[n] += p.grad / len(parts)
        return total

    whole = gradients([lambda t: t])
    halves = gradients([lambda t: t[0::2], lambda t: t[1::2]])
    for name_of, expected in whole.items():
        torch.testing.assert_close(halves[name_of], expected, atol=1e-6, rtol=1e-4)


@methods
def test_settings_say_what_they_mean(name: str) -> None:
    fields = catalog.load("method", name).Config.model_fields
    assert [key for key, field in fields.items() if not field.description] == []


def test_the_folder_is_the_list_of_methods() -> None:
    from pathlib import Path

    import unseen.methods

    files = {p.stem for p in Path(unseen.methods.__path__[0]).glob("*.py")}
    assert files - {"__init__", "base"} == set(catalog.METHODS)
