"""A classifier that is adapted to images without labels: class centres by hand, and the choice."""

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image
from tests.contract.test_export_of_every_method import in_use

from unseen.automatic import adapt as room
from unseen.automatic.adapt import adapt, class_centres
from unseen.serve.predictor import load


def test_class_centres() -> None:
    """Images at (5, 0) and (0.6, 0.8) are called class 0, whose own weights are (2, 0): the mean of
    three directions is (2.6, 0.8) / 3. Nobody is called class 1, which keeps its direction."""
    weights = np.array([[2.0, 0.0], [0.0, -3.0]])
    features = np.array([[5.0, 0.0], [0.6, 0.8]])
    found = class_centres(weights, features, features @ weights.T)
    centre = np.array([2.6, 0.8]) / np.hypot(2.6, 0.8)
    np.testing.assert_allclose(found, np.array([centre, [0.0, -1.0]]))


def test_the_surest_images_make_a_centre(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_SUREST", 1)
    features = np.array([[3.0, 0.0], [0.6, 0.5]])
    found = class_centres(np.eye(2), features, features)
    np.testing.assert_allclose(found, np.eye(2))


@pytest.mark.parametrize("gain", [0.1, -0.1])
def test_a_model_is_adapted_where_that_helped_on_places_that_were_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gain: float
) -> None:
    random = np.random.default_rng(0)
    files = [tmp_path / f"{number}.png" for number in range(4)]
    for file in files:
        Image.fromarray(random.integers(0, 255, (20, 20, 3), dtype=np.uint8)).save(file)
    (tmp_path / "broken.png").write_bytes(b"no image")
    gains = {"a": gain, "b": gain / 2}
    monkeypatch.setattr(room, "_judged", lambda search: (gains, 2.0))
    nothing, path = cast(Any, None), tmp_path / "adapted"
    model = in_use("aggregate")
    before = model.predict(files)
    found = adapt(nothing, model, [*files, tmp_path / "broken.png"], path)
    assert found is not None
    assert (found.images, found.helps, path.exists()) == (4, gain > 0, gain > 0)
    if found.helps:
        assert "brought +7.5 ± 2.5 points when places that were left out played" in found.text
        adapted = load(path)
        assert adapted.temperature == 2.0
        assert not np.allclose(adapted.predict(files), before)
    else:
        assert "the model stays as it is" in found.text
    assert adapt(nothing, in_use("dmg"), files, path) is None
