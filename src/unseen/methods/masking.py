"""Masks of units, as DMG has them: how they start, how they are drawn, how much they overlap.

The letters are those of the DMG paper: logits m̃^d, chances m^d = σ(m̃^d), λ_O.
"""

import math
from collections.abc import Mapping
from itertools import combinations
from typing import Any, cast

import torch
from torch import Tensor

from unseen.methods.base import Progress
from unseen.networks.stages import Network

Masks = dict[str, Tensor]
"""By site."""
PAPER_KEPT = math.log((1 + math.e) / 2)
"""The mean of σ over [0, 1): the share of units that the paper's start keeps, 62 %."""


def gates_at(network: Network, site: str, gates: str) -> int:
    """How many gates a mask has at a site."""
    return network.width(site) if gates == "channel" else math.prod(network.input_shapes[site])


def spread(mask: Tensor, network: Network, site: str, gates: str) -> Tensor:
    """A mask `[gates]` or `[images, gates]` in the shape that multiplies activations at a site."""
    shape = network.input_shapes[site]
    if gates == "unit":
        return mask.reshape(*mask.shape[:-1], *shape)
    if network.channel_axis(site) == -1:
        return mask.unsqueeze(-2)
    return mask.reshape(*mask.shape, *[1] * (len(shape) - 1))


def first_logits(kept: float | None, masks: int, units: int) -> Tensor:
    """`[masks, units]`: all at the logit of one chance, or uniform in [0, 1) as the paper has them.

    Masks that start alike need no noise to part: each gets the gradients of its own images.
    """
    if kept is None:
        return torch.rand(masks, units)
    return torch.full((masks, units), math.log(kept / (1 - kept)))


def start_from_logit(settings: Any) -> Any:
    """Settings with `start_kept` in place of its older form `init`, the logit (or the word
    `random_uniform`), which saved runs have."""
    if not isinstance(settings, Mapping) or "init" not in settings:
        return cast(Any, settings)
    found = dict(cast(Mapping[str, Any], settings))
    init = found.pop("init")
    if found.get("start_kept") is not None:
        raise ValueError("init is the older form of start_kept; give start_kept alone")
    if init != "random_uniform":
        try:
            found["start_kept"] = 1 / (1 + math.exp(-float(init)))
        except (TypeError, ValueError):
            raise ValueError(f"init should be a logit or random_uniform, got {init!r}") from None
    return found


def straight_through(chances: Tensor, threshold: Tensor | float) -> Tensor:
    """Ones where `threshold < chances`, zeros elsewhere; the gradient is that of `chances`."""
    hard = (threshold < chances).to(chances)
    return hard + (chances - chances.detach())


def soft_iou(a: Tensor, b: Tensor) -> Tensor:
    """Equation 1 for each row: a·b / Σ(a + b − a⊙b)."""
    shared = (a * b).sum(dim=-1)
    return shared / (a.sum(dim=-1) + b.sum(dim=-1) - shared).clamp_min(1e-6)


def overlap(chances: Masks, n_masks: int, pairs_add_up: bool) -> Tensor:
    """Soft IoU summed over sites, mean or sum over pairs of the first masks; zero for one mask."""
    device = next(iter(chances.values())).device
    i, j = torch.triu_indices(n_masks, n_masks, 1, device=device)
    total = torch.stack([soft_iou(m[i], m[j]).sum() for m in chances.values()]).sum()
    return total if pairs_add_up else total / max(1, len(i))


def risen(ramp: float, progress: Progress) -> Tensor:
    """The share of λ_O that counts at a step: it rises evenly from the first step on, and is one
    after this share of the run."""
    length = (torch.as_tensor(ramp) * progress.steps).clamp_min(1)  # stacked runs have tensors
    return ((progress.step + 1) / length).clamp(max=1)


def mask_statistics(chances: Tensor, domains: tuple[str, ...]) -> dict[str, Any]:
    """`kept`: mean chance and share above one half by domain; `iou`: soft and hard by pair."""
    forms = {"soft": chances, "hard": (chances > 0.5).to(chances)}
    kept = {d: {f: m[n].mean().item() for f, m in forms.items()} for n, d in enumerate(domains)}
    iou = {
        f"{a}|{b}": {f: soft_iou(m[i], m[j]).item() for f, m in forms.items()}
        for (i, a), (j, b) in combinations(enumerate(domains), 2)
    }
    return {"kept": kept, "iou": iou}
