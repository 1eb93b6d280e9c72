"""Typed results: what they derive, how they are stored, and what a damaged one says."""

import json
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from tests.made_results import counted, made_result

from unseen.errors import SettingsError, UnseenError
from unseen.results.folder import RunFolder
from unseen.results.result import Calibration, RuleResult, RunResult, Views
from unseen.settings.experiment import Metric

# 60 of 70, 6 of 20 and 1 of 10 recognised; nothing is known about the fourth class, but three
# images are called it.
SKEWED = [[60, 6, 2, 2], [13, 6, 0, 1], [8, 1, 1, 0], [0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("metric", "expected", "largest"),
    [
        ("accuracy", 67 / 100, 70 / 100),
        ("balanced", (60 / 70 + 6 / 20 + 1 / 10) / 3, 1 / 3),
        # answers: 81 times the first class, 13 the second, 3 the third
        ("macro_f1", (2 * 60 / 151 + 2 * 6 / 33 + 2 * 1 / 13) / 3, 2 * 70 / (70 + 100) / 3),
    ],
)
def test_measures_by_hand(metric: Metric, expected: float, largest: float) -> None:
    """Every class that has images counts the same, but for accuracy."""
    measured = counted(SKEWED)
    assert measured.measures[metric] == pytest.approx(expected)
    assert measured.always_largest[metric] == pytest.approx(largest)


def test_measures_derive_from_counts() -> None:
    measured = counted([[4, 1, 0], [2, 3, 0], [0, 0, 0]], error=0.125)
    assert (measured.images, measured.correct, measured.accuracy) == (10, 7, 0.7)
    assert measured.calibration_error == pytest.approx(0.125)
    np.testing.assert_array_equal(measured.recall, [0.8, 0.6, np.nan])
    never_answered = counted([[3, 0], [1, 0]])
    assert never_answered.measures["macro_f1"] == pytest.approx(2 * 3 / (3 + 4) / 2)
    bins = Calibration(images=(4, 0, 6), confidence=(1.6, 0, 5.4), correct=(2, 0, 5))
    assert bins.error == pytest.approx((0.4 + 0.4) / 10), "bins weigh by their images"


def test_formulas_agree_with_scikit_learn() -> None:
    from sklearn.metrics import balanced_accuracy_score, f1_score

    draws = np.random.default_rng(0)
    true, called = draws.choice(5, 400, p=[0.6, 0.2, 0.1, 0.07, 0.03]), draws.integers(0, 5, 400)
    called = np.where(draws.random(400) < 0.6, true, called)
    confusion = np.zeros((5, 5), dtype=np.int64)
    np.add.at(confusion, (true, called), 1)
    measures = counted(confusion).measures
    assert measures["balanced"] == pytest.approx(balanced_accuracy_score(true, called))
    assert measures["macro_f1"] == pytest.approx(f1_score(true, called, average="macro"))


def test_views_and_means_are_asked_for_by_name() -> None:
    result = made_result("dmg", {"sketch": 0.5}, {"photo": 0.9, "art": 0.7})
    assert result.mean("source", "in_domain") == pytest.approx(0.8)
    assert list(result.view("last", "out_of_domain")) == ["sketch"]
    with pytest.raises(SettingsError, match=r"unknown view 'indomain'; did you mean 'in_domain'"):
        result.view("source", "indomain")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="the selection rules source, last, and not 'oracle'"):
        result.mean("oracle", "in_domain")
    assert made_result("dmg", {}, {"photo": 0.9}).mean("source", "out_of_domain") is None
    assert result.model_copy(update={"seed": 1}) != result
    with pytest.raises(ValueError, match="frozen"):
        result.seed = 3  # type: ignore[misc]


CLASSES = 345


@pytest.fixture(scope="module")
def large() -> RunResult:
    """Three rules that chose three steps, of a method that makes use of the domain, on DomainNet:
    mistakes go to all other classes, to some of them more often, so most cells are filled."""
    random = np.random.default_rng(0)

    def domain(images: int, accuracy: float) -> np.ndarray:
        likely = random.gamma(0.5, size=(CLASSES, CLASSES))
        np.fill_diagonal(likely, 0)
        likely *= (1 - accuracy) / likely.sum(axis=1, keepdims=True)
        np.fill_diagonal(likely, accuracy)
        return np.stack([random.multinomial(images // CLASSES, shares) for shares in likely])

    seen = {
        **{"clipart": 14_604, "infograph": 15_582, "painting": 21_850},
        **{"real": 52_041, "sketch": 20_916},
    }

    def views() -> Views:
        return {
            # an unseen domain is tested on all of its images
            "out_of_domain": {"quickdraw": counted(domain(172_500, 0.15))},
            "in_domain": {name: counted(domain(n, 0.6)) for name, n in seen.items()},
            "known_domain": {name: counted(domain(n, 0.65)) for name, n in seen.items()},
        }

    rules = {rule: RuleResult(step=1, views=views()) for rule in ("oracle", "source", "last")}
    names = tuple(f"class {number}" for number in range(CLASSES))
    return made_result(
        "dmg", {"quickdraw": 0}, dict.fromkeys(seen, 0.0), 0, (), rules, classes=names
    )


def test_a_result_of_345_classes_is_small_on_disk_and_in_memory(
    large: RunResult, tmp_path: Path
) -> None:
    """A report of a thousand runs holds a thousand results at once: confusions are read when they
    are asked for, and not kept."""
    folder = RunFolder(tmp_path)
    folder.write_result(large)
    files = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert set(files) == {"result.json", "confusions.npz"}
    assert sum(files.values()) < 1_000_000
    assert files["result.json"] < 100_000
    assert len(folder.result.read_text().splitlines()) < 1000, "somebody may want to read it"
    assert folder.read_result() == large
    tracemalloc.start()
    result = folder.read_result()
    held, _ = tracemalloc.get_traced_memory()
    measured = result.view("source", "out_of_domain")["quickdraw"]
    assert (measured.confusion.shape, measured.confusion.dtype) == ((CLASSES, CLASSES), np.int64)
    assert measured.accuracy == measured.confusion.trace() / measured.confusion.sum()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 500_000
    assert after < held + 200_000


def test_measures_are_read_without_the_counts(tmp_path: Path) -> None:
    views: Views = {"out_of_domain": {"sketch": counted(SKEWED)}}
    rules = {"source": RuleResult(step=1, views=views)}
    folder = RunFolder(tmp_path)
    folder.write_result(made_result("dmg", {"sketch": 0.0}, results=rules, metric="balanced"))
    (tmp_path / "confusions.npz").unlink()
    found = folder.read_result()
    assert found.mean("source", "out_of_domain") == counted(SKEWED).measures["balanced"]
    assert found.mean("source", "out_of_domain", "accuracy") == 0.67
    for name in ("one", "other"):  # equal confusions share a place, equal results make equal files
        (tmp_path / name).mkdir()
        RunFolder(tmp_path / name).write_result(made_result("dmg", {"sketch": 0.5}, {"photo": 0.9}))
    for file in ("result.json", "confusions.npz"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "other" / file).read_bytes()
    with np.load(tmp_path / "one" / "confusions.npz") as arrays:
        assert len(arrays.files) == 2  # of sketch and of photo, under two rules, in three views


SKETCH = ("rules", "source", "views", "out_of_domain", "sketch")


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
    content = inner = json.loads(folder.result.read_text())
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
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(UnseenError, match=r"confusions\.npz is damaged"):
        _ = measured.confusion
    np.savez(file, **{str(number): np.zeros(3) for number in range(9)})
    with pytest.raises(UnseenError, match=r"confusions\.npz is damaged: .* no confusion matrix"):
        _ = measured.confusion
    file.unlink()
    with pytest.raises(UnseenError, match=r"there is no .*confusions\.npz"):
        _ = measured.confusion
    assert measured.accuracy == 0.5, "which does not need them"


def test_results_are_read_without_torch(tmp_path: Path) -> None:
    RunFolder(tmp_path).write_result(made_result("dmg", {"sketch": 0.5}))
    program = (
        "import sys, pathlib; from unseen.results.folder import RunFolder;"
        "RunFolder(pathlib.Path(sys.argv[1])).read_result(); print('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert shown.strip() == "False"
