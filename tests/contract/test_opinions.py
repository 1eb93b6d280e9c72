"""Opinions: what a method would say if each training domain were the known one."""

from typing import Any

import pytest
import torch
from tests.contract.test_methods_contract import TASK, batch

from unseen.methods.base import DomainAware, Progress
from unseen.networks.backbones import build_network
from unseen.settings import catalog
from unseen.settings.experiment import NetworkSettings

FORMS: list[tuple[str, dict[str, Any]]] = [
    *((n, {}) for n in catalog.METHODS if issubclass(catalog.load("method", n), DomainAware)),
    ("dmg", {"prediction": "routed", "uniform_share": 0.25}),
    ("dmg", {"gates": "unit"}),
    ("multihead", {"split": "fc1"}),
    ("fusion", {"fuse": "probabilities"}),
]


def make(name: str, options: dict[str, Any]) -> DomainAware:
    torch.manual_seed(0)
    network = build_network(NetworkSettings(name="small_cnn", image_size=16), len(TASK.classes))
    kind = catalog.load("method", name)
    method = kind(network, TASK, kind.Config(name=name, **options)).eval()
    with torch.no_grad():
        for tensor in method.parameters():
            tensor.add_(0.5 * torch.randn_like(tensor))
        method.loss(batch(), Progress(0, 1))  # some remember what they saw
    return method


@pytest.mark.usefixtures("in_double_precision")
@pytest.mark.parametrize(("name", "options"), FORMS, ids=str)
@torch.no_grad()
def test_opinions_are_the_answers_for_known_domains_in_one_pass(
    name: str, options: dict[str, Any]
) -> None:
    method = make(name, options)
    images = batch().images
    found = method.opinions(images)
    expected = torch.stack([method.predict(images, domain) for domain in range(3)])
    assert found.shape == (3, len(images), 3)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(found[0], found[1])
    unknown = method.predict(images)
    scores, same = method.scores_and_opinions(images)
    torch.testing.assert_close(scores, unknown, rtol=1e-4, atol=1e-4)
    assert torch.equal(same, found)
    passes: list[int] = []
    method.network.stage("conv1").register_forward_hook(lambda *_: passes.append(1))
    for ask in (method.opinions, method.predict, lambda given: method.predict(given, 1)):
        ask(images)
        assert len(passes) == 1, "the trunk runs once"
        passes.clear()
