"""Evaluates a model again: on the images of its run, or on others."""

from pathlib import Path

import torch

from unseen.data.dataset import open_dataset
from unseen.data.feed import Feed, Process
from unseen.data.prepare import PreparedImages, prepare
from unseen.errors import DataError
from unseen.results.measure import Evaluator, three_views
from unseen.results.result import Views
from unseen.serve.model import Model
from unseen.settings.experiment import DataSettings
from unseen.training.build import build_images


def evaluate(model: Model, data: str | Path | None = None) -> Views:
    """The three views on the images of the model's run, or accuracy by domain on other ones.

    `data` is a folder `domain/class/*` or a manifest whose classes the model knows; the model is
    not told these domains, so all of them are reported as out of domain.
    """
    experiment, predict = model.experiment, model.method.predict
    if data is None:
        images = build_images(open_dataset(experiment.data), experiment, model.image_size)
        prepared = images.prepared
        out_of_domain, in_domain = images.roles.out_of_domain, images.roles.in_domain
    else:
        prepared = _prepare_other(model, Path(data))
        index = prepared.index
        out_of_domain, in_domain = {name: index.rows(name) for name in index.domains}, {}
    process = Process(model.device)
    feed = Feed(prepared, model.scale, process)
    n_classes = len(model.classes)
    evaluator = Evaluator(feed.evaluation, n_classes, process, lambda counts: counts)
    fitted = model.fitted_temperature
    temperatures = None if fitted is None else [fitted]
    bf16 = experiment.precision == "bf16"
    with torch.autocast(process.device.type, torch.bfloat16, enabled=bf16):
        [views] = three_views(
            evaluator, predict, model.has_opinions, out_of_domain, in_domain, temperatures
        )
    return views


def _prepare_other(model: Model, data: Path) -> PreparedImages:
    """Images of other domains, with labels in the order of the model's classes."""
    name = "folder" if data.is_dir() else "manifest"
    dataset = open_dataset(DataSettings(name=name, root=data))
    unlabelled = set(dataset.index().domains).difference(dataset.index().labelled_domains)
    if unlabelled:
        raise DataError(
            f"{data} has no labels in {', '.join(sorted(unlabelled))}, so nothing can be measured "
            "there; use 'unseen predict' or 'unseen forecast'"
        )
    unknown = sorted(set(dataset.index().classes) - set(model.classes))
    if unknown:
        raise DataError(
            f"{data} has classes that the model does not know: {', '.join(unknown[:5])} "
            f"(it knows {', '.join(model.classes)})"
        )
    prepared = prepare(dataset, model.image_size)
    prepared.index = prepared.index.with_classes(tuple(model.classes))
    return prepared
