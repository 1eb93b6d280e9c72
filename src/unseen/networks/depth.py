"""How far the parts of a method are from the end of its network."""

from torch import nn

from unseen.networks.stages import Network, module_key
from unseen.networks.tails import Tail


def stage_distances(method: nn.Module, network: Network) -> dict[nn.Parameter, int]:
    """For each parameter, how many stages with weights lie between its own and the last one.

    Copies of stages, of which a method may have some, are as far away as the originals. Parameters
    that belong to no stage are left out.
    """
    keys = [module_key(name) for name in network.input_shapes]  # also of stages that were cut off
    weights: dict[str, list[nn.Parameter]] = {key: [] for key in keys}
    for module in method.modules():
        if isinstance(module, Network | Tail):
            stages = module.stages if isinstance(module, Network) else module
            for key, stage in stages.named_children():
                weights[key].extend(stage.parameters())
    found: dict[nn.Parameter, int] = {}
    for distance, key in enumerate(key for key in reversed(keys) if weights[key]):
        found.update(dict.fromkeys(weights[key], distance))
    return found
