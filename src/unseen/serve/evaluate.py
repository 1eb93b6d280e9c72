"""Trained models on images of datasets: measured again, on those of their run or on others; and as
references of a forecast, where they left out domains of which the labels are known."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from unseen.data.cache import cache_folder
from unseen.data.dataset import OpenDatasets, open_dataset
from unseen.data.prepare import prepare
from unseen.data.roles import Roles
from unseen.errors import DataError, UnseenError
from unseen.forecast.estimate import Reference, gaps
from unseen.forecast.profile import VERSION, ModelOutputs, Profile
from unseen.results.files import digest_of, read_arrays_if_whole, write_arrays
from unseen.results.folder import RunFolder, find_runs
from unseen.results.measure import three_views
from unseen.results.result import RunResult, Views
from unseen.results.statistics import evenly
from unseen.serve.model import Model
from unseen.serve.predictor import Predictor
from unseen.settings.experiment import DataSettings
from unseen.training.build import Images, build_images
from unseen.training.devices import fabric_on
from unseen.training.outputs import observe
from unseen.training.session import Session, open_trained

LOOKED_AT = 500
"""Images of a domain that a reference left out, evenly spaced."""
_DATASETS = OpenDatasets()


def evaluate(model: Model, data: str | Path | None = None) -> Views:
    """The three views on the images of the model's run, or accuracy by domain on other ones.

    `data` is a folder `domain/class/*` or a manifest whose classes the model knows; the model is
    not told these domains, so all of them are reported as out of domain.
    """
    experiment = model.experiment
    if data is None:
        images = build_images(open_dataset(experiment.data), experiment, model.image_size)
    else:
        images = _other_images(model, Path(data))
    fabric = fabric_on(model.device, experiment)
    session = open_trained(fabric, experiment, model.method, images)
    temperatures = None if model.fitted_temperature is None else [model.fitted_temperature]
    [(_, roles, evaluator, predict)] = session.cohorts()
    about = (evaluator, predict, model.has_opinions, roles.out_of_domain, roles.in_domain)
    return three_views(*about, temperatures)[0]


def _other_images(model: Model, data: Path) -> Images:
    """Images of other domains, with labels in the order of the model's classes."""
    name = "folder" if data.is_dir() else "manifest"
    dataset = open_dataset(DataSettings(name=name, root=data))
    dataset.window = model.window
    index = dataset.index()
    unlabelled = sorted(set(index.domains).difference(index.labelled_domains))
    if unlabelled:
        remedy = "so nothing can be measured there; use 'unseen predict' or 'unseen forecast'"
        raise DataError(f"{data} has no labels in {', '.join(unlabelled)}, {remedy}")
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


def read_references(
    runs: Path, model: Predictor, on_status: Callable[[str], None], device: str = "auto"
) -> list[Reference]:
    """Reads all references among the runs below a folder; raises where there is none."""
    if not runs.is_dir():
        raise UnseenError(f"there is no folder {runs}; --reference names a folder of runs")
    finished = [(each, each.read_result()) for each in find_runs(runs) if each.finished]
    candidates = [(folder, left_out(result, model)) for folder, result in finished]
    candidates = [each for each in candidates if each[1]]
    if not candidates:
        kinds = sorted({f"{each.method} on {each.backbone}" for _, each in finished})
        domains = ", ".join(model.domains)
        raise UnseenError(
            f"no run in {runs} can serve as a reference: it takes finished runs of "
            f"{' on '.join(model.kind)} that were trained on some of {domains}, and on nothing "
            f"else, and tested on another of these. Found {len(finished)} finished runs "
            f"({', '.join(kinds[:4])}). Train the model's recipe with data.training_domains "
            f"restricted to {domains}, each of them left out in turn"
        )
    found: list[Reference] = []
    for number, (folder, domains) in enumerate(candidates, start=1):
        on_status(f"reference {number} of {len(candidates)}: {folder.path.name}")
        found += read_reference(folder, domains, device)
    return found


def left_out(result: RunResult, model: Predictor) -> list[str]:
    """Returns the model's training domains that a run of the same kind of model left out.

    None where it was trained on any domain that the model was not trained on: it may know labels of
    the very images that are asked about.
    """
    alike = (result.method, result.backbone, result.classes) == (*model.kind, tuple(model.classes))
    knows_more = not set(result.training_domains) <= set(model.domains)
    if not alike or knows_more or result.merged or result.setting != "generalization":
        return []
    measured = result.view(result.selection, "out_of_domain")
    return [d for d in result.unseen_domains if d in model.domains and d in measured]


def read_reference(
    folder: RunFolder, domains: Sequence[str], device: str = "auto", looked_at: int = LOOKED_AT
) -> Iterator[Reference]:
    """Yields what each estimate says of domains that a run left out, and the truth: the accuracy
    that the run recorded, so that no label is looked at. What the model makes of their images is
    kept in the cache."""
    result, profile = folder.read_result(), Profile.read(folder.checked(folder.profile))
    weights = digest_of(folder.weights(result.selection))
    session: Session | None = None
    for domain in domains:
        about = f"{VERSION} {domain} with features {looked_at} {weights} {result.data}"
        name = hashlib.sha256(about.encode()).hexdigest()[:32]
        cached = cache_folder() / "forecast" / f"{name}.npz"
        found = read_arrays_if_whole(cached)
        if "scores" not in found:
            session = session or _open(folder, result, device)
            method, images = session.learner.method, session.runs[0].images
            rows = evenly(images.roles.out_of_domain[domain], looked_at)
            outputs = observe(method, session.feed, rows, rows, session.fabric.autocast)
            found = {key: value for key, value in outputs._asdict().items() if value is not None}
            write_arrays(cached, found)
        truth = result.view(result.selection, "out_of_domain")[domain].accuracy
        apart = gaps(profile, ModelOutputs(**found))
        yield Reference(folder.path.name, domain, profile.accuracy, truth, apart)


def _open(folder: RunFolder, result: RunResult, device: str) -> Session:
    """Opens the run with its images, which have to be those it was trained on."""
    model = Model.from_run(folder, device)
    experiment = model.experiment
    images = build_images(_DATASETS.open(experiment.data), experiment, model.image_size)
    if images.prepared.content != result.data:
        changed = f"the images have changed since the run in {folder.path} was trained"
        raise DataError(f"{changed}; put them back, or train it again")
    fabric = fabric_on(model.device, experiment)
    return open_trained(fabric, experiment, model.method, images, folder)
