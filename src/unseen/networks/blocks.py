"""Blocks inside a stage: the input of `layer4.2`, in the midst of `layer4`, can be a site, too."""

from collections.abc import Mapping
from typing import NamedTuple

from torch import nn


class Block(NamedTuple):
    """Where in a network a block stands that is not the first of its stage."""

    stage: str
    position: int


def find(stages: Mapping[str, nn.Module], name: str) -> Block | None:
    """The block of this name, a stage's and the block's own with a dot between; None: there is
    none. The last stage, the classifier, stays whole."""
    outer, _, own = name.rpartition(".")
    for stage, module in list(stages.items())[:-1] if outer in stages else ():
        blocks = [key for key, _ in module.named_children()]
        of_outer = outer in (stage, stage.rpartition(".")[0])  # the latter: divided before
        if of_outer and type(module) is nn.Sequential and own in blocks[1:]:
            return Block(stage, blocks.index(own))
    return None


def divided(stages: Mapping[str, nn.Module], block: Block, name: str) -> dict[str, nn.Module]:
    """The stages with another one that begins at the block; tensors keep their last names."""
    whole = stages[block.stage]
    assert isinstance(whole, nn.Sequential)
    parts = {block.stage: whole[: block.position], name: whole[block.position :]}
    names = list(stages)
    names.insert(names.index(block.stage) + 1, name)
    return {stage: parts[stage] if stage in parts else stages[stage] for stage in names}


def without_in_place_start(stage: nn.Module) -> nn.Module:
    """An in-place layer would overwrite the activation at its own site."""
    first = stage[0] if type(stage) is nn.Sequential and len(stage) else stage
    if getattr(first, "inplace", False):
        setattr(first, "inplace", False)  # noqa: B010
    return stage
