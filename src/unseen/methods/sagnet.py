"""SagNet: Reducing Domain Gap by Reducing Style Bias (Nam et al., CVPR 2021).

Networks go by style (texture) more than by content (shape), and style changes between domains. At a
site within the network, the style of features is the mean μ and deviation σ of each channel over
places, the content what is left of them. Each image meets another one, j (section 3):

    style randomised:    SR(z) = σ' (z − μ)/σ + μ',    μ' = α μ + (1 − α) μ_j, σ' alike, α ~ U(0, 1)
    content randomised:  CR(z) = σ (z_j − μ_j)/σ_j + μ                       with z_j as a constant

    the rest of the network learns the class from SR(z): content alone                 L_content
    a copy of it, the style network, learns the class from CR(z): style alone          L_style
    features unlearn it: the style network's answers on CR(z) shall be uniform         λ L_adv

L_style trains the style network only, L_adv the features only. Prediction needs neither.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.func import functional_call

from unseen import across_devices
from unseen.data.batch import DomainBatch
from unseen.data.randomness import uniform
from unseen.methods.base import Losses, Method, Progress, Traits, accuracy, losses
from unseen.networks.layers import statistics_kept
from unseen.settings.ranges import LogUniform

_MIX_STREAM = 1  # stream 0 of the random numbers belongs to augmentation
_SMALLEST_VARIANCE = 1e-5


class SagNet(Method):
    class Config(Method.Config):
        site: str | None = None
        """Stage whose input is randomised; empty: the last block of ResNets, EfficientNets and
        ViTs, the first linear layer of other networks."""
        adversarial_weight: Annotated[float, LogUniform(1e-2, 10)] = Field(default=0.1, ge=0)
        """λ: how strongly the features unlearn what the style network goes by."""

    traits = Traits(training_only=("style_network",))
    config: Config

    def set_up(self) -> None:
        (self.site,) = self.network.in_order([self.config.site or self.network.mask_sites[0]])
        self.remark_on_frozen(self.site, "the adversary")
        self.style_network = self.network.clone_tails(self.site, 1)

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        z = self.network.run(batch.images, until=self.site)
        mean, deviation = style(z, self.network.channel_axis(self.site))
        content = (z - mean) / deviation
        rows = (mean, deviation, content.detach())
        next_mean, next_deviation, next_content = following(batch.keys, *rows)
        share = uniform(batch.keys, 1, _MIX_STREAM).to(z).view(-1, *[1] * (z.ndim - 1))
        restyled = content * torch.lerp(next_deviation, deviation, share)
        restyled = restyled + torch.lerp(next_mean, mean, share)
        scores = self.network.run(restyled, since=self.site)
        task, correct = self.classification(scores, batch.labels)
        refilled = next_content * deviation + mean
        (tail,) = self.style_network
        guesses = tail(refilled.detach())
        style_loss = self.cross_entropy(guesses, batch.labels)
        with statistics_kept(tail):  # the same answers, by weights that are constants
            fixed = {name: weight.detach() for name, weight in tail.named_parameters()}
            answers = functional_call(tail, fixed, (refilled,))
        adversarial = -answers.float().log_softmax(dim=1).mean()
        loss = task + style_loss + self.config.adversarial_weight * adversarial
        recorded = {"style": style_loss, "adversarial": adversarial}
        recorded |= {"style_accuracy": accuracy(guesses, batch.labels), "accuracy": correct}
        return losses(loss, task=task, **recorded)


def style(z: Tensor, channel_axis: int) -> tuple[Tensor, Tensor]:
    """Returns the mean and deviation of each channel over places; of flat features over all of
    them."""
    places = tuple(axis for axis in range(1, z.ndim) if axis != channel_axis % z.ndim)
    variance, mean = torch.var_mean(z, dim=places or 1, correction=0, keepdim=True)
    return mean, (variance + _SMALLEST_VARIANCE).sqrt()


def following(keys: Tensor, *rows: Tensor) -> list[Tensor]:
    """Returns of each image the rows of the next one in the order of their random keys, which may
    be on another device; after the last one comes the first."""
    everywhere = across_devices.gather(keys)
    order = everywhere.argsort()
    place = torch.searchsorted(everywhere[order], keys)
    chosen = order[(place + 1) % len(order)]
    return [across_devices.gather(each)[chosen] for each in rows]
