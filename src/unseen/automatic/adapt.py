"""A chosen model adapted to the images of a new place, none of which has a label.

T3A (Iwasawa and Matsuo, NeurIPS 2021), for all images at once: the linear classifier is replaced by
the centres of the classes among the new images' features, as the classifier itself names them.
Whether this helps is seen where labels are: each place that was left out plays the new one. Its
images adapt the models that never saw it, and its labels measure what that brought.
"""

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np
import torch

from unseen.automatic.choice import standard_error
from unseen.automatic.search import Search
from unseen.data.decoding import ahead
from unseen.errors import DataError
from unseen.methods.base import Method
from unseen.networks.stages import classifier_inputs, linear_classifier, set_classifier
from unseen.results.result import MEASURES
from unseen.results.statistics import entropy, evenly, fit_temperature, softmax
from unseen.serve.model import Model
from unseen.serve.predictor import BATCH, read_pixels

MOST_IMAGES, MOST_NEW = 128, 1000
"""Images of a place that judge, and images of the new place that adapt; evenly spaced."""
_SUREST = 20
"""Images of a class that its centre is the mean of, those with the clearest answers."""


class Adaptation(NamedTuple):
    """What adapting brought on places that were left out, and the model where it helps."""

    images: int
    gains: Mapping[str, float]
    helps: bool
    path: str
    """A folder with the adapted model, if it helps."""

    @property
    def text(self) -> str:
        gains = list(self.gains.values())
        brought = f"{100 * fmean(gains):+.1f} ± {100 * standard_error(gains):.1f} points"
        then = f"{self.path} is adapted" if self.helps else "the model stays as it is"
        return (
            f"Adapting the classifier to new images brought {brought} when places that were left "
            f"out played the new one: {then}."
        )


def class_centres(weights: np.ndarray, features: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Returns a classifier `[classes, features]`: directions in which the classes lie among the new
    images. A class begins with its own weights, and keeps them where it is nobody's answer."""
    centres, order = [], np.argsort(entropy(softmax(scores)), kind="stable")
    answers = scores[order].argmax(axis=1)
    for number, own in enumerate(weights):
        surest = features[order[answers == number][:_SUREST]]
        centres.append(_unit(_unit(np.vstack([own, surest])).mean(axis=0)))
    return np.stack(centres)


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def adapt(
    search: Search, model: Model, files: Sequence[str | Path], path: Path
) -> Adaptation | None:
    """Adapts a model to new images, if that helped on the places that were left out by more than
    one standard error, and saves it; None where a model has no single linear classifier."""
    method, head = model.method, model.method.network.stage(model.method.network.head)
    layers = [module for module in head.modules() if isinstance(module, torch.nn.Linear)]
    if type(method).predict is not Method.predict or len(layers) != 1:
        return None

    def read(file: str | Path) -> np.ndarray | None:
        try:
            return read_pixels(Path(file), str(file), model.image_size, model.window)[0]
        except DataError:
            return None

    some = [files[place] for place in evenly(np.arange(len(files)), MOST_NEW)]
    found = ahead(read, some, os.cpu_count() or 1, BATCH)
    if not (pixels := [each for each in found if each is not None]):
        return None
    gains, temperature = _judged(search)
    values = list(gains.values())
    helps = fmean(values) > standard_error(values)
    if helps:
        centres = torch.from_numpy(class_centres(*_known(model, np.stack(pixels))))
        set_classifier(method.network, centres, torch.zeros(len(centres)))
        card = f"{model.card}\n\nIts classifier was adapted to {len(pixels)} images of a new place."
        Model(method, model.experiment, card, temperature=temperature).save_pretrained(path)
    return Adaptation(len(pixels), gains, helps, str(path) if helps else "")


@torch.no_grad()
def _known(model: Model, pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the weights of a model's classifier, and features and scores of images."""
    network, features, scores = model.method.network, list[torch.Tensor](), list[torch.Tensor]()
    for start in range(0, len(pixels), BATCH):
        before = network.run(model.inputs(pixels[start : start + BATCH]), until=network.head)
        features.append(classifier_inputs(network, before))
        scores.append(network.run(before, since=network.head))
    weights = linear_classifier(network).weight
    return weights.cpu().numpy(), torch.cat(features).cpu().numpy(), torch.cat(scores).cpu().numpy()


def _judged(search: Search) -> tuple[dict[str, float], float | None]:
    """Returns the mean gain on each place by the models of the chosen row that never saw it, and
    the temperature at which the adapted ones are calibrated there."""
    from sklearn.metrics import confusion_matrix

    subject = search.subject
    _, prepared = subject.prepared()
    index, measure = prepared.index, MEASURES[subject.experiment.metric]
    gains = defaultdict[str, list[float]](list)
    judged, truths = list[np.ndarray](), list[np.ndarray]()
    for run in search.runs_of(search.winner().row):
        model = Model.from_run(run.folder)
        for place in search.left_out(run):
            rows = np.concatenate([index.rows(domain) for domain in subject.places[place]])
            rows = evenly(rows[index.labels[rows] < len(index.classes)], MOST_IMAGES)
            pixels = prepared.batch(rows).permute(0, 2, 3, 1).numpy()
            weights, features, scores = _known(model, pixels)
            adapted = features @ class_centres(weights, features, scores).T
            truth, classes = index.labels[rows], range(len(index.classes))
            before, after = (
                measure(confusion_matrix(truth, each.argmax(axis=1), labels=classes))
                for each in (scores, adapted)
            )
            gains[place].append(after - before)
            judged.append(adapted)
            truths.append(truth)
    return {p: fmean(own) for p, own in gains.items()}, fit_temperature(judged, truths)
