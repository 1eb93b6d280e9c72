"""The contract of a method (settings, a loss and a prediction), and what several methods share.

Nearly every method is a `Method` and nothing more. Training asks for more where a method answers
differently for each domain (`DomainAware`), changes its weights' meaning on the way (`TwoPhases`)
or has to look at all images before its first step (`DatasetPassMethod`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, NotRequired, TypedDict

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from unseen import across_devices
from unseen.data.batch import DomainBatch, Task
from unseen.data.randomness import uniform
from unseen.errors import SettingsError
from unseen.networks.stages import Network, Tail
from unseen.settings.experiment import AnnealedPenaltySettings, MethodSettings, PenaltySettings

Losses = dict[str, Tensor]
Weights = dict[str, Tensor]
"""By name."""
_ORDER_STREAM = 1  # stream 0 of the random numbers belongs to augmentation


class Progress(NamedTuple):
    """Where a run is. Phases and schedules derive from it, so a resume lands in the right one."""

    step: int
    steps: int

    @property
    def ratio(self) -> float:
        return self.step / self.steps


class ParameterGroup(TypedDict):
    """Parameters that share a rate; what is missing or None is the optimizer's setting."""

    params: list[nn.Parameter]
    lr: NotRequired[float | None]
    weight_decay: NotRequired[float | None]
    new: NotRequired[bool]
    """Not pretrained: the optimizer's rate times its `new_layers_lr_factor`."""
    scheduled: NotRequired[bool]
    """Whether the rate follows the schedule of the run; missing: it does."""


class Traits(NamedTuple):
    """Facts about a method that others need to know before they run it."""

    target_images: Literal["unused", "optional", "required", "dataset_pass"] = "unused"
    """Whether batches hold unlabelled target images where the setting is adaptation;
    `dataset_pass`: only the pass over the dataset before the first step looks at them."""
    needs_pixels: bool = False
    """It looks at the images and cannot train from stored features (`network.freeze_until`)."""
    stackable: bool = False
    """`loss` and `predict` work under `torch.func.vmap` on stored features of balanced batches, and
    use numbers from `config` in sums and products only: many runs then train as one."""
    compares_domains: str = ""
    """What it does with several training domains, as a message says it after the method's name: a
    single one is refused. Empty: one domain will do."""
    acts_on_features: str = ""
    """What has no effect where nothing before the classifier learns, as a remark says it."""
    training_only: tuple[str, ...] = ()
    """Attributes that prediction does not need: checkpoints have them, models do not."""


class Method(nn.Module, ABC):
    """A network, a loss and a prediction.

    1. One forward, one backward a step: a method never calls `backward` or steps an optimizer. One
       that builds its own gradient returns `with_gradients(params, grads)` as its loss.
    2. Every trainable parameter takes part in every loss (`inactive` helps).
    3. State lives in parameters and buffers; phases and schedules derive from `progress`.
    4. Random draws come from `batch.keys` and `batch.step_key`, so that they survive a resume and
       any number of devices. A loss that is not a mean over images uses `across_devices`.
    5. `predict` can be traced: no Python branch on the value of a tensor.
    """

    Config = MethodSettings
    """Hyper-parameters, each with its default, limits, search range and one line of text."""

    traits: ClassVar[Traits] = Traits()
    remarks: tuple[str, ...] = ()
    """What the user should know about this run before its first step."""
    preparing: bool = False
    """Whether the last step was one of a phase whose weights are no model yet (see `TwoPhases`)."""

    def __init__(self, network: Network, task: Task, config: MethodSettings) -> None:
        super().__init__()
        if self.traits.compares_domains and task.target is None and len(task.domains) < 2:
            raise SettingsError(
                f"{config.name} {self.traits.compares_domains}: it needs two training domains or "
                f"more, found one ({', '.join(task.domains)}); train on more domains, or use "
                "method.name=aggregate"
            )
        self.network = network
        self.task = task
        self.config = config
        if self.traits.acts_on_features:
            self.remark_on_frozen(network.head, self.traits.acts_on_features)
        self.set_up()

    def set_up(self) -> None:
        """Makes what the method has beside `network`, `task` and `config`, which are there."""

    @abstractmethod
    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        """Returns a dict of scalars; "loss" is minimised, the others are recorded."""

    def predict(self, images: Tensor, domain: int | None = None) -> Tensor:
        """Returns class scores (logits); `domain` only where that of all images is known."""
        return self.network(images)

    def forward(self, batch: DomainBatch, progress: Progress) -> Losses:
        return self.loss(batch, progress)

    def classification(self, scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the mean cross-entropy with class labels, smoothed as the task asks, and the
        share of correct predictions."""
        return self.cross_entropy(scores, labels), accuracy(scores, labels)

    def cross_entropy(
        self, scores: Tensor, labels: Tensor, reduction: Literal["mean", "sum", "none"] = "mean"
    ) -> Tensor:
        """Returns the cross-entropy with class labels, smoothed as the task asks."""
        return functional.cross_entropy(
            scores, labels, reduction=reduction, label_smoothing=self.task.label_smoothing
        )

    def risks(self, batch: DomainBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Returns scores, the mean cross-entropy of each domain, and how many images it has."""
        scores = self.network(batch.images)
        each = self.cross_entropy(scores, batch.labels, "none").float()
        return scores, *group_means(each, batch.domains, batch.n_domains)

    def remark_on_frozen(
        self, site: str, what: str, advice: str = "set an earlier network.freeze_until"
    ) -> None:
        """Remarks that something has no effect where the features at a site do not learn."""
        if self.network.frozen_until == site:
            text = f"nothing before '{site}' learns, so {what} changes nothing: {advice}"
            self.remarks = (text,)

    def parameter_groups(self) -> list[ParameterGroup]:
        """Returns groups with rates of their own, the first that has a parameter counts; here all
        layers that are new. All other parameters get the optimizer's rates."""
        new = [layer for part in self.children() for layer in _new_layers(part)]
        return [ParameterGroup(params=[p for m in new for p in m.parameters()], new=True)]

    def edit_gradients(self, progress: Progress) -> None:
        """Runs after backward, before clipping and the update; all devices have the same
        gradients."""

    def after_update(self, progress: Progress) -> None:
        """Runs after the optimizer's step."""

    def statistics(self) -> dict[str, Any]:
        """Returns what is recorded at each evaluation besides losses, as plain data."""
        return {}

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns what the report draws besides curves; kept as arrays.npz when the run is done."""
        return {}


def _new_layers(part: nn.Module) -> list[nn.Module]:
    """Returns what did not come with pretrained weights: of the network and of copies of its stages
    those that are new, of other parts of a method everything."""
    if isinstance(part, Network | Tail):
        return part.new_layers()
    if isinstance(part, nn.ModuleList):
        return [layer for each in part for layer in _new_layers(each)]
    return [part]


class DomainAware(Method):
    """A method that answers differently when it is told the domain."""

    @abstractmethod
    def opinions(self, images: Tensor) -> Tensor:
        """Returns scores `[domains, images, classes]`, as if each training domain were known."""

    def scores_and_opinions(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Returns scores for an unknown domain, here the mean of all opinions, and the opinions
        themselves. The trunk runs once."""
        opinions = self.opinions(images)
        return opinions.mean(dim=0), opinions

    def predict(self, images: Tensor, domain: int | None = None) -> Tensor:
        if domain is None:
            return self.scores_and_opinions(images)[0]
        return self.opinions(images)[domain]


class TwoPhases(Method):
    """A method whose first phase prepares what the second one trains.

    Weights of the first phase are never chosen as the model. `predict` looks at `preparing` to
    answer in both; the phase is saved with the weights.
    """

    preparing = True

    @abstractmethod
    def boundary(self, steps: int) -> int:
        """Returns the first step of the second phase; the last step of a run belongs to it."""

    @abstractmethod
    def first_loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        """Returns the losses of the first phase."""

    @abstractmethod
    def second_loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        """Returns the losses of the second phase."""

    @abstractmethod
    def idle_parameters(self) -> Iterable[nn.Parameter]:
        """Returns what the current phase does not train."""

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        self.preparing = progress.step < self.boundary(progress.steps)
        phase = self.first_loss if self.preparing else self.second_loss
        losses = phase(batch, progress)
        return losses | {"loss": losses["loss"] + inactive(self.idle_parameters())}

    def get_extra_state(self) -> Tensor:
        """Saved and loaded by torch with the parameters."""
        return torch.tensor(self.preparing)

    def set_extra_state(self, state: Tensor) -> None:
        self.preparing = bool(state)

    def edit_gradients(self, progress: Progress) -> None:
        """Removes the gradients of idle parameters: the optimizer then leaves them alone, their
        weight decay included."""
        for parameter in self.idle_parameters():
            parameter.grad = None


class TrainingImages(NamedTuple):
    """All training images once, as they are, in batches."""

    source: Callable[[], Iterator[DomainBatch]]
    target: Callable[[], Iterator[Tensor]]
    """Images of the target domain, in adaptation; no labels."""


class DatasetPassMethod(Method):
    """A method that looks at all training images before the first step."""

    @abstractmethod
    def dataset_pass(self, images: TrainingImages) -> dict[str, Tensor]:
        """Returns what can be learned from all images at once.

        It is computed once, kept with the run, and handed to `use_dataset_pass` then and at each
        resume.
        """

    @abstractmethod
    def use_dataset_pass(self, found: Mapping[str, Tensor]) -> None:
        """Applies what `dataset_pass` returned; it may set `remarks`."""


class FeaturePenalty(Method):
    """Cross-entropy, and a weighted penalty on the features before the classifier."""

    traits = Traits(
        stackable=True,
        compares_domains="aligns the features of training domains",
        acts_on_features="their alignment",
    )
    config: PenaltySettings

    @abstractmethod
    def penalty(self, features: Tensor, member: Tensor) -> Tensor:
        """Returns the penalty on features `[images, features]` of all devices; `member` is one
        where an image is of a domain, `[images, domains]`."""

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        features, scores = self.network.features_and_scores(batch.images)
        task, correct = self.classification(scores, batch.labels)
        rows = across_devices.gather(features.flatten(1).float())
        domains = across_devices.gather(batch.domains)
        with torch.autocast(rows.device.type, enabled=False):  # single precision stays so
            penalty = self.penalty(rows, functional.one_hot(domains, batch.n_domains).to(rows))
        return penalised(task, penalty_weight(self.config, progress, 0.0), penalty, correct)


def penalty_weight(config: PenaltySettings, progress: Progress, before: float) -> float | Tensor:
    """Returns the weight of a penalty, for the first part of the run `before`; a tensor, because
    under `vmap` runs of a stack may differ in these numbers."""
    if not isinstance(config, AnnealedPenaltySettings):
        return config.penalty_weight
    begun = torch.as_tensor(progress.ratio >= config.penalty_anneal)
    return torch.where(begun, config.penalty_weight, before)


def accuracy(scores: Tensor, labels: Tensor) -> Tensor:
    """Returns the share of correct predictions."""
    return (scores.detach().argmax(dim=1) == labels).float().mean()


def losses(loss: Tensor, **recorded: Tensor) -> Losses:
    """Returns the loss to minimise, and by name what is recorded beside it."""
    return {"loss": loss} | {name: value.detach() for name, value in recorded.items()}


def penalised(task: Tensor, weight: float | Tensor, penalty: Tensor, accuracy: Tensor) -> Losses:
    """Returns the losses of a method that adds a weighted penalty to the task's own loss."""
    return losses(task + weight * penalty, task=task, penalty=penalty, accuracy=accuracy)


def soft_targets(labels: Tensor, scores: Tensor, label_smoothing: float) -> Tensor:
    """Returns the probabilities that cross-entropy takes as correct, in the shape of the scores."""
    correct = functional.one_hot(labels, scores.shape[1]).to(scores)
    return (1 - label_smoothing) * correct + label_smoothing / scores.shape[1]


def group_means(values: Tensor, groups: Tensor, n_groups: int) -> tuple[Tensor, Tensor]:
    """Returns the mean of one number an image in each group (a domain, a class), and how many
    images the group has, on all devices together. Zero where a pooled batch lacks a group."""
    values, groups = across_devices.gather(values), across_devices.gather(groups)
    member = functional.one_hot(groups, n_groups).to(values)
    counts = member.sum(dim=0)
    return (values.unsqueeze(1) * member).sum(dim=0) / counts.clamp_min(1), counts


def mean_of_present(values: Tensor, counts: Tensor) -> Tensor:
    """Returns the mean over those groups that have images."""
    present = (counts > 0).to(values)
    return (values * present).sum() / present.sum()


def mean_of_pairs(distances: Tensor, counts: Tensor) -> Tensor:
    """Returns the mean of symmetric `[groups, groups]` over pairs of groups that have images;
    without a pair zero."""
    present = (counts > 0).to(distances)
    pairs = torch.outer(present, present).triu(diagonal=1)
    return (distances * pairs).sum() / pairs.sum().clamp_min(1)


def discrimination(guesses: Tensor, groups: Tensor, balanced: bool) -> tuple[Tensor, Tensor]:
    """Returns the cross-entropy of a discriminator's guesses and the share of correct ones;
    `balanced`: all groups count equally, whatever their numbers of images."""
    weights = 1 / groups.bincount() if balanced else None
    loss = functional.cross_entropy(guesses, groups, weight=weights)
    if weights is None:
        return loss, accuracy(guesses, groups)
    correct = (guesses.detach().argmax(dim=1) == groups).float()
    return loss, (correct * weights[groups]).sum() / weights[groups].sum()


def domains_in_random_order(batch: DomainBatch) -> Tensor:
    """Returns the numbers of the training domains, in an order that each step draws, alike on all
    devices."""
    return uniform(batch.step_key, batch.n_domains, _ORDER_STREAM)[0].argsort()


def joint_images(batch: DomainBatch, task: Task) -> tuple[Tensor, Tensor]:
    """Returns all images of a step, for one pass (batch norm then sees both sides), and the group
    of each: in adaptation source 0 and target 1, else its domain."""
    if task.target is None:
        return batch.images, batch.domains
    assert batch.target is not None
    sides = (torch.zeros_like(batch.domains), batch.domains.new_ones(len(batch.target)))
    return torch.cat([batch.images, batch.target]), torch.cat(sides)


def by_own_group(modules: nn.ModuleList, x: Tensor, groups: Tensor) -> Tensor:
    """Sends each row of `x` through the module of its own group (a domain, a side).

    A pooled batch may lack a group; its module still takes part, with gradient zero.
    """
    rows = [(groups == group).nonzero().squeeze(1) for group in range(len(modules))]
    found = [module(x[own]) for module, own in zip(modules, rows, strict=True) if len(own)]
    in_order = torch.cat(found)[torch.cat(rows).argsort()]
    return in_order + inactive(modules.parameters())


def inactive(parameters: Iterable[Tensor]) -> Tensor:
    """Returns zero, through which parameters that are not used now still get a gradient: zero."""
    return 0.0 * torch.stack([p.sum() for p in parameters]).sum()


def with_gradients(params: Sequence[nn.Parameter], grads: Sequence[Tensor]) -> Tensor:
    """Returns a scalar whose gradient by `params` is exactly `grads`; its value is zero."""
    terms = [((p - p.detach()) * g.detach()).sum() for p, g in zip(params, grads, strict=True)]
    return torch.stack(terms).sum()


def gradient_of_batch(
    loss: Tensor,
    weights: Mapping[str, Tensor],
    keep_graph: bool = False,
    differentiable: bool = False,
) -> Weights:
    """Returns the gradient of a mean over images, of the whole batch also where devices share it.

    `keep_graph`: the loss is needed once more; `differentiable`: so is this gradient's own.
    """
    values = list(weights.values())
    found = torch.autograd.grad(
        loss, values, retain_graph=keep_graph, create_graph=differentiable, materialize_grads=True
    )
    # one exchange for all: its counterpart in backward comes before any gradient is ready
    gradient = across_devices.mean(torch.cat([g.flatten() for g in found]))
    parts = torch.split(gradient, [value.numel() for value in values])
    return {n: part.view_as(weights[n]) for n, part in zip(weights, parts, strict=True)}


def gradient_step(
    loss: Tensor, weights: Mapping[str, Tensor], lr: float, differentiable: bool
) -> Weights:
    """Returns weights one plain step down the loss of the whole batch. Gradients can be taken
    through the result; `differentiable`: through the step's own, too."""
    gradient = gradient_of_batch(loss, weights, keep_graph=True, differentiable=differentiable)
    return {name: value - lr * gradient[name] for name, value in weights.items()}


def kernel_discrepancies(rows: Tensor, member: Tensor, gammas: Sequence[float]) -> Tensor:
    """Returns the squared maximum mean discrepancy of each two groups of rows, `[groups, groups]`:
    mean k(a, a') + mean k(b, b') − 2 mean k(a, b), with a row beside itself included and k(x, y)
    the sum of exp(−γ ‖x − y‖²) over all γ. `member`: `[rows, groups]`, one where a row is in it."""
    # not by a matrix product: narrow kernels need small distances exactly
    distances = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist").square()
    kernel = torch.stack([(-gamma * distances).exp() for gamma in gammas]).sum(dim=0)
    shares = member / member.sum(dim=0).clamp_min(1)
    return between(shares.T @ kernel @ shares)


def between(similarity: Tensor) -> Tensor:
    """Returns squared distances `[groups, groups]` from their inner products."""
    own = similarity.diagonal()
    return own.unsqueeze(0) + own.unsqueeze(1) - 2 * similarity
