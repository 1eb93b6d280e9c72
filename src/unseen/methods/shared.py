"""What several methods share."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from unseen import across_devices
from unseen.data.batch import DomainBatch, Task
from unseen.data.randomness import uniform
from unseen.networks.stages import Network

if TYPE_CHECKING:
    from unseen.methods.base import Losses, Method

_ORDER_STREAM = 1  # stream 0 of the random numbers belongs to augmentation


def accuracy(scores: Tensor, labels: Tensor) -> Tensor:
    """Returns the share of correct predictions."""
    return (scores.detach().argmax(dim=1) == labels).float().mean()


def losses(loss: Tensor, **recorded: Tensor) -> "Losses":
    """Returns the loss to minimise, and by name what is recorded beside it."""
    return {"loss": loss} | {name: value.detach() for name, value in recorded.items()}


def penalised(task: Tensor, weight: float | Tensor, penalty: Tensor, accuracy: Tensor) -> "Losses":
    """Returns the losses of a method that adds a weighted penalty to the task's own loss."""
    return losses(task + weight * penalty, task=task, penalty=penalty, accuracy=accuracy)


def penalised_features(
    method: "Method",
    batch: DomainBatch,
    weight: float | Tensor,
    of_features: Callable[[Tensor, Tensor, int], Tensor],
) -> "Losses":
    """Returns the losses of cross-entropy and a weighted penalty on the features before the
    classifier: a function of those of all images on all devices, their domains, and the number of
    domains."""
    network = method.network
    features = network.run(batch.images, until=network.head)
    scores = network.run(features, since=network.head)
    task, correct = method.classification(scores, batch.labels)
    rows = across_devices.gather(features.flatten(1).float())
    with in_full_precision(rows):
        penalty = of_features(rows, across_devices.gather(batch.domains), batch.n_domains)
    return penalised(task, weight, penalty, correct)


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


def kernel_discrepancies(
    rows: Tensor, groups: Tensor, n_groups: int, gammas: Sequence[float]
) -> tuple[Tensor, Tensor]:
    """Returns the squared maximum mean discrepancy of each two groups of rows, `[groups, groups]`,
    and how many rows each group has: mean k(a, a') + mean k(b, b') − 2 mean k(a, b), with a row
    beside itself included and k(x, y) the sum of exp(−γ ‖x − y‖²) over all γ."""
    # not by a matrix product: narrow kernels need small distances exactly
    distances = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist").square()
    kernel = torch.stack([(-gamma * distances).exp() for gamma in gammas]).sum(dim=0)
    member = functional.one_hot(groups, n_groups).to(rows)
    counts = member.sum(dim=0)
    shares = member / counts.clamp_min(1)
    similarity = shares.T @ kernel @ shares
    own = similarity.diagonal()
    return own.unsqueeze(0) + own.unsqueeze(1) - 2 * similarity, counts


def annealed(ratio: float, share: float, before: float, after: float) -> Tensor:
    """Returns `before` until this share of the run is over, then `after`; a tensor, because under
    `vmap` runs of a stack may differ in these numbers."""
    return torch.where(torch.as_tensor(ratio >= share), after, before)


def in_full_precision(x: Tensor) -> torch.autocast:
    """Makes a context in which products of single-precision numbers stay so, also where half
    precision is on."""
    return torch.autocast(x.device.type, enabled=False)


def frozen_features(
    network: Network, site: str, what: str, advice: str = "set an earlier network.freeze_until"
) -> tuple[str, ...]:
    """Returns a remark where the features at a site do not learn, so that something has no
    effect."""
    if network.frozen_until != site:
        return ()
    return (f"nothing before '{site}' learns, so {what} changes nothing: {advice}",)


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


def gradient_of_batch(
    loss: Tensor,
    weights: Mapping[str, Tensor],
    keep_graph: bool = False,
    differentiable: bool = False,
) -> dict[str, Tensor]:
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
    return {
        name: part.view(value.shape)
        for (name, value), part in zip(weights.items(), parts, strict=True)
    }


def gradient_step(
    loss: Tensor, weights: Mapping[str, Tensor], lr: float, differentiable: bool
) -> dict[str, Tensor]:
    """Returns weights one plain step down the loss of the whole batch.

    Gradients can be taken through the result; `differentiable`: through the step's own, too.
    """
    gradient = gradient_of_batch(loss, weights, keep_graph=True, differentiable=differentiable)
    return {name: value - lr * gradient[name] for name, value in weights.items()}


def with_gradients(params: Sequence[nn.Parameter], grads: Sequence[Tensor]) -> Tensor:
    """Returns a scalar whose gradient by `params` is exactly `grads`; its value is zero."""
    terms = [((p - p.detach()) * g.detach()).sum() for p, g in zip(params, grads, strict=True)]
    return torch.stack(terms).sum()
