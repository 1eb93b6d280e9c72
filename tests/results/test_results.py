"""Typed results: what they derive, how they are stored, and what a damaged one says."""

import json
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from tests.made_results import counted, made_result

from unseen.errors import SettingsError, UnseenError
from unseen.results.folder import RunFolder
from unseen.results.result import Calibration, DomainResult, RuleResult, RunResult, Views

CLASSES = 345
SKETCH = ("rules", "source", "views", "out_of_domain", "sketch")
TEST_IMAGES = {  # of DomainNet, by its official lists
    "clipart": 14_604,
    "infograph": 15_582,
    "painting": 21_850,
    "quickdraw": 51_750,
    "real": 52_041,
    "sketch": 20_916,
}


def many_classes(images: int, accuracy: float, random: np.random.Generator) -> DomainResult:
    """Mistakes go to all other classes, to some of them more often: most cells are filled."""
    likely = random.gamma(0.5, size=(CLASSES, CLASSES))
    np.fill_diagonal(likely, 0)
    likely *= (1 - accuracy) / likely.sum(axis=1, keepdims=True)
    np.fill_diagonal(likely, accuracy)
    per_class = random.multinomial(images, np.full(CLASSES, 1 / CLASSES))
    confusion = np.stack([random.multinomial(n, p) for n, p in zip(per_class, likely, strict=True)])
    bins = random.multinomial(images, np.full(15, 1 / 15))
    sums = tuple(round(float(n), 6) for n in bins * random.random(15))
    calibration = Calibration(
        images=tuple(bins.tolist()), confidence=sums, correct=tuple((bins // 2).tolist())
    )
    return DomainResult.counted(confusion, calibration)


def large_result() -> RunResult:
    """Three rules that chose three steps, of a method that makes use of the domain."""
    random = np.random.default_rng(0)

    def views() -> Views:
        seen = {name: n for name, n in TEST_IMAGES.items() if name != "quickdraw"}
        return {
            # an unseen domain is tested on all of its images
            "out_of_domain": {"quickdraw": many_classes(172_500, 0.15, random)},
            "in_domain": {name: many_classes(n, 0.6, random) for name, n in seen.items()},
            "known_domain": {name: many_classes(n, 0.65, random) for name, n in seen.items()},
        }

    rules = {
        rule: RuleResult(step=step, views=views())
        for step, rule in enumerate(("oracle", "source", "last"), 1)
    }
    domains = tuple(name for name in TEST_IMAGES if name != "quickdraw")
    return made_result(
        "dmg",
        {},
        results=rules,
        classes=tuple(f"class {number}" for number in range(CLASSES)),
        training_domains=domains,
        unseen_domains=("quickdraw",),
    )


def test_a_result_of_345_classes_takes_less_than_a_megabyte(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    result = large_result()
    folder.write_result(result)
    files = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert set(files) == {"result.json", "confusions.npz"}
    assert sum(files.values()) < 1_000_000
    assert files["result.json"] < 100_000
    lines = folder.result.read_text().splitlines()
    assert len(lines) < 1000, "somebody may want to read it"
    assert folder.read_result() == result


def test_confusions_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    """A report of a thousand runs holds a thousand results at once."""
    folder = RunFolder(tmp_path)
    expected = large_result()
    folder.write_result(expected)
    folder.read_result()
    tracemalloc.start()
    result = folder.read_result()
    held, _ = tracemalloc.get_traced_memory()
    assert held < 500_000
    measured = result.view("source", "out_of_domain")["quickdraw"]
    assert measured.confusion.shape == (CLASSES, CLASSES)
    assert measured.confusion.dtype == np.int64
    assert measured.accuracy == measured.confusion.trace() / measured.confusion.sum()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after < held + 200_000, "it is not kept"


def test_rules_that_chose_one_step_share_their_confusions(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write_result(made_result("dmg", {"sketch": 0.5}, {"photo": 0.9}))
    with np.load(tmp_path / "confusions.npz") as arrays:
        assert len(arrays.files) == 2  # of sketch and of photo, under two rules, in three views


def test_equal_results_make_equal_files(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        RunFolder(tmp_path / name).write_result(made_result("dmg", {"sketch": 0.5}))
    for file in ("result.json", "confusions.npz"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "other" / file).read_bytes()


def test_measures_derive_from_counts() -> None:
    measured = counted([[4, 1, 0], [2, 3, 0], [0, 0, 0]], error=0.125)
    assert (measured.images, measured.correct) == (10, 7)
    assert measured.accuracy == 0.7
    assert measured.calibration_error == pytest.approx(0.125)
    np.testing.assert_array_equal(measured.recall, [0.8, 0.6, np.nan])


def test_calibration_error_weighs_bins_by_images() -> None:
    bins = Calibration(images=(4, 0, 6), confidence=(1.6, 0, 5.4), correct=(2, 0, 5))
    assert bins.error == pytest.approx((0.4 + 0.4) / 10)


def test_views_and_means_are_asked_for_by_name() -> None:
    result = made_result("dmg", {"sketch": 0.5}, {"photo": 0.9, "art": 0.7})
    assert result.mean("source", "in_domain") == pytest.approx(0.8)
    assert list(result.view("last", "out_of_domain")) == ["sketch"]
    with pytest.raises(SettingsError, match=r"unknown view 'indomain'; did you mean 'in_domain'"):
        result.view("source", "indomain")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="the selection rules source, last, and not 'oracle'"):
        result.mean("oracle", "in_domain")
    everywhere = made_result("dmg", {}, {"photo": 0.9})
    assert everywhere.mean("source", "out_of_domain") is None
    assert result.model_copy(update={"seed": 1}) != result
    with pytest.raises(ValueError, match="frozen"):
        result.seed = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (["classes"], None, "result.json is damaged: classes: .*; train the run again"),
        (["seed"], "many", "result.json is damaged: seed: "),
        (["rules", "source", "step"], [], "result.json is damaged: rules.source.step: "),
        ([*SKETCH, "images"], 0, "damaged: rules.source.views.out_of_domain.sketch.images"),
        ([*SKETCH, "calibration", "correct"], [1, 2], "calibration: .* one number for each bin"),
        ([*SKETCH, "calibration", "images"], [0], "calibration: .* no bin has images"),
        (["rules", "source", "views", "elsewhere"], {}, "damaged: rules.source.views.elsewhere"),
    ],
)
def test_a_damaged_result_says_where(
    tmp_path: Path, keys: list[str], value: object, message: str
) -> None:
    folder = RunFolder(tmp_path)
    folder.write_result(made_result("dmg", {"sketch": 0.5}))
    content = json.loads(folder.result.read_text())
    inner = content
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    folder.result.write_text(json.dumps(content))
    with pytest.raises(UnseenError, match=message):
        folder.read_result()


def test_lost_or_damaged_confusions_are_named(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write_result(made_result("dmg", {"sketch": 0.5}))
    measured = folder.read_result().view("source", "out_of_domain")["sketch"]
    file = tmp_path / "confusions.npz"
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(UnseenError, match=r"confusions\.npz is damaged"):
        _ = measured.confusion
    np.savez(file, **{str(number): np.zeros(3) for number in range(9)})
    with pytest.raises(UnseenError, match=r"confusions\.npz is damaged: .* no confusion matrix"):
        _ = measured.confusion
    file.unlink()
    with pytest.raises(UnseenError, match=r"there is no .*confusions\.npz"):
        _ = measured.confusion
    assert measured.accuracy == 0.5, "which does not need them"


def test_a_thousand_results_are_read_without_torch(tmp_path: Path) -> None:
    first = tmp_path / "0"
    first.mkdir()
    RunFolder(first).write_result(made_result("dmg", {"sketch": 0.5}))
    for number in range(1, 1000):
        shutil.copytree(first, tmp_path / str(number), copy_function=shutil.copy)
    program = (
        "import sys, pathlib; from unseen.results.folder import RunFolder;"
        "found = [RunFolder(p).read_result() for p in pathlib.Path(sys.argv[1]).iterdir()];"
        "print(len(found), 'torch' in sys.modules)"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert shown.split() == ["1000", "False"]
