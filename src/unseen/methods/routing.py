"""Weights for the opinions of training domains on an image, by how close it is to each of them.

After Batch Normalization Embeddings (Segù, Tonioni, Tombari; arXiv 2011.12672): an image x and a
domain d are compared by the mean μ and the deviation σ of every channel at one site of the network,

    D_d(x) = Σ_channels (μ_x − μ_d)² + (σ_x − σ_d)²,    w_d ∝ 1 / D_d(x).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from unseen import across_devices
from unseen.networks.stages import Network

_DECAY = 0.99
"""Of the running means, for each step: they follow the network over a hundred steps or so."""
_SMALLEST = 1e-12
"""Where something is divided by: a domain that no image was seen of, an image at distance zero."""


class DomainStatistics(nn.Module):
    """Of each domain, the running mean of its images' μ and σ."""

    sums: Tensor
    """`[domains, 2, channels]`: running means that grow from zero; divided by `seen`, they are what
    they should be from the first step on."""
    seen: Tensor
    """`[domains]`: the running mean of ones."""

    def __init__(self, network: Network, site: str, n_domains: int) -> None:
        super().__init__()
        self.channel_axis = network.channel_axis(site)
        self.register_buffer("sums", torch.zeros(n_domains, 2, network.width(site)))
        self.register_buffer("seen", torch.zeros(n_domains))

    @torch.no_grad()
    def observe(self, activations: Tensor, domains: Tensor) -> None:
        """Take in a batch of training; a domain without images in it stays as it is."""
        member = functional.one_hot(domains, len(self.seen)).to(self.sums)
        totals = torch.einsum("id,isc->dsc", member, self.of_images(activations))
        totals, counts = across_devices.mean(totals), across_devices.mean(member.sum(dim=0))
        rates = (1 - _DECAY) * (counts > 0).to(counts)
        means = totals / counts.clamp_min(_SMALLEST)[:, None, None]
        self.sums.lerp_(means, rates[:, None, None].expand_as(means))
        self.seen.lerp_(torch.ones_like(rates), rates)

    def of_images(self, activations: Tensor) -> Tensor:
        """μ and σ over the positions of each image, `[images, 2, channels]`."""
        by_channel = activations.movedim(self.channel_axis, 1).to(self.sums.dtype)
        flat = by_channel.reshape(by_channel.shape[0], by_channel.shape[1], -1)
        mean = flat.mean(dim=-1)
        deviation = (flat - mean[..., None]).square().mean(dim=-1).sqrt()
        return torch.stack([mean, deviation], dim=1)

    def closeness(self, activations: Tensor) -> Tensor:
        """w_d for each image, `[domains, images]`; they add up to one over the domains."""
        known = self.sums / self.seen.clamp_min(_SMALLEST)[:, None, None]
        apart = known[:, None] - self.of_images(activations)
        inverse = 1 / apart.square().flatten(2).sum(dim=-1).clamp_min(_SMALLEST)
        return inverse / inverse.sum(dim=0)
