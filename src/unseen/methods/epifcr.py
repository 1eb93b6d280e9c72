"""Epi-FCR: Episodic Training for Domain Generalization (Li et al., ICCV 2019).

Features θ and classifier ψ are trained beside partners that do not match them, as in an unseen
domain. The partners are networks (θ_j, ψ_j), one for each source domain and trained on it alone,
and a classifier ψ_r of random weights that never learns. With CE_i over images of domain i:

    L_agg = Σ_i CE_i(ψ(θ(x)))          the aggregation network, which predicts
    Epi-F = CE_i(ψ_j(θ(x)))            i ≠ j drawn at each step, ψ_j constant: trains θ
    Epi-C = CE_i(ψ(θ_j(x)))            θ_j constant: trains ψ
    Epi-R = Σ_i CE_i(ψ_r(θ(x)))        trains θ
    L = L_agg + λ_1 Epi-F + λ_2 Epi-C + λ_3 Epi-R

All sums are divided by the number of images in the batch, so with balanced batches this is the
paper's loss divided by the number of domains: its λ keep their meaning.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call

from unseen.data.batch import DomainBatch
from unseen.data.randomness import uniform
from unseen.errors import SettingsError
from unseen.methods.base import Losses, Method, Progress, Traits, by_own_group, losses
from unseen.networks.layers import statistics_kept
from unseen.settings.ranges import LogUniform

_PAIR_STREAM = 1


class EpiFCR(Method):
    class Config(Method.Config):
        split: str | None = None
        """First stage of the classifiers; empty: the last stage (as in the paper, whose pooling
        before it has no weights)."""
        feature_weight: Annotated[float, LogUniform(0.1, 10)] = Field(default=2.0, ge=0)
        """λ_1 of Epi-F: features must work with the other domains' classifiers."""
        classifier_weight: Annotated[float, LogUniform(1e-2, 1)] = Field(default=0.05, ge=0)
        """λ_2 of Epi-C: the classifier must work with the other domains' features."""
        random_weight: Annotated[float, LogUniform(1e-2, 1)] = Field(default=0.1, ge=0)
        """λ_3 of Epi-R: features must work with a random classifier."""
        warm_up: float = Field(default=1 / 6, ge=0, le=1)
        """Share of the run before episodes begin; until then all networks are trained as usual."""

    traits = Traits(
        compares_domains="pairs training domains",
        training_only=("domain_features", "domain_classifiers", "random_classifier"),
    )
    config: Config

    def set_up(self) -> None:
        network, domains = self.network, self.task.domains
        (self.split,) = network.in_order([self.config.split or network.head])
        before = network.names[: network.names.index(self.split)]
        weights = [p for name in before for p in network.stage(name).parameters()]
        if not any(p.requires_grad for p in weights):
            raise SettingsError(
                f"method epifcr trains features, but nothing before stage '{self.split}' learns; "
                "choose an earlier network.freeze_until or a later method.split"
            )
        trunks = [network.clone() for _ in domains]
        for trunk in trunks:
            trunk.cut(self.split)
        self.domain_features = nn.ModuleList(trunks)
        self.domain_classifiers = network.clone_tails(self.split, len(domains))
        self.random_classifier = network.clone_tail(self.split).requires_grad_(False)
        for layer in self.random_classifier.modules():
            # a new classifier starts near zero, and would pass no gradient on to the features
            if isinstance(layer, nn.Linear | nn.Conv2d):
                layer.reset_parameters()

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        x = self.network.start(batch.images)
        features, scores = self.network.features_and_scores(x, self.split)
        task_loss, accuracy = self.classification(scores, batch.labels)
        pairs = zip(self.domain_features, self.domain_classifiers, strict=True)
        own_networks = nn.ModuleList(nn.Sequential(*pair) for pair in pairs)
        own_scores = by_own_group(own_networks, x, batch.domains)
        domain_loss = self.cross_entropy(own_scores, batch.labels)
        if progress.ratio < self.config.warm_up:
            epi_f = epi_c = epi_r = torch.zeros_like(task_loss)
        else:
            with statistics_kept(self):
                epi_f, epi_c = self._episodes(x, features, batch)
                epi_r = self.cross_entropy(self.random_classifier(features), batch.labels)
        config = self.config
        episodes = config.feature_weight * epi_f + config.classifier_weight * epi_c
        loss = task_loss + domain_loss + episodes + config.random_weight * epi_r
        recorded = {"domain_networks": domain_loss, "epi_f": epi_f, "epi_c": epi_c, "epi_r": epi_r}
        return losses(loss, task=task_loss, **recorded, accuracy=accuracy)

    def _episodes(self, x: Tensor, features: Tensor, batch: DomainBatch) -> tuple[Tensor, Tensor]:
        """Returns Epi-F and Epi-C for the pair of this step."""
        of, partner = draw_pair(batch.step_key, batch.n_domains)
        rows = (batch.domains == of).nonzero().squeeze(1)
        if len(rows) == 0:
            return features.new_zeros(()), features.new_zeros(())
        classifier = self.domain_classifiers[partner]
        constant = {name: p.detach() for name, p in classifier.named_parameters()}
        epi_f = functional_call(classifier, constant, (features[rows],))
        with torch.no_grad():
            foreign = self.domain_features[partner](x[rows])
        with self.network.on_rows(rows):
            epi_c = self.network.run(foreign, since=self.split)
        share = len(rows) / len(batch.images)  # what they add to the mean over the batch
        first, second = (self.cross_entropy(s, batch.labels[rows]) for s in (epi_f, epi_c))
        return share * first, share * second


def draw_pair(step_key: Tensor, n_domains: int) -> tuple[int, int]:
    """Draws two different domains, all ordered pairs being equally likely."""
    number = int(uniform(step_key, 1, _PAIR_STREAM).item() * n_domains * (n_domains - 1))
    first, second = divmod(number, n_domains - 1)
    return first, second + (second >= first)
