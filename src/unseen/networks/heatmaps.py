"""Where a network looks: the last features that still have places in the image, each by what it
adds to the score of a class.

Grad-CAM (Selvaraju et al., ICCV 2017) with the gradient at each place, not its mean over all places
(HiResCAM, Draelos and Carin, 2020). Both are the same where a network ends in a mean over places
and a linear layer; where it does not, as with tokens, only the former says where the score is from.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from unseen.networks.stages import Network, Tail, module_key


def place_site(network: Network) -> str | None:
    """Return the last site whose features have places: squares of pixels, or tokens before the last
    block, behind which a class token alone may be read; None where there is none."""
    _, *sites = network.input_shapes
    shapes = [(site, network.input_shapes[site]) for site in sites]
    squares = [site for site, shape in shapes if len(shape) == 3 and shape[1] == shape[2] > 1]
    tokens = [site for site, shape in shapes if len(shape) == 2]
    return (squares or tokens[-2:-1] or [None])[-1]


def heatmaps(
    model: nn.Module,
    network: Network,
    predict: Callable[[Tensor], Tensor],
    images: Tensor,
    classes: Tensor | None = None,
) -> Tensor | None:
    """Return for each image where the score of a class comes from, `[images, height, width]`, from
    0 to 1; without classes, of the answer. None where no features with places are computed.

    `model` has the network and all copies of its stages that `predict` runs; copies for several
    domains add up.
    """
    site, seen = place_site(network), list[Tensor]()
    if site is None:
        return None

    def watch(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor]:
        torch.set_grad_enabled(True)  # from here on; what comes before needs no graph
        seen.append(inputs[0].detach().requires_grad_())
        return (seen[-1],)

    parts = [part for part in model.modules() if isinstance(part, Network | Tail)]
    stages = [m.stages if isinstance(m, Network) else m for m in parts]
    named = [child for stage in stages for child in stage.named_children()]
    hooks = [m.register_forward_pre_hook(watch) for key, m in named if key == module_key(site)]
    try:
        with torch.no_grad():
            scores = predict(images).float()
            if not seen:
                return None
            own = scores.argmax(dim=1) if classes is None else classes.to(scores.device)
            explained = scores.gather(1, own[:, None]).sum()
            gradients = torch.autograd.grad(explained, seen, materialize_grads=True)
    finally:
        for hook in hooks:
            hook.remove()
    maps = sum(_by_place(*pair, len(images)) for pair in zip(seen, gradients, strict=True))
    assert isinstance(maps, Tensor)
    maps = maps.clamp(min=0)
    return maps / maps.amax(dim=(1, 2), keepdim=True).clamp(min=torch.finfo(maps.dtype).tiny)


def _by_place(features: Tensor, gradients: Tensor, n_images: int) -> Tensor:
    """Return the sum over channels, and over copies of a batch that follow each other in it."""
    channels = 1 if features.ndim == 4 else 2
    maps = (features.detach().float() * gradients.float()).sum(dim=channels)
    if maps.ndim == 2:  # tokens, after those that have no place
        side = int(maps.shape[1] ** 0.5)
        maps = maps[:, -side * side :].reshape(-1, side, side)
    return maps.reshape(-1, n_images, *maps.shape[1:]).sum(dim=0)
