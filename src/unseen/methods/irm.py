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

from unseen.data.batch import DomainBatch
from unseen.methods import base
from unseen.methods.base import Losses, Method, Progress, Traits, group_means, mean_of_present
from unseen.settings.experiment import AnnealedPenaltySettings


class IRM(Method):
    Config = AnnealedPenaltySettings
    traits = Traits(stackable=True)
    config: AnnealedPenaltySettings

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        scores, risks, counts = self.risks(batch)
        # by a factor of the scores, where that is 1
        o = scores.float()
        targets = base.soft_targets(batch.labels, o, self.task.label_smoothing)
        slopes = ((o.softmax(dim=1) - targets) * o).sum(dim=1)
        first, _ = group_means(slopes, batch.domains, batch.n_domains)
        second, _ = group_means(slopes.square(), batch.domains, batch.n_domains)
        # one image alone has no pair: n d² − d² is then zero
        squared = (counts * first.square() - second) / (counts - 1).clamp_min(1)
        weight = base.penalty_weight(self.config, progress, before=1.0)
        task, penalty = (mean_of_present(each, counts) for each in (risks, squared))
        return base.penalised(task, weight, penalty, base.accuracy(scores, batch.labels))
