"""Two processes (gloo) compute what one does: gradients, weights, records, counts."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning_fabric import Fabric
from rich.console import Console
from safetensors.torch import load_file, save_file
from tests.double_precision import double_precision
from torch import Tensor

from unseen.errors import SettingsError
from unseen.methods.base import Progress
from unseen.results.folder import RunFolder
from unseen.settings import catalog
from unseen.settings.experiment import Experiment, complete_settings
from unseen.settings.recipes import build_experiment, load_experiment
from unseen.training import loop
from unseen.training.build import build_sampler
from unseen.training.devices import Interrupted, launch
from unseen.training.display import Display
from unseen.training.execute import _train_in_process, execute
from unseen.training.loop import save
from unseen.training.one_run import OneRun
from unseen.training.session import Session, open_session

pytestmark = pytest.mark.timeout(900)  # all methods train in one fixture
ADAPTING = ("dann", "dsn")  # have a form for adaptation besides the other one
FORMS: dict[str, dict[str, Any]] = {
    "adaptation": {"setting": "adaptation"},
    "union of targets": {"setting": "adaptation", "data.unseen_domain": "plain,outlines"},
    "upper bound": {"data.train_on_unseen": True},
    "routed": {"method.prediction": "routed"},
    "averaged": {"averaging.name": "mean", "averaging.start": 0.5, "schedule.name": "flat"},
    "in a valley": {"averaging.name": "swad", "averaging.valley_start": 1, "evaluate_every": 1},
    "styles mixed": {"augment.mixstyle": 1.0, "augment.mixstyle_stages": "conv2"},
    "amplitudes mixed": {"augment.amplitude_mix": 1.0},
    "from views": {"network.freeze_until": "fc1", "network.views": 2},
    "classes balanced": {"sampling": "class_balanced", "metric": "macro_f1"},
    "in parts": {"devices.accumulate": 2, "devices.readers": 2, "devices.evaluation_batch": 5},
    "head first": {"head_first": True, "label_smoothing": 0.1, "optimizer.layer_decay": 0.5},
}
OF_ADAPTATION = ("adaptation", "union of targets")
INGREDIENTS = tuple(f"dmg, {form}" for form in FORMS if form not in OF_ADAPTATION)
ADAPTED = tuple(f"{method}, {form}" for method in ADAPTING for form in OF_ADAPTATION)
METHODS = (*catalog.METHODS, *ADAPTED, *INGREDIENTS)
PAUSED = "paused"  # the run that two processes begin and one process ends
SPARSE = "sparse"  # a run with fewer validation images in a domain than processes


def experiment(method: str, number: int = 1, **changes: Any) -> Experiment:
    settings = {
        "data.unseen_domain": "outlines",
        "network.image_size": 16,
        "images_per_domain": 4,
        "steps": 4,
        "evaluate_every": 2,
        "checkpoint_every": 2,
        "log_every": 1,
        "optimizer.name": "sgd",
        "optimizer.lr": 0.05,
        "devices.number": number,
        "devices.accelerator": "cpu",
    }
    name, _, form = method.partition(", ")
    more = FORMS.get(form, {})
    if number == 1:  # the whole batch at once
        more = {key: value for key, value in more.items() if not key.startswith("devices.")}
    return load_experiment(f"digits/{name}", settings | more | changes)


def sparse(number: int = 1) -> Experiment:
    """`blended` has one validation image."""
    return experiment("aggregate", number, **{"data.validation_share": 0.004})


def run(chosen: Experiment, path: Path) -> RunFolder:
    folder = RunFolder(path)
    with Display(Console(quiet=True), 1, "") as display:
        execute(chosen, folder, display)
    return folder


def gradients(fabric: Fabric, settings: Mapping[str, Any], path: Path) -> dict[str, Tensor]:
    """What one forward and one backward leave on this device."""
    with Display(Console(quiet=True), 1, "") as display:
        members = [(build_experiment(settings), RunFolder(path))]
        session = open_session(fabric, members, display)
    assert isinstance(session.learner, OneRun)
    (batch,) = session.batches(range(1))
    fabric.backward(session.learner.module(batch, Progress(0, 4))["loss"])
    session.close()
    method = session.learner.method
    found = {name: p.grad for name, p in method.named_parameters() if p.grad is not None}
    return {
        name: gradient.clone(memory_format=torch.contiguous_format)
        for name, gradient in found.items()
    }


def everything(fabric: Fabric, settings: dict[str, Any], folder: Path) -> None:
    """All that two processes do in this file: starting them costs more than the runs."""
    with double_precision():
        _everything(fabric, settings, folder)


def _everything(fabric: Fabric, settings: dict[str, Any], folder: Path) -> None:
    if not fabric.is_global_zero:
        _forbid_writing()
    for name, chosen in (*settings.items(), (SPARSE, complete_settings(sparse(2)))):
        error = _train_in_process(fabric, chosen, folder / name)
        if error is not None:
            raise error
    loop.save = _pause_after_two
    paused = _train_in_process(fabric, settings["dmg"], folder / PAUSED)
    assert isinstance(paused, Interrupted)
    for method, chosen in settings.items():
        found = gradients(fabric, chosen, folder / f"{method}-gradients")
        save_file(found, folder / f"{method}-gradients-{fabric.global_rank}.safetensors")


def _forbid_writing() -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError("only rank 0 writes")

    tempfile.mkstemp = refuse  # what every atomic file begins with
    Path.touch = refuse  # and what the log of the metrics begins with


def _pause_after_two(session: Session) -> None:
    save(session)
    raise Interrupted(session.runs[0].folder.path, session.step, 15)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory, shared_cache: Path) -> Path:
    """The same by one process."""
    folder = tmp_path_factory.mktemp("one")
    with pytest.MonkeyPatch.context() as patch, double_precision():
        patch.setenv("UNSEEN_CACHE", str(shared_cache))
        for method in METHODS:
            run(experiment(method), folder / method)
            settings = complete_settings(experiment(method))
            found = launch(experiment(method), gradients, settings, folder / f"{method}-gradients")
            save_file(found, folder / f"{method}-gradients.safetensors")
        run(sparse(), folder / SPARSE)
    return folder


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, one: Path, shared_cache: Path) -> Path:
    folder = tmp_path_factory.mktemp("two")
    settings = {}
    for method in METHODS:
        chosen = experiment(method, number=2)
        settings[method] = complete_settings(chosen)
        for name in (method, PAUSED, f"{method}-gradients"):
            RunFolder(folder / name).create(chosen)
    RunFolder(folder / SPARSE).create(sparse(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNSEEN_CACHE", str(shared_cache))
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("PYTHONWARNINGS", "error")
        launch(experiment("dmg", number=2), everything, settings, folder)
    return folder


def assert_close(found: dict[str, Tensor], expected: dict[str, Tensor], atol: float = 1e-6) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, atol=atol, rtol=1e-5, msg=name)


@pytest.mark.parametrize("method", METHODS)
def test_gradients_are_equal(one: Path, two: Path, method: str) -> None:
    """On both processes, and to those of one process with the whole batch."""
    ranks = [load_file(two / f"{method}-gradients-{rank}.safetensors") for rank in (0, 1)]
    expected = load_file(one / f"{method}-gradients.safetensors")
    assert all(torch.equal(ranks[0][name], ranks[1][name]) for name in expected)
    assert_close(ranks[0], expected)
    assert any(gradient.abs().max() > 1e-3 for gradient in expected.values())


@pytest.mark.parametrize("method", METHODS)
def test_weights_records_and_counts_are_equal(one: Path, two: Path, method: str) -> None:
    expected, found = RunFolder(one / method), RunFolder(two / method)
    adapts = expected.read_result().setting == "adaptation"
    # crossgrad moves images by gradients, which jump where maxima over flat areas are equal
    atol = 1e-3 if method == "crossgrad" else 1e-6
    assert_close(load_file(found.weights("last")), load_file(expected.weights("last")), atol)
    pairs = zip(found.read_metrics(), expected.read_metrics(), strict=True)
    for ours, theirs in pairs:
        assert ours.keys() == theirs.keys()
        numbers = {key: value for key, value in theirs.items() if isinstance(value, float)}
        assert {key: ours[key] for key in numbers} == pytest.approx(numbers, rel=1e-3, abs=1e-5)
        judged = theirs.get("without_labels", {})
        assert ours.get("without_labels", {}) == pytest.approx(judged, rel=1e-3, abs=1e-5)
        assert bool(judged) == (adapts and "validation" in theirs)
    ours, theirs = found.read_result(), expected.read_result()
    for rule, chosen in theirs.rules.items():
        found_temperature = ours.under(rule).temperature
        assert found_temperature == pytest.approx(chosen.temperature, rel=0.05), rule
        for view, domains in chosen.views.items():
            for domain, measured in domains.items():
                same = ours.view(rule, view)[domain]
                assert same.images == measured.images
                assert (same.confusion.sum(axis=1) == measured.confusion.sum(axis=1)).all()
                assert same.accuracy == pytest.approx(measured.accuracy, abs=0.03)
    assert ours.model_copy(update={"rules": {}}) == theirs.model_copy(update={"rules": {}})


def test_a_domain_may_have_fewer_images_than_processes(one: Path, two: Path) -> None:
    expected, found = (
        [record for record in RunFolder(at / SPARSE).read_metrics() if "validation" in record]
        for at in (one, two)
    )
    assert len(found) == len(expected) == 2
    for record in (*expected, *found):
        assert record["validation"].keys() == {"plain", "blended", "coloured"}
        assert record["validation"]["blended"] in (0.0, 1.0)  # one image


@pytest.mark.usefixtures("in_double_precision")
def test_one_process_ends_what_two_began(one: Path, two: Path) -> None:
    folder = RunFolder(two / PAUSED)
    assert not folder.finished
    assert folder.checkpoint.is_file()
    run(experiment("dmg"), folder.path)
    expected = RunFolder(one / "dmg")
    assert_close(load_file(folder.weights("last")), load_file(expected.weights("last")))
    steps = [record["step"] for record in folder.read_metrics()]
    assert steps == [record["step"] for record in expected.read_metrics()]


def test_mistakes_come_back_as_they_are(tmp_path: Path) -> None:
    """An error of a child process reaches the caller as itself, not as a traceback in text."""
    wrong = experiment("dmg", number=2, **{"data.unseen_domain": "sketch"})
    with pytest.raises(SettingsError, match=r"^data\.unseen_domain: unknown domain 'sketch'"):
        run(wrong, tmp_path / "run")


def test_a_batch_that_cannot_be_shared_out_is_refused() -> None:
    chosen = experiment("dmg", number=3)
    with pytest.raises(SettingsError, match=r"among 3 devices; choose a multiple of 3"):
        build_sampler(chosen, None)  # pyright: ignore[reportArgumentType]
