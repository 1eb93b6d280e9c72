"""Importance masks: weights that the domains change most learn fast, the others slowly, then not.

After a description without a paper ("importance-based weight masking", PACS on frozen ViT-Base
features). Phase 1: one small classifier per source domain, all from the same initial weights w⁰;
the importance of a weight is Σ_d |w^d − w⁰|, and the top share of all tracked weights is important.
Phase 2: a fresh classifier on all domains; the other tracked weights learn at a tenth of the rate,
decaying, and not at all in the end. The rate scales the step that the optimizer took: Adam would
undo a factor on the gradient.
"""

import math
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import BeforeValidator, Field
from torch import Tensor, nn
from torch.nn import functional

from unseen.data.batch import DomainBatch
from unseen.errors import SettingsError
from unseen.methods.base import Losses, Progress, Traits, TwoPhases, losses
from unseen.networks.layers import perceptron
from unseen.settings.experiment import as_list
from unseen.settings.ranges import LogUniform, Uniform


class Importance(TwoPhases):
    class Config(TwoPhases.Config):
        width: int = Field(default=10, ge=1)
        """Units of each hidden layer."""
        depth: int = Field(default=4, ge=1)
        """Number of hidden layers; there is one more linear layer."""
        tracked_layers: Annotated[tuple[int, ...], BeforeValidator(as_list)] = ()
        """Numbers of the linear layers whose weights get an importance, counted from 1; empty: all
        that are width × width."""
        important_share: Annotated[float, Uniform(0.2, 0.9)] = Field(default=0.6, gt=0, le=1)
        """Share of the tracked weights that counts as important."""
        aggregation: Literal["sum", "union"] = "sum"
        """The top share of the changes summed over domains, or every weight in some domain's top
        share (which makes more of them important)."""
        phase_share: float = Field(default=0.5, gt=0, lt=1)
        """Share of the run in which importance is found."""
        unimportant_rate: Annotated[float, LogUniform(1e-2, 1)] = Field(default=0.1, ge=0, le=1)
        """Factor on the learning rate of unimportant weights at the start of phase 2."""
        unimportant_decay: float = Field(default=0.9, gt=0, le=1)
        """Factor on that rate after every tenth of phase 2."""
        freeze_after: Annotated[float, Uniform(0.3, 1)] = Field(default=0.7, ge=0, le=1)
        """Share of phase 2 after which unimportant weights are frozen."""

    traits = Traits(
        training_only=(
            *("domain_networks", "initial", "second_initial"),
            *("important", "rate", "phase_steps"),
        )
    )
    config: Config

    def set_up(self) -> None:
        network = self.network
        if network.frozen_until is None:
            raise SettingsError(
                "the method 'importance' trains a small classifier on frozen features, but no part "
                "of the network is frozen; set network.freeze_until=STAGE, for example "
                f"network.freeze_until={network.head}"
            )
        inputs = math.prod(network.input_shapes[network.frozen_until])
        network.cut(network.frozen_until)
        self.tracked = _tracked_layers(self.config)
        sizes = (inputs, len(self.task.classes), self.config.width, self.config.depth)
        first = perceptron(*sizes, dropout=0.0)
        self.domain_networks = ParallelNetworks(first, len(self.task.domains))
        self.classifier = perceptron(*sizes, dropout=0.0)
        self.initial = nn.Buffer(_flat(self._tracked_weights(first)))
        self.second_initial = nn.Buffer(_flat(self._tracked_weights(self.classifier)))
        self.important = nn.Buffer(torch.zeros_like(self.initial, dtype=torch.bool))
        self.rate = nn.Buffer(torch.tensor(1.0))
        self.phase_steps = nn.Buffer(torch.zeros(3, dtype=torch.int64))
        self._before: Tensor = torch.empty(0)

    def _tracked_weights(self, network: nn.Sequential) -> list[Tensor]:
        linear = _linear_layers(network)
        return [linear[number - 1].weight for number in self.tracked]

    def boundary(self, steps: int) -> int:
        """Returns the first step of phase 2; in a run of two steps or more, each phase has one."""
        return min(steps - 1, max(1, round(self.config.phase_share * steps)))

    def unimportant_rate(self, progress: Progress) -> float:
        """Returns what multiplies the steps of unimportant weights in phase 2."""
        boundary = self.boundary(progress.steps)
        done, length = progress.step - boundary, progress.steps - boundary
        if done >= round(self.config.freeze_after * length):
            return 0.0
        return self.config.unimportant_rate * self.config.unimportant_decay ** (10 * done // length)

    def idle_parameters(self) -> Iterable[nn.Parameter]:
        return (self.classifier if self.preparing else self.domain_networks).parameters()

    def first_loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        """Sends each image through its own domain's network: one product over all domains, in which
        a domain with fewer images is filled up with zeros."""
        features, domains = self.network.start(batch.images).flatten(1), batch.domains
        one_hot = functional.one_hot(domains, len(self.task.domains))
        place = one_hot.cumsum(dim=0).gather(1, domains[:, None]).squeeze(1) - 1
        longest = int(place.max()) + 1
        stacked = features.new_zeros(len(self.task.domains), longest, features.shape[1])
        stacked[domains, place] = features
        scores = self.domain_networks(stacked)[domains, place]
        loss, accuracy = self.classification(scores, batch.labels)
        return losses(loss, accuracy=accuracy)

    def second_loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        """Sends all images through the classifier, whose weights before the update are put
        aside."""
        self._before = _flat(self._tracked_weights(self.classifier))
        scores = self.classifier(self.network.start(batch.images).flatten(1))
        loss, accuracy = self.classification(scores, batch.labels)
        return losses(loss, accuracy=accuracy)

    def predict(self, images: Tensor, domain: int | None = None) -> Tensor:
        features = self.network.start(images).flatten(1)
        if not self.preparing:
            return self.classifier(features)
        stacked = features.expand(len(self.task.domains), *features.shape)
        return self.domain_networks(stacked).mean(dim=0)

    @torch.no_grad()
    def after_update(self, progress: Progress) -> None:
        boundary = self.boundary(progress.steps)
        if progress.step >= boundary:  # all but a share of unimportant weights' steps is taken back
            self.rate.fill_(rate := self.unimportant_rate(progress))
            weights = self._tracked_weights(self.classifier)
            after, before = _flat(weights), self._before
            allowed = torch.where(self.important, after, before + rate * (after - before))
            for weight, values in zip(weights, self._by_layer(allowed).values(), strict=True):
                weight.copy_(values)
        elif progress.step + 1 == boundary:
            _, changes = self._changes()
            if self.config.aggregation == "sum":
                changes = changes.sum(dim=0, keepdim=True)
            self.important.copy_(top_share(changes, self.config.important_share).any(dim=0))
            self.rate.fill_(self.config.unimportant_rate)
            self.phase_steps.copy_(torch.tensor([0, boundary, progress.steps]))

    def _changes(self) -> tuple[Tensor, Tensor]:
        """Returns w^d, which phase 2 leaves as it is, and |w^d − w⁰|, `[domains, weights]`."""
        finals = _flat([self.domain_networks.weights[number - 1] for number in self.tracked])
        return finals, (finals - self.initial).abs()

    def _by_layer(self, values: Tensor) -> dict[str, Tensor]:
        shapes = [weight.shape for weight in self._tracked_weights(self.classifier)]
        parts = torch.split(values, [shape.numel() for shape in shapes])
        named = zip(self.tracked, parts, shapes, strict=True)
        return {f"layer{number}": part.view(shape) for number, part, shape in named}

    def statistics(self) -> dict[str, Any]:
        """Returns in phase 2, by tracked layer, the share of important weights, and the rate of the
        others."""
        if self.preparing:
            return {"phase": 1}
        rate = self.rate.item()
        shares = {n: m.float().mean().item() for n, m in self._by_layer(self.important).items()}
        layers = {n: {"important": s, "unimportant_rate": rate} for n, s in shares.items()}
        return {"phase": 2, "layers": layers}

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns `what/layer` and `what/domain/layer`, which the method's docs page lists;
        `phase_steps`: the first step of phase 1, the first of phase 2, and the number of steps."""
        finals, changes = self._changes()
        summed = changes.sum(dim=0)
        found = {
            "initial": self.initial,
            "summed": summed,
            "normalised": normalised(summed[None])[0],
            "mask": self.important,
            "second_initial": self.second_initial,
            "second_final": _flat(self._tracked_weights(self.classifier)),
        }
        by_domain = {
            "final": finals,
            "importance": normalised(changes),
            "mask": top_share(changes, self.config.important_share),
        }
        for what, rows in by_domain.items():
            found |= {f"{what}/{d}": row for d, row in zip(self.task.domains, rows, strict=True)}
        arrays = {"phase_steps": self.phase_steps.cpu().numpy()}
        for what, values in found.items():
            layers = self._by_layer(values).items()
            arrays |= {f"{what}/{layer}": part.cpu().numpy() for layer, part in layers}
        return arrays


class ParallelNetworks(nn.Module):
    """Copies of one feed-forward network, side by side: weights `[networks, out, in]`."""

    def __init__(self, network: nn.Sequential, networks: int) -> None:
        super().__init__()
        linear = _linear_layers(network)
        weights, biases = (layer.weight for layer in linear), (layer.bias for layer in linear)
        self.weights = nn.ParameterList(torch.stack([w.detach()] * networks) for w in weights)
        self.biases = nn.ParameterList(torch.stack([b.detach()] * networks) for b in biases)

    def forward(self, x: Tensor) -> Tensor:
        """Maps `[networks, images, in]` to `[networks, images, classes]`."""
        for place, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = x if place == 0 else x.relu()
            x = torch.baddbmm(bias[:, None, :], x, weight.transpose(1, 2))
        return x


def normalised(values: Tensor) -> Tensor:
    """Scales each row from 0 for its smallest value to 1 for its largest, over all layers."""
    low, high = values.amin(dim=1, keepdim=True), values.amax(dim=1, keepdim=True)
    return (values - low) / (high - low).clamp_min(torch.finfo(values.dtype).tiny)


def top_share(values: Tensor, share: float) -> Tensor:
    """Marks the largest values of each row, exactly as many as the share says."""
    order = values.argsort(dim=1, descending=True, stable=True)
    chosen = order[:, : round(share * values.shape[1])]
    return torch.zeros_like(values, dtype=torch.bool).scatter(1, chosen, True)


def _tracked_layers(config: Importance.Config) -> list[int]:
    """Returns the numbers of the linear layers whose weights have an importance."""
    layers = config.depth + 1
    numbers = sorted(set(config.tracked_layers)) or list(range(2, layers))
    if not numbers:
        raise SettingsError(
            "method.depth=1 leaves no layer of width × width weights to track; set a method.depth "
            "of 2 or more, or method.tracked_layers=1,2"
        )
    if wrong := [number for number in numbers if not 1 <= number <= layers]:
        raise SettingsError(
            f"method.tracked_layers: there is no linear layer {wrong[0]}; with method.depth="
            f"{config.depth} they are numbered from 1 to {layers}"
        )
    return numbers


def _linear_layers(network: nn.Sequential) -> list[nn.Linear]:
    return [layer for layer in network if isinstance(layer, nn.Linear)]


def _flat(weights: list[Tensor]) -> Tensor:
    """Returns a copy of all weights in one row; or a row for each network, where they are
    stacked."""
    return torch.cat([weight.detach().flatten(-2) for weight in weights], dim=-1)
