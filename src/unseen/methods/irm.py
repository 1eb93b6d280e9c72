"""IRM: Invariant Risk Minimization (Arjovsky et al., 2019), in its practical form IRMv1.

A classifier is invariant if it is the best one in every domain at once. Whether it is, is judged by
a scale w that multiplies the scores: at w = 1 no domain's risk may want to change it (equation 4).

    Σ_e R_e(Φ) + λ ‖∇_{w|w=1.0} R_e(w · Φ)‖²          here: means over domains, not sums

For image i with scores o and probabilities p the derivative is d_i = Σ_c (p_c − 1[c = y]) o_c, and
∇R_e is its mean. The square of a mean over few images is too large by their variance, so the paper
(appendix D) multiplies the gradients of two halves of the batch; here the mean of that product over
all pairs of different images, (n d̄² − mean d²) / (n − 1), which may be negative. The penalty has
weight 1 at first, and λ after a part of the run, as in the authors' code.
"""

from typing import Annotated

from pydantic import Field
from torch import Tensor

from unseen.data.batch import DomainBatch
from unseen.methods.base import Losses, Method, Progress, Traits
from unseen.methods.shared import (
    accuracy,
    annealed,
    group_means,
    mean_of_present,
    penalised,
    soft_targets,
)
from unseen.settings.ranges import LogUniform


class IRM(Method):
    class Config(Method.Config):
        penalty_weight: Annotated[float, LogUniform(1e-1, 1e5)] = Field(default=100.0, ge=0)
        """λ, the weight of the squared derivative by the scale of the scores."""
        penalty_anneal: Annotated[float, LogUniform(2e-4, 1)] = Field(default=0.1, ge=0, le=1)
        """Share of the run in which the penalty still has weight 1."""

    traits = Traits(stackable=True)
    config: Config

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        scores = self.network(batch.images)
        each = self.cross_entropy(scores, batch.labels, "none").float()
        risks, counts = group_means(each, batch.domains, batch.n_domains)
        task = mean_of_present(risks, counts)
        slopes = by_scale(scores.float(), batch.labels, self.task.label_smoothing)
        first, _ = group_means(slopes, batch.domains, batch.n_domains)
        second, _ = group_means(slopes.square(), batch.domains, batch.n_domains)
        # one image alone has no pair: n d² − d² is then zero
        squared = (counts * first.square() - second) / (counts - 1).clamp_min(1)
        penalty = mean_of_present(squared, counts)
        config = self.config
        weight = annealed(progress.ratio, config.penalty_anneal, 1.0, config.penalty_weight)
        return penalised(task, weight, penalty, accuracy(scores, batch.labels))


def by_scale(scores: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Returns the derivative of each image's cross-entropy by a factor of its scores, where that is
    1."""
    residuals = scores.softmax(dim=1) - soft_targets(labels, scores, label_smoothing)
    return (residuals * scores).sum(dim=1)
