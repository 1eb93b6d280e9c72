"""Sample re-weighting: source images count as much as they look like the target (adaptation).

Covariate shift (Shimodaira 2000); a domain classifier in place of two densities (Bickel, Brückner,
Scheffer; ICML 2007): label source images 0 and target images 1, learn p(target | x), then
w(x) = p_target(x) / p_source(x) = p/(1−p) · n_source/n_target. Tempered w^τ, clipped, mean 1.
Training minimises the mean of w_i · CE_i. The classifier is fitted once, before the first step, and
an image's probability always comes from a classifier that has not seen it.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# scikit-learn has no types

import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from unseen.data.batch import DomainBatch
from unseen.errors import DataError, SettingsError, UnseenError
from unseen.methods.base import (
    DatasetPassMethod,
    Losses,
    Progress,
    TrainingImages,
    Traits,
    accuracy,
    losses,
)
from unseen.settings.ranges import LogUniform, Uniform

_GRID = 8  # pixels are averaged down to this side
_TREES = 100
_BINS = 20
_SEPARABLE_AUC = 0.99
_SMALLEST_SHARE = 0.05


class Reweighting(DatasetPassMethod):
    class Config(DatasetPassMethod.Config):
        features: Literal["network", "pixels"] = "network"
        """What the domain classifier sees: the features of the network before training, or its
        input averaged down to 8 × 8."""
        classifier: Literal["logistic", "forest"] = "logistic"
        """Logistic regression on standardised features, or a random forest."""
        regularisation: Annotated[float, LogUniform(1, 1e4)] = Field(default=1.0, gt=0)
        """Strength of the logistic regression's L2 penalty (1/C): a higher value makes it
        weaker."""
        folds: int = Field(default=5, ge=2)
        """Number of parts; each is scored by a classifier fitted on the others."""
        images_per_side: int = Field(default=10_000, ge=10)
        """Largest number of images per side that a domain classifier is fitted on; all are
        scored."""
        temper: Annotated[float, Uniform(0, 1)] = Field(default=1.0, ge=0, le=1)
        """τ in w^τ: 1 corrects the whole shift, 0 gives all images the same weight."""
        clip: Annotated[float, LogUniform(2, 50)] = Field(default=10.0, gt=1)
        """Largest weight of one image, in units of the average weight."""

    traits = Traits(target_images="dataset_pass")
    config: Config

    def set_up(self) -> None:
        if self.task.target is None:
            raise SettingsError(
                "the method 'reweighting' compares source images with unlabelled target images; "
                "set setting=adaptation and data.unseen_domain=DOMAIN"
            )
        self.positions: Tensor = nn.Buffer(torch.zeros(0, dtype=torch.int64), persistent=False)
        self.weights: Tensor = nn.Buffer(torch.zeros(0), persistent=False)
        self._found: dict[str, Tensor] = {}

    @torch.no_grad()
    def dataset_pass(self, images: TrainingImages) -> dict[str, Tensor]:
        """Returns a weight for every source image, and how far they can be trusted."""
        training = self.training
        self.eval()
        positions: list[Tensor] = []

        def source_images() -> Iterator[Tensor]:
            for batch in images.source():
                positions.append(batch.positions.cpu())
                yield batch.images

        source, target = self._features(source_images()), self._features(images.target())
        self.train(training)
        log_odds, auc, converged = judge(source, target, self.config)
        place = torch.cat(positions)
        order = place.argsort()
        raw = tempered(log_odds[: len(source)][order.numpy()], self.config.temper)
        limit = largest_weight(raw, self.config.clip)
        weights = np.minimum(raw, limit) / np.minimum(raw, limit).mean()
        counts, edges = np.histogram(weights, bins=_BINS, range=(0, weights.max()))
        found = {
            "auc": auc,
            "converged": converged,
            "effective_sample_size": effective_sample_size(weights),
            "unclipped_sample_size": effective_sample_size(raw),
            "share_clipped": (raw > limit).mean(),
            "histogram_counts": counts,
            "histogram_edges": edges,
        }
        tensors = {name: torch.as_tensor(value) for name, value in found.items()}
        weights = torch.as_tensor(weights).float()
        return {"positions": place[order], "weights": weights, **tensors}

    def _features(self, batches: Iterable[Tensor]) -> np.ndarray:
        """Returns one row per image."""
        rows: list[Tensor] = []
        for images in batches:
            pixels = self.config.features == "pixels"
            x = images if pixels else self.network.run(images, until=self.network.head)
            if x.ndim == 4:  # pictures are averaged down
                height, width = (min(side, _GRID if pixels else 1) for side in x.shape[2:])
                x = functional.adaptive_avg_pool2d(x, (height, width))
            rows.append(x.mean(dim=1) if x.ndim == 3 else x.flatten(1))  # tokens: their mean
        return torch.cat(rows).float().cpu().numpy()

    def use_dataset_pass(self, found: Mapping[str, Tensor]) -> None:
        device = self.weights.device
        self._found = {name: value.cpu() for name, value in found.items()}
        self.positions, self.weights = found["positions"].to(device), found["weights"].to(device)
        self.remarks = tuple(self._remarks())

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        scores = self.network(batch.images)
        place = torch.searchsorted(self.positions, batch.positions.contiguous())
        known = place < len(self.positions)
        place = place.where(known, 0)
        if not known.all() or not torch.equal(self.positions[place], batch.positions):
            raise UnseenError(
                "an image of the batch has no weight: the first pass over the images "
                f"knows {len(self.positions)} of them, and has to come before the first step"
            )
        each = self.cross_entropy(scores, batch.labels, "none")
        loss, correct = (self.weights[place] * each).mean(), accuracy(scores, batch.labels)
        return losses(loss, unweighted=each.mean(), accuracy=correct)

    def _remarks(self) -> Iterator[str]:
        found, n, config = self.statistics(), len(self.weights), self.config
        size, unclipped = found["effective_sample_size"], found["unclipped_sample_size"]
        yield (
            f"the domain classifier's AUC is {found['auc']:.3f} out of fold; the weights leave an "
            f"effective sample of {size:,.0f} of {n:,} images ({unclipped:,.0f} before clipping)"
        )
        if found["auc"] > _SEPARABLE_AUC or unclipped < _SMALLEST_SHARE * n:
            remedies = [f"method.temper={config.temper / 2:g}"]
            if config.classifier == "logistic":
                weaker = f"method.regularisation={100 * config.regularisation:g}"
                remedies.append(f"a weaker classifier ({weaker})")
            if config.features == "network":
                remedies.append("other features (method.features=pixels)")
            yield (
                f"source and {self.task.target} hardly overlap: a few images carry most of the "
                f"weight, which says little about the target; try {' or '.join(remedies)}"
            )
        if not found["converged"]:
            yield "the logistic regression did not converge; a larger method.regularisation helps"

    def statistics(self) -> dict[str, Any]:
        if not self._found:
            return {}
        histogram = {key: self._found[f"histogram_{key}"].tolist() for key in ("counts", "edges")}
        numbers = {name: value.item() for name, value in self._found.items() if value.ndim == 0}
        return {**numbers, "histogram": histogram}

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns positions and weights of all source images, and the histogram of the weights."""
        return {name: value.numpy() for name, value in self._found.items() if value.ndim > 0}


def judge(
    source: np.ndarray, target: np.ndarray, config: Reweighting.Config
) -> tuple[np.ndarray, float, bool]:
    """Returns what domain classifiers say of rows of features that they have not seen: the log odds
    p_target(x) / p_source(x) of source and target, their AUC, and whether all fits converged."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if min(len(source), len(target)) < config.folds:
        raise DataError(
            f"{len(source)} source and {len(target)} target images are too few for method.folds="
            f"{config.folds}: each side needs at least one for each fold"
        )
    rows = np.concatenate([source, target])
    is_target = np.repeat([0, 1], [len(source), len(target)])
    if config.classifier == "forest":
        # leaves of some size: their shares are probabilities rather than votes of single images
        model = RandomForestClassifier(_TREES, min_samples_leaf=5, n_jobs=1, random_state=0)
        edge = 0.5 / _TREES
    else:
        regression = LogisticRegression(C=1 / config.regularisation, max_iter=2000)
        model, edge = make_pipeline(StandardScaler(), regression), 1e-9
    folds = StratifiedKFold(config.folds, shuffle=True, random_state=0)
    log_odds = np.empty(len(rows))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        for fit_on, judged in folds.split(rows, is_target):
            # at most so many rows of each side, drawn by chance but always the same
            mixed = np.random.default_rng(0).permutation(fit_on)
            sides = [mixed[is_target[mixed] == side][: config.images_per_side] for side in (0, 1)]
            chosen = np.concatenate(sides)
            model.fit(rows[chosen], is_target[chosen])
            probs = np.asarray(model.predict_proba(rows[judged]), np.float64)[:, 1]
            probs = probs.clip(edge, 1 - edge)
            # as if both sides had been fitted on in equal number
            prior = np.log(len(sides[0])) - np.log(len(sides[1]))
            log_odds[judged] = np.log(probs) - np.log1p(-probs) + prior
    converged = not any(issubclass(one.category, ConvergenceWarning) for one in caught)
    return log_odds, float(roc_auc_score(is_target, log_odds)), converged


def tempered(log_odds: np.ndarray, temper: float) -> np.ndarray:
    """Returns w^τ, divided by the largest: odds may be beyond all numbers."""
    return np.exp(temper * (log_odds - log_odds.max()))


def largest_weight(weights: np.ndarray, clip: float) -> float:
    """Returns the t at which min(w, t) has a largest value of `clip` times its mean.

    With the k largest cut to t, clip · (Σ_rest + k·t)/n = t gives t; k is the first that suffices.
    """
    n = len(weights)
    rising = np.sort(weights)
    k = np.arange(int(np.ceil(n / clip)))
    limits = clip * np.cumsum(rising)[n - 1 - k] / (n - clip * k)
    enough = limits * (1 + 1e-9) >= rising[n - 1 - k]  # ties are no matter of rounding
    return float(limits[enough.argmax()])


def effective_sample_size(weights: np.ndarray) -> float:
    """Returns (Σw)² / Σw²: how many equally weighted images would say as much."""
    return float(weights.sum() ** 2 / (weights**2).sum())
