"""IB-ERM: Invariance Principle Meets Information Bottleneck for Out-of-Distribution Generalization
(Ahuja et al., NeurIPS 2021).

Features that carry no more information than the labels need have less room for what holds in the
training domains alone. The entropy of features is bounded by their variance, which is the penalty:

    L = CE + λ (1/S) Σ_e mean_k Var_e(z_k)

with Var_e over the images of domain e (n − 1) of each of the features z in front of the classifier.
The penalty begins after a part of the run, as in DomainBed.
"""

from torch import Tensor

from unseen.methods.base import FeaturePenalty, Traits, mean_of_present
from unseen.settings.experiment import AnnealedPenaltySettings


class IBERM(FeaturePenalty):
    Config = AnnealedPenaltySettings
    traits = Traits(stackable=True, acts_on_features="the penalty")

    def penalty(self, features: Tensor, member: Tensor) -> Tensor:
        counts = member.sum(dim=0)
        means = (member / counts.clamp_min(1)).T @ features
        squares = (features - member @ means).square().mean(dim=1)
        # of a single image zero
        return mean_of_present((squares @ member) / (counts - 1).clamp_min(1), counts)
