"""Mixup between domains: mixup, Beyond Empirical Risk Minimization (Zhang et al., ICLR 2018), for
domain generalization as in Wang et al. (ICASSP 2020) and Xu et al. (AAAI 2020).

The network is trained on images between the domains: each one is mixed with an image of the domain
that follows its own in a random circle of this step's domains.

    x̃ = λ x_i + (1 − λ) x_j,    L = mean [ λ CE(x̃, y_i) + (1 − λ) CE(x̃, y_j) ],    λ ~ Beta(α, α)

λ is drawn anew for each domain in each step. Pairs and λ depend on the keys of step and images
alone, so they are the same after a resume and on any number of devices.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from unseen import across_devices
from unseen.data.batch import DomainBatch
from unseen.data.randomness import uniform
from unseen.methods.base import Losses, Method, Progress, Traits, domains_in_random_order, losses
from unseen.settings.ranges import LogUniform

_SHARE_STREAM = 2  # streams 0 and 1 belong to augmentation and to the order of the domains


class Mixup(Method):
    class Config(Method.Config):
        alpha: Annotated[float, LogUniform(0.1, 10)] = Field(default=0.2, gt=0)
        """α of the Beta distribution: small values hardly mix, at 1 every share is as likely, large
        ones mix by halves."""

    traits = Traits(compares_domains="mixes images of two training domains")
    config: Config

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        x = self.network.start(batch.images).detach()
        others, labels = partners(batch, x)
        shares = self._shares(batch).to(x)
        mixed = torch.lerp(others, x, shares.view(-1, *[1] * (x.ndim - 1)))
        scores = self.network(mixed)
        first, second = (self.cross_entropy(scores, y, "none") for y in (batch.labels, labels))
        guesses = scores.detach().argmax(dim=1)
        correct, also = ((guesses == answers).to(x) for answers in (batch.labels, labels))
        loss = (shares * first + (1 - shares) * second).mean()
        return losses(loss, accuracy=(shares * correct + (1 - shares) * also).mean())

    def _shares(self, batch: DomainBatch) -> Tensor:
        """Returns λ for each image, the same for all images of a domain."""
        draws = uniform(batch.step_key, batch.n_domains, _SHARE_STREAM)[0]
        return beta_quantile(draws, self.config.alpha)[batch.domains]


def partners(batch: DomainBatch, x: Tensor) -> tuple[Tensor, Tensor]:
    """Returns for each image one of the next domain, and its label: the n-th image of a domain goes
    with the n-th of the next, in the order of their random keys. Images come from all devices."""
    gather = across_devices.gather
    everywhere, labels, domains, keys = map(gather, (x, batch.labels, batch.domains, batch.keys))
    order = keys.argsort()
    circle = domains_in_random_order(batch)
    members = [order[domains[order] == domain] for domain in circle]
    members = [rows for rows in members if len(rows)]
    partner = torch.empty_like(order)
    for rows, others in zip(members, members[1:] + members[:1], strict=True):
        places = torch.arange(len(rows), device=rows.device) % len(others)
        partner[rows] = others[places]
    own = (keys.unsqueeze(0) == batch.keys.unsqueeze(1)).long().argmax(dim=1)
    chosen = partner[own]
    return everywhere[chosen], labels[chosen]


def beta_quantile(draws: Tensor, alpha: float) -> Tensor:
    """Turns uniform numbers into draws of Beta(α, α), by the inverse of its distribution
    function."""
    from scipy.special import betaincinv  # pyright: ignore

    quantiles = betaincinv(alpha, alpha, draws.cpu().double().numpy())
    return torch.as_tensor(quantiles, device=draws.device)
