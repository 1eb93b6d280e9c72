"""Small batches of noise for formula tests, and gradients as a list."""

import torch
from torch import Tensor, nn

from unseen.data.batch import DomainBatch
from unseen.data.randomness import image_keys, step_key
from unseen.methods.base import Method
from unseen.networks.stages import ImageInput, Network


def batch_of(
    domains: list[int],
    n_domains: int = 2,
    step: int = 0,
    dtype: torch.dtype = torch.float32,
) -> DomainBatch:
    """An image of 2 × 2 pixels for each domain that is named; classes 0, 1, 2 in turn."""
    places = torch.arange(len(domains))
    generator = torch.Generator().manual_seed(step + 1)
    return DomainBatch(
        torch.randn(len(domains), 3, 2, 2, generator=generator, dtype=dtype),
        places % 3,
        torch.tensor(domains),
        image_keys(0, step, places),
        n_domains,
        places,
        step_key(0, step),
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


def assert_new(method: Method, *layers: nn.Module) -> None:
    """These layers and no others have the rate of new ones."""
    groups = [group["params"] for group in method.parameter_groups() if group.get("new")]
    expected = [id(parameter) for layer in layers for parameter in layer.parameters()]
    assert [id(parameter) for group in groups for parameter in group] == expected


def tiny_network(*hidden: nn.Module) -> Network:
    """3×2×2 images, a hidden layer of 4 (Tanh, or the modules given), a classifier of 3."""
    torch.manual_seed(0)
    stages = {
        "flatten": nn.Flatten(),
        "fc1": nn.Sequential(nn.Linear(12, 4), *(hidden or (nn.Tanh(),))),
        "fc2": nn.Linear(4, 3),
    }
    return Network(stages, ImageInput(2, (0.5,) * 3, (0.5,) * 3), mask_sites=("fc2",))
