"""The linear layer that turns features into scores, in whatever stage a network keeps it."""

import torch
from torch import Tensor, nn

from unseen.errors import SettingsError
from unseen.networks.stages import Network


def linear_classifier(network: Network) -> nn.Linear:
    """The one linear layer of the network's last stage."""
    layers = [m for m in network.stage(network.head).modules() if isinstance(m, nn.Linear)]
    if len(layers) != 1:
        raise SettingsError(
            f"head_first=true fits one linear layer, but the last stage of this network, "
            f"'{network.head}', has {len(layers)}; leave it out, or choose another network.name"
        )
    return layers[0]


@torch.no_grad()
def classifier_inputs(network: Network, features: Tensor) -> Tensor:
    """What reaches the linear layer, `[images, features]`, from features at the last stage."""
    seen: list[Tensor] = []

    def keep(module: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        seen.append(arguments[0])

    head = network.stage(network.head)
    watched = linear_classifier(network).register_forward_pre_hook(keep)
    training = head.training
    try:
        head.eval()(features)
    finally:
        head.train(training)
        watched.remove()
    (inputs,) = seen
    return inputs.flatten(1)


@torch.no_grad()
def set_classifier(network: Network, weight: Tensor, bias: Tensor) -> None:
    """Give the linear layer these weights; one without a bias does without."""
    layer = linear_classifier(network)
    layer.weight.copy_(weight)
    if layer.bias is not None:  # pyright: ignore[reportUnnecessaryComparison]
        layer.bias.copy_(bias)
