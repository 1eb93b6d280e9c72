"""Event files, read back by TensorBoard's own reader."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from tests.reports.trackers.outcomes import final_accuracy

from unseen.results.folder import RunFolder

pytest.importorskip("tensorboard", reason="the extra 'tensorboard' is not installed")


def read(folder: RunFolder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    place = folder.path.parent / "tensorboard" / folder.path.name
    reader = EventAccumulator(str(place), size_guidance={"scalars": 0, "images": 0, "tensors": 0})
    return reader.Reload()


def assert_complete(folder: RunFolder, recorded: Callable) -> None:
    reader = read(folder)
    found = {
        name: [(event.step, event.value) for event in reader.Scalars(name)]
        for name in reader.Tags()["scalars"]
        if not name.startswith("final/")
    }
    expected = recorded(folder)
    assert set(found) == set(expected)
    for name, values in expected.items():
        assert [step for step, _ in found[name]] == sorted(values), name
        assert dict(found[name]) == pytest.approx(values, rel=1e-6), name
    (final,) = reader.Scalars("final/out_of_domain/outlines/accuracy")
    assert final.step == 6
    assert final.value == pytest.approx(final_accuracy(folder))


def test_everything_arrives(tmp_path: Path, run_with: Callable, recorded: Callable) -> None:
    folder = run_with(tmp_path, ["tensorboard"])
    assert_complete(folder, recorded)
    reader = read(folder)
    texts = {
        name: reader.Tensors(f"{name}/text_summary")[0].tensor_proto.string_val[0].decode()
        for name in ("settings", "result")
    }
    assert "| method/name | dmg |" in texts["settings"]
    assert f"| out_of_domain | outlines | {final_accuracy(folder):.1%} |" in texts["result"]
    (picture,) = reader.Images("confusion-outlines")
    assert Image.open(io.BytesIO(picture.encoded_image_string)).size == (450, 378)


def test_a_crashed_run_is_continued(
    tmp_path: Path, run_with: Callable, crash_once: Callable, recorded: Callable
) -> None:
    """Steps 3 and 4 are trained twice and shown once."""
    crash_once(tmp_path, ["tensorboard"])
    assert_complete(run_with(tmp_path, ["tensorboard"]), recorded)
