"""`head_first`: the classifier that a run starts with, for every method, wherever it is trained."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.tiny import STILL, tiny, train

from unseen.data.batch import Task
from unseen.errors import SettingsError
from unseen.networks.digits import small_cnn
from unseen.networks.stages import classifier_inputs, linear_classifier, set_classifier
from unseen.settings import catalog
from unseen.settings.experiment import NetworkSettings
from unseen.training import first_pass
from unseen.training.build import build_method
from unseen.training.first_pass import Examples

TASK = Task(tuple("0123456789"), ("blended", "coloured", "plain"))
WITH_OWN_CLASSIFIER = ("importance",)


def examples(features: list[list[float]], labels: list[int], counts: list[float]) -> Examples:
    return Examples(
        torch.tensor(features, dtype=torch.float64),
        torch.tensor(labels),
        torch.tensor(counts, dtype=torch.float64),
    )


def test_two_points_by_hand() -> None:
    """x = ±1 in two classes: by symmetry scores are ±w x, and -2 σ(-2w) + 2 · penalty · w = 0."""
    own = examples([[1.0], [-1.0]], [0, 1], [0.5, 0.5])
    found = first_pass.fit(own, 0.1, torch.zeros(2, 2, dtype=torch.float64))
    w = found[0, 0].item()
    assert found[0, 1].item() == pytest.approx(-w, abs=1e-5)
    assert torch.sigmoid(torch.tensor(-2 * w)).item() == pytest.approx(0.1 * w, abs=1e-5)


def test_domains_weigh_the_same() -> None:
    """Nothing but a bias to learn: class 1 has a third of one domain and all of the other one,
    which has a single image; the chances that fit are the means over domains."""
    own = examples([[0.0]] * 4, [0, 0, 1, 1], [1 / 6, 1 / 6, 1 / 6, 1 / 2])
    found = first_pass.fit(own, 0.1, torch.zeros(2, 2, dtype=torch.float64))
    assert found[-1].softmax(dim=0).tolist() == pytest.approx([1 / 3, 2 / 3], abs=1e-5)


def test_validation_chooses_the_penalty() -> None:
    training = examples([[1.0], [-1.0]], [0, 1], [0.5, 0.5])
    agreeing = examples([[1.0]], [0], [1.0])
    contrary = examples([[1.0]], [1], [1.0])
    assert first_pass.choose_penalty(training, agreeing, 2)[1] == min(first_pass.PENALTIES)
    assert first_pass.choose_penalty(training, contrary, 2)[1] == max(first_pass.PENALTIES)


def test_the_layer_is_found_and_set() -> None:
    network = small_cnn(NetworkSettings(name="small_cnn", image_size=16), 10)
    features = torch.rand(3, 128)
    assert torch.equal(classifier_inputs(network, features), features)
    weight, bias = torch.rand(10, 128), torch.rand(10)
    set_classifier(network, weight, bias)
    torch.testing.assert_close(network.run(features, since="fc2"), features @ weight.T + bias)
    assert torch.equal(linear_classifier(network).weight, weight)


@pytest.mark.parametrize("method", [*catalog.METHODS])
def test_every_method_starts_from_it_or_says_why_not(method: str) -> None:
    experiment = tiny(f"digits/{method}", head_first=True, **adapting(method))
    fitted = {"weight": torch.rand(10, 128), "bias": torch.rand(10)}
    if method in WITH_OWN_CLASSIFIER:
        with pytest.raises(SettingsError, match="has one of its own; leave out head_first"):
            build_method(experiment, TASK)
        return
    built = build_method(experiment, TASK._replace(target="outlines"), fitted)
    alike = [p for p in built.parameters() if p.shape[-2:] == (10, 128)]
    assert any(torch.equal(p, fitted["weight"].expand_as(p)) for p in alike)


def adapting(method: str) -> dict[str, Any]:
    wish = catalog.load("method", method).traits.target_images
    return {"setting": "adaptation"} if wish in ("required", "dataset_pass") else {}


@pytest.mark.parametrize("recipe", ["aggregate", "multihead"])
def test_a_run_begins_where_the_fit_ended(recipe: str, tmp_path: Path) -> None:
    """With steps that hardly move anything, it predicts far better than by chance."""
    changes = {"network__freeze_until": "fc1", **STILL}
    run = train(tiny(f"digits/{recipe}", head_first=True, **changes), tmp_path / "run")
    fitted = load_file(run.head)
    for name, tensor in load_file(run.weights("last")).items():
        if name.endswith("fc2.weight"):
            torch.testing.assert_close(tensor, fitted["weight"])
    result = run.read_result()
    accuracy = result.mean("last", "in_domain")
    assert accuracy is not None
    assert accuracy > 0.4
    without = train(tiny(f"digits/{recipe}", **changes), tmp_path / "without").read_result()
    assert (without.mean("last", "in_domain") or 0) < 0.2


def test_a_resume_takes_the_head_that_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = tiny(head_first=True)
    folder = train(experiment, tmp_path / "run")
    before = folder.weights("last").read_bytes()
    folder.result.unlink()
    monkeypatch.setattr(first_pass, "fit_head", None)  # would fail if it were called
    assert train(experiment, tmp_path / "run").weights("last").read_bytes() == before


def test_the_unseen_domain_is_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[str] = []
    original = first_pass._examples

    def watched(network: Any, stored: Any, rows_of: Any, by_class: bool) -> Any:
        looked_at.extend(
            stored.index.domains[d]
            for rows in rows_of.values()
            for d in stored.index.domain_of[rows]
        )
        return original(network, stored, rows_of, by_class)

    monkeypatch.setattr(first_pass, "_examples", watched)
    train(tiny(head_first=True, steps=1), tmp_path / "run")
    assert set(looked_at) == {"blended", "coloured", "plain"}
