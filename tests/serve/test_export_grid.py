"""Parity of exported files for the methods and networks of the paper, on PACS."""

from pathlib import Path

import pytest
from tests.serve.models import make_model

from unseen.serve.export import export

NETWORKS = {"alexnet": 96, "resnet18": 96, "efficientnet_lite0": 96}


@pytest.mark.slow
@pytest.mark.parametrize("to", ["onnx", "torch"])
@pytest.mark.parametrize("method", ["aggregate", "multihead", "dmg"])
@pytest.mark.parametrize("network", NETWORKS)
def test_parity_on_pacs(
    network: str, method: str, to: str, real_data: Path, tmp_path: Path
) -> None:
    data = {"name": "pacs", "root": str(real_data / "PACS")}
    model = make_model(method, network, NETWORKS[network], data)
    file = tmp_path / ("model.onnx" if to == "onnx" else "model.pt2")
    exported = export(model, "onnx" if to == "onnx" else "torch", file)
    assert exported.compared_on == "images of pacs"
    print(f"{network} {method} {to}: {exported.difference:.1e}")


@pytest.mark.slow
@pytest.mark.parametrize("network", ["vit_tiny_patch16_224", "timm:mobilenetv3_small_050"])
def test_other_networks_can_be_exported(network: str, tmp_path: Path) -> None:
    model = make_model("dmg", network, 224 if "vit" in network else 64)
    assert export(model, "onnx", tmp_path / "model.onnx").difference < 1e-4
