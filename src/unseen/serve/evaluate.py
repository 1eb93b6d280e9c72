"""Evaluates a model again: on the images of its run, or on others."""

from pathlib import Path

from unseen.data.dataset import open_dataset
from unseen.data.prepare import prepare
from unseen.data.roles import Roles
from unseen.errors import DataError
from unseen.results.measure import three_views
from unseen.results.result import Views
from unseen.serve.model import Model
from unseen.settings.experiment import DataSettings
from unseen.training.build import Images, build_images
from unseen.training.devices import fabric_on
from unseen.training.session import open_trained


def evaluate(model: Model, data: str | Path | None = None) -> Views:
    """The three views on the images of the model's run, or accuracy by domain on other ones.

    `data` is a folder `domain/class/*` or a manifest whose classes the model knows; the model is
    not told these domains, so all of them are reported as out of domain.
    """
    experiment = model.experiment
    if data is None:
        images = build_images(open_dataset(experiment.data), experiment, model.image_size)
    else:
        images = _open_other(model, Path(data))
    session = open_trained(fabric_on(model.device, experiment), experiment, model.method, images)
    fitted = model.fitted_temperature
    temperatures = None if fitted is None else [fitted]
    [(_, roles, evaluator, predict)] = session.cohorts()
    about = (evaluator, predict, model.has_opinions, roles.out_of_domain, roles.in_domain)
    return three_views(*about, temperatures)[0]


def _open_other(model: Model, data: Path) -> Images:
    """Images of other domains, with labels in the order of the model's classes."""
    name = "folder" if data.is_dir() else "manifest"
    dataset = open_dataset(DataSettings(name=name, root=data))
    dataset.window = model.window
    index = dataset.index()
    unlabelled = sorted(set(index.domains).difference(index.labelled_domains))
    if unlabelled:
        raise DataError(
            f"{data} has no labels in {', '.join(unlabelled)}, so nothing can be measured there; "
            "use 'unseen predict' or 'unseen forecast'"
        )
    unknown = sorted(set(index.classes) - set(model.classes))
    if unknown:
        raise DataError(
            f"{data} has classes that the model does not know: {', '.join(unknown[:5])} "
            f"(it knows {', '.join(model.classes)})"
        )
    prepared = prepare(dataset, model.image_size)
    prepared.index = index = prepared.index.with_classes(tuple(model.classes))
    domains = {name: index.rows(name) for name in index.domains}
    return Images(prepared, Roles((), index.domains, {}, {}, {}, domains, {}, {}), dataset)
