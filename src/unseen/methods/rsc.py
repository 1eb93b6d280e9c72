"""RSC: Self-Challenging Improves Cross-Domain Generalization (Huang et al., ECCV 2020).

A network leans on the features that tell the most about its training images. Here these are taken
away, and it has to find others (algorithm 1). With features z and scores s = h(z) of the head:

    g = ∂ s_label / ∂ z                                     (equation 1)
    m = 0 for the share of an image's features with the largest g, else 1      (equation 2)
    loss of confidence = softmax(h(z))_label − softmax(h(m z))_label

In the share of the batch that loses the most confidence the features are muted, the other images
stay whole, and CE(h(m z), label) is minimised. The mask is a constant. Prediction is as usual.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from unseen import across_devices
from unseen.data.batch import DomainBatch
from unseen.methods.base import Losses, Method, Progress, accuracy, losses
from unseen.networks.layers import statistics_kept
from unseen.settings.ranges import Uniform


class RSC(Method):
    class Config(Method.Config):
        feature_share: Annotated[float, Uniform(0, 0.5)] = Field(default=1 / 3, ge=0, lt=1)
        """Share of an image's features that is muted: those with the largest gradients."""
        image_share: Annotated[float, Uniform(0, 0.5)] = Field(default=1 / 3, ge=0, le=1)
        """Share of the batch in which features are muted: the images that lose the most by it."""

    config: Config

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        features = self.network.run(batch.images, until=self.network.head)
        with statistics_kept(self.network):
            whole, mask = self._challenge(features.detach(), batch.labels)
        muted = self.network.run(features * mask, since=self.network.head)
        loss, correct = self.cross_entropy(muted, batch.labels), accuracy(whole, batch.labels)
        return losses(loss, muted=1 - mask.mean(), accuracy=correct)

    def _challenge(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the scores of whole images, and the mask of this step."""
        head, own = self.network.head, labels.unsqueeze(1)
        features = features.requires_grad_()
        whole = self.network.run(features, since=head)
        (slopes,) = torch.autograd.grad(whole.gather(1, own).sum(), features)
        with torch.no_grad():
            rows = slopes.flatten(1)
            kept = rows < smallest_among_largest(rows, self.config.feature_share).unsqueeze(1)
            kept = kept.view_as(features).to(features)
            muted = self.network.run(features * kept, since=head)
            before, after = (s.float().softmax(dim=1).gather(1, own) for s in (whole, muted))
            lost = (before - after).squeeze(1)
            # the share is one of the whole batch, wherever its images are
            limit = smallest_among_largest(across_devices.gather(lost), self.config.image_share)
            chosen = (lost >= limit).view(-1, *[1] * (features.ndim - 1))
            return whole, torch.where(chosen, kept, 1.0)


def smallest_among_largest(values: Tensor, share: float) -> Tensor:
    """Returns what a number must have to belong to this share of its row; infinity where none
    does."""
    number = round(share * values.shape[-1])
    if number == 0:
        return torch.full_like(values[..., 0], torch.inf)
    return values.topk(number, dim=-1).values[..., -1]
