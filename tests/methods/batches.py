"""Methods on tiny networks and small batches of noise, for tests of formulas."""

from typing import Any

import torch
from torch import Tensor, nn

from unseen.data.batch import DomainBatch, Task
from unseen.data.randomness import image_keys, step_key
from unseen.networks.stages import ImageInput, Network
from unseen.settings import catalog


def network_of(stages: dict[str, nn.Module], size: int = 2, sites: tuple[str, ...] = ()) -> Network:
    return Network(stages, ImageInput(size, (0.5,) * 3, (0.5,) * 3), mask_sites=sites)


def tiny_network(*hidden: nn.Module) -> Network:
    """3×2×2 images, a hidden layer of 4 (Tanh, or the modules given), a classifier of 3."""
    torch.manual_seed(0)
    stages = {
        "flatten": nn.Flatten(),
        "fc1": nn.Sequential(nn.Linear(12, 4), *(hidden or (nn.Tanh(),))),
        "fc2": nn.Linear(4, 3),
    }
    return network_of(stages, sites=("fc2",))


def build(
    name: str,
    network: Network | None = None,
    domains: int = 2,
    target: str | None = None,
    **settings: Any,
) -> Any:
    """A method of the catalog for classes a, b, c and the first of the domains k, l, m, n."""
    kind = catalog.load("method", name)
    task = Task(("a", "b", "c"), tuple("klmn"[:domains]), target)
    config = kind.Config.model_validate({"name": name, **settings})
    return kind(network or tiny_network(), task, config).train()


def batch_of(
    domains: list[int],
    n_domains: int = 2,
    step: int = 0,
    dtype: torch.dtype = torch.float32,
    size: int = 2,
    n_target: int = 0,
) -> DomainBatch:
    """An image for each domain that is named; classes 0, 1, 2 in turn."""
    places = torch.arange(len(domains))
    generator = torch.Generator().manual_seed(step + 1)
    images = torch.randn(len(domains), 3, size, size, generator=generator, dtype=dtype)
    target = torch.randn(n_target, 3, size, size, generator=generator, dtype=dtype) + 1
    return DomainBatch(
        images,
        places % 3,
        torch.tensor(domains),
        image_keys(0, step, places),
        n_domains,
        places,
        step_key(0, step),
        target if n_target else None,
    )


def gradients(value: Tensor, module: nn.Module) -> list[Tensor]:
    """By all parameters of a module; zero where the value does not depend on one."""
    parameters = list(module.parameters())
    if not parameters:
        return []
    found = torch.autograd.grad(
        value, parameters, retain_graph=True, allow_unused=True, materialize_grads=True
    )
    return list(found)


def largest(values: list[Tensor]) -> float:
    return max(value.abs().max().item() for value in values)


def assert_gradients(
    found: Tensor, own: Tensor, weight: float, other: Tensor, module: nn.Module
) -> None:
    """The gradient by the module is that of one loss and so much of that of another."""
    others = gradients(other, module)
    expected = [a + weight * b for a, b in zip(gradients(own, module), others, strict=True)]
    torch.testing.assert_close(gradients(found, module), expected, atol=1e-6, rtol=1e-4)
    assert not others or largest(others) > 1e-5


def assert_loss(found: Tensor, expected: Tensor, module: nn.Module) -> None:
    """Both have the same value, and the same gradient by all parameters of the module."""
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradients(found, module), gradients(expected, module))
