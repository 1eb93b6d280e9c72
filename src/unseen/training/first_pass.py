"""What a run computes once, before its first step: a method's pass over all images, and with
`head_first` the classifier, fitted on the features that the network starts with.

The fit is a multinomial logistic regression with an L2 penalty, all domains weighing the same, and
with `sampling=class_balanced` all classes of a domain, too (1/(D·K_d·n_dk) in the place of
1/(D·n_d)):

    min over W, b of  Σ_d 1/(D·n_d) Σ_i −log softmax(W x_i + b)[y_i]  +  penalty/2 · |W|²

Features are scaled to a mean square of one. The penalty is the one with the least loss on the
source validation images, from strong to weak until it rises. The unseen domain is not looked at.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor
from torch.nn import functional

from unseen.data.batch import DomainBatch
from unseen.data.features import StoredFeatures
from unseen.data.feed import Feed, Process
from unseen.data.randomness import image_keys, step_key
from unseen.data.roles import Roles
from unseen.methods.base import DatasetPassMethod, Method, TrainingImages
from unseen.networks.stages import Network, classifier_inputs
from unseen.results.folder import RunFolder
from unseen.results.statistics import evenly
from unseen.training.build import Run
from unseen.training.checkpoints import load_tensors, save_tensors
from unseen.training.display import Display
from unseen.training.features import complete, plain_version


def run_dataset_pass(
    fabric: Fabric, folder: RunFolder, method: Method, feed: Feed, roles: Roles, display: Display
) -> None:
    """Lets the method look at all images, once in the life of a run and in the first process; all
    processes use what it found."""
    if isinstance(method, DatasetPassMethod):
        if fabric.is_global_zero and not folder.dataset_pass.is_file():
            alone = replace(feed, process=Process(fabric.device))
            found = method.dataset_pass(_training_images(alone, roles))
            save_tensors(folder.dataset_pass, found)
        fabric.barrier()
        found = load_tensors(folder.dataset_pass)
        method.use_dataset_pass({name: tensor.to(fabric.device) for name, tensor in found.items()})
    if fabric.is_global_zero:
        for remark in method.remarks:
            display.line(remark)


def _training_images(feed: Feed, roles: Roles) -> TrainingImages:
    rows = np.concatenate(list(roles.train.values()))
    domains = np.repeat(np.arange(len(roles.train)), [len(r) for r in roles.train.values()])

    def source() -> Iterator[DomainBatch]:
        chunks = (torch.from_numpy(each).split(feed.batch_size) for each in (rows, domains))
        for (images, labels), *own in zip(feed.evaluation(rows), *chunks, strict=True):
            about = (*own, image_keys(0, 0, own[0]), step_key(0, 0))
            places, domain_of, keys, key = (each.to(images.device) for each in about)
            yield DomainBatch(images, labels, domain_of, keys, len(roles.train), places, key)

    return TrainingImages(source, lambda: feed.images(roles.target_rows))


PENALTIES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
_MOST = 4000
"""Training images of a domain that take part, evenly spaced."""
_ITERATIONS = 100


class Examples(NamedTuple):
    """Features, labels, and how much each image counts; counts sum to one."""

    features: Tensor
    labels: Tensor
    counts: Tensor


def first_heads(
    fabric: Fabric,
    runs: Sequence[Run],
    networks: Mapping[int, Network],
    feed: Feed,
    display: Display,
) -> list[dict[str, Tensor] | None]:
    """Returns the classifier that each run begins with, where the settings ask for a fitted one,
    which the first process computes once in the life of a run: once for all with the same network
    and training images. Networks by seed are whole, no method has changed them."""
    found: dict[tuple[Any, ...], dict[str, Tensor]] = {}
    heads: list[dict[str, Tensor] | None] = []
    for run in runs:
        if not run.experiment.head_first:
            heads.append(None)
            continue
        alike = (run.experiment.seed, run.task.domains)
        if fabric.is_global_zero and not run.folder.head.is_file():
            network = networks[run.experiment.seed].to(fabric.device)
            head = found[alike] if alike in found else fit_head(run, network, feed, display)
            save_tensors(run.folder.head, head)
        fabric.barrier()
        found[alike] = load_tensors(run.folder.head)
        heads.append(found[alike])
    return heads


def fit_head(run: Run, network: Network, feed: Feed, display: Display) -> dict[str, Tensor]:
    """Returns `weight` and `bias` of the classifier, and the `penalty` that was chosen. Features at
    the last stage are those of all images: a file that runs with other unseen domains share."""
    frozen = copy.deepcopy(network)
    frozen.freeze(frozen.head)

    def images(rows: np.ndarray) -> Iterator[Tensor]:
        for batch in feed.images(rows):
            start = network.frozen_until if network.holds_features(batch) else None
            yield frozen.run(batch, start, until=frozen.head)

    prepared, roles = run.images.prepared, run.images.roles
    version = plain_version(prepared, frozen, run.experiment.network, images)
    [values] = complete([version], display)
    stored = StoredFeatures(prepared.index, values)
    by_class = run.experiment.sampling == "class_balanced"
    training, validation = (
        _examples(network, stored, rows_of, by_class) for rows_of in (roles.train, roles.validation)
    )
    scale = training.features.square().mean().sqrt().clamp_min(1e-12)
    training, validation = (
        each._replace(features=each.features / scale) for each in (training, validation)
    )
    weights, penalty = choose_penalty(training, validation, len(stored.index.classes))
    weight = (weights[:-1] / scale).T.float().contiguous()
    return {"weight": weight, "bias": weights[-1].float(), "penalty": torch.tensor(penalty)}


def _examples(
    network: Network, stored: StoredFeatures, rows_of: Mapping[str, np.ndarray], by_class: bool
) -> Examples:
    """Returns examples of every domain that has any, in double precision on the CPU."""
    device = next(network.stage(network.head).parameters()).device
    chosen = [evenly(rows, _MOST) for rows in rows_of.values() if len(rows)]
    label_of = stored.index.labels
    counts = [
        torch.from_numpy(shares(label_of[rows], by_class) / len(chosen)).float() for rows in chosen
    ]
    parts = [
        classifier_inputs(network, stored.batch(part).to(device)).double().cpu()
        for part in np.array_split(np.concatenate(chosen), len(chosen))
    ]
    labels = torch.as_tensor(label_of[np.concatenate(chosen)])
    return Examples(torch.cat(parts), labels, torch.cat(counts).double())


def shares(labels: np.ndarray, by_class: bool) -> np.ndarray:
    """Returns how much each image of a domain counts: the same for all of them, or for all
    classes."""
    if not by_class:
        return np.full(len(labels), 1 / len(labels))
    _, class_of, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    return 1 / (len(sizes) * sizes[class_of])


def choose_penalty(
    training: Examples, validation: Examples, n_classes: int
) -> tuple[Tensor, float]:
    """Returns weights `[features + 1, classes]`, the bias last, and their penalty."""
    weights = torch.zeros(training.features.shape[1] + 1, n_classes, dtype=torch.float64)
    best, least, chosen = weights, float("inf"), PENALTIES[0]
    for penalty in PENALTIES:
        weights = fit(training, penalty, weights)
        found = loss(weights, validation).item()
        if found >= least:
            break
        best, least, chosen = weights, found, penalty
    return best, chosen


def fit(examples: Examples, penalty: float, first: Tensor) -> Tensor:
    """Finds the least loss and penalty by L-BFGS; convex, so `first` only saves time."""
    weights = first.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [weights], max_iter=_ITERATIONS, tolerance_grad=1e-7, line_search_fn="strong_wolfe"
    )

    def objective() -> Tensor:
        optimizer.zero_grad()
        value = loss(weights, examples) + penalty / 2 * weights[:-1].square().sum()
        value.backward()
        return value

    optimizer.step(objective)  # pyright: ignore[reportArgumentType]
    return weights.detach()


def loss(weights: Tensor, examples: Examples) -> Tensor:
    """Returns the mean cross-entropy in which domains weigh the same."""
    scores = examples.features @ weights[:-1] + weights[-1]
    return examples.counts @ functional.cross_entropy(scores, examples.labels, reduction="none")
