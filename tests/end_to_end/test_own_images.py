"""Images of the user's own, from a folder to predictions, and every choice of domains."""

import csv
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

import unseen
from unseen.atomic import read_json
from unseen.cli.main import main
from unseen.errors import DataError, SettingsError

DOMAINS = ("day", "fog", "night")
CLASSES = ("cat", "dog")
PER_CLASS = 12
TINY: dict[str, Any] = {
    "network": {"name": "small_cnn", "image_size": 16, "pretrained": False},
    "steps": 4,
    "images_per_domain": 4,
    "evaluate_every": 2,
    "optimizer": {"lr": 1e-3},
}


def picture(domain: int, label: int, number: int) -> np.ndarray:
    """Cats are bright above, dogs below; a domain has a tint."""
    pixels = np.random.default_rng([domain, label, number]).integers(0, 90, (14, 18, 3))
    half = slice(0, 7) if label == 0 else slice(7, 14)
    pixels[half] += 120
    pixels[..., domain] += 40
    return pixels.clip(0, 255).astype(np.uint8)


def write_pictures(root: Path, domains: tuple[str, ...], classes: tuple[str, ...]) -> Path:
    for d, domain in enumerate(domains):
        for c, name in enumerate(classes):
            (root / domain / name).mkdir(parents=True)
            for number in range(PER_CLASS):
                image = Image.fromarray(picture(d, c, number))
                image.save(root / domain / name / f"{number}.png")
    return root


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pictures(tmp_path_factory.mktemp("pictures"), DOMAINS, CLASSES)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, shared_cache: Path) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNSEEN_CACHE", str(shared_cache))
        yield tmp_path_factory.mktemp("runs")


def fit(recipe: str, runs: Path, data: dict[str, Any], **changes: Any) -> unseen.Run:
    data = {"validation_share": 0.2, "test_share": 0.2} | data
    return unseen.fit(recipe, runs=runs, console=Console(quiet=True), data=data, **TINY, **changes)


@pytest.fixture(scope="module")
def run(pictures: Path, runs: Path) -> unseen.Run:
    """In the precision of which everything afterwards computes, too."""
    data = {"root": str(pictures), "unseen_domain": "night"}
    return fit("folder/dmg", runs, data, precision="bf16")


def test_a_run_knows_its_names(run: unseen.Run) -> None:
    assert run.classes == list(CLASSES)
    assert run.domains == ["day", "fog"]
    assert set(run.accuracy()) == {"night"}
    assert set(run.accuracy("known_domain", rule="last")) == {"day", "fog"}
    with pytest.raises(SettingsError, match=r"unknown view 'indomain'; did you mean 'in_domain'\?"):
        run.accuracy("indomain")
    views = run.result.rules["source"].views
    assert views["out_of_domain"]["night"].images == 2 * PER_CLASS
    counts = read_json(run.folder.data)
    known = (counts[role].values() for role in ("train", "validation", "in_domain"))
    assert sum(map(sum, known)) == 2 * 2 * PER_CLASS
    assert run.evaluate() == views


def test_a_class_of_the_unseen_domain_alone_is_named_and_counted_as_wrong(
    runs: Path, tmp_path: Path
) -> None:
    """The class comes between the others by name; a model that trains on it knows it."""
    root = write_pictures(tmp_path, DOMAINS, CLASSES)
    shutil.copytree(root / "night" / "cat", root / "night" / "crow")
    data = {"root": str(root), "unseen_domain": "night"}
    other = fit("folder/aggregate", runs, data, selection="oracle")
    assert other.classes == list(CLASSES)
    assert other.predict([next(root.rglob("*.png"))]).shape == (1, 2)
    night = other.result.view("oracle", "out_of_domain")["night"]
    assert night.images == 3 * PER_CLASS
    assert night.confusion.sum(axis=1).tolist() == [PER_CLASS] * 3
    assert night.confusion.sum(axis=0)[2] == 0, "no answer names it"
    assert night.correct == night.confusion[[0, 1], [0, 1]].sum()
    assert night.measures["balanced"] == pytest.approx(night.accuracy)
    assert sum(night.calibration.correct) == night.correct
    (remark,) = [text for text in other.result.remarks if "crow" in text]
    assert remark.startswith("12 images of the unseen domain are of classes that no training")
    again = other.evaluate()
    assert again["out_of_domain"]["night"] == night

    known = fit("folder/aggregate", runs, data | {"unseen_domain": "fog"})
    assert known.classes == ["cat", "crow", "dog"]
    assert not any("counts as wrong" in text for text in known.result.remarks)


def test_predictions_from_paths_pictures_and_arrays(run: unseen.Run, pictures: Path) -> None:
    files = sorted((pictures / "night").rglob("*.png"))[:3]
    expected = run.predict(files)
    assert expected.shape == (3, 2)
    np.testing.assert_allclose(expected.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(run.predict([str(file) for file in files]), expected)
    opened = [Image.open(file) for file in files]
    np.testing.assert_array_equal(run.predict(opened), expected)
    arrays = np.stack([np.asarray(image) for image in opened])
    np.testing.assert_array_equal(run.predict(arrays), expected)
    np.testing.assert_array_equal(run.predict(list(arrays)), expected)
    assert run.predict([]).shape == (0, 2)
    with pytest.raises(DataError, match=r"missing\.png cannot be read: No such file"):
        run.predict([pictures / "missing.png"])


def test_a_picture_with_alpha_is_prepared_as_its_file_is(run: unseen.Run, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 4)).astype(np.uint8)
    image = Image.fromarray(pixels)
    image.save(tmp_path / "alpha.png")
    np.testing.assert_array_equal(run.predict([image]), run.predict([tmp_path / "alpha.png"]))


def evaluate(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(["evaluate", *words])
    printed = capsys.readouterr()
    return caught.value.code, printed.out, printed.err


def test_evaluate_on_the_same_and_on_other_images(
    run: unseen.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(run.folder.path)
    assert "Same as the recorded result." in evaluate(capsys, path)[1]
    other = write_pictures(tmp_path / "other", ("dusk",), ("dog",))
    code, out, _ = evaluate(capsys, path, "--data", str(other))
    assert (code, "dusk" in out, "record" in out) == (0, True, False)
    views = run.evaluate(other)
    assert views["in_domain"] == {}
    confusion = views["out_of_domain"]["dusk"].confusion
    assert confusion.sum(axis=1).tolist() == [0, PER_CLASS], "labels are in the run's order"
    write_pictures(tmp_path / "unknown", ("dusk",), ("cat", "horse"))
    for place, message in (
        ("unknown", "classes that the model does not know: horse (it knows cat, dog)"),
        ("nowhere", "does not exist"),
    ):
        code, _, err = evaluate(capsys, path, "--data", str(tmp_path / place))
        assert (code, message in err) == (2, True)


def test_no_unseen_domain_trains_on_all(pictures: Path, runs: Path, capsys) -> None:
    run = fit("folder/aggregate", runs, {"root": str(pictures)})
    assert run.domains == list(DOMAINS)
    assert run.accuracy() == {}
    assert set(run.accuracy("in_domain")) == set(DOMAINS)
    assert "-none-" in run.folder.path.name
    code, out, _ = evaluate(capsys, str(run.folder.path))
    assert (code, "Same as" in out) == (0, True)


def test_one_to_train_on_and_two_or_one_unseen(pictures: Path, runs: Path) -> None:
    """A single training domain has no pairs, so DMG's overlap is zero."""
    run = fit("folder/dmg", runs, {"root": str(pictures), "unseen_domain": ["night", "fog"]})
    assert run.domains == ["day"]
    assert set(run.accuracy()) == {"fog", "night"}
    logged = [record for record in run.folder.read_metrics() if "overlap" in record]
    assert {record["overlap"] for record in logged} == {0.0}
    data = {"root": str(pictures), "unseen_domain": "fog", "training_domains": "day"}
    run = fit("folder/multihead", runs, data)
    assert (run.domains, list(run.accuracy())) == (["day"], ["fog"])


def test_a_manifest(pictures: Path, runs: Path, tmp_path: Path) -> None:
    file = pictures / "list.csv"
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["path", "class", "domain"])
        for image in sorted(pictures.rglob("*.png")):
            domain, name, _ = image.relative_to(pictures).parts
            writer.writerow([image.relative_to(pictures), name, domain])
    run = fit("manifest/dmg", runs, {"root": str(file), "unseen_domain": "day"})
    assert (run.classes, run.domains) == (list(CLASSES), ["fog", "night"])
    assert run.evaluate() == run.result.rules["source"].views
    assert run.evaluate(file)["out_of_domain"].keys() == set(DOMAINS)


def test_hdf5(runs: Path, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    for d, domain in enumerate(("day", "fog")):
        for part in ("train", "val", "test"):
            with h5py.File(tmp_path / f"{domain}_{part}.hdf5", "w") as file:
                file["images"] = np.stack([picture(d, n % 2, n) for n in range(8)])
                file["labels"] = [n % 2 + 1 for n in range(8)]
    options = {"first_label": 1, "class_names": CLASSES, "bgr": True}
    run = fit("hdf5/aggregate", runs, {"root": str(tmp_path), "unseen_domain": "fog"} | options)
    assert (run.classes, run.domains) == (list(CLASSES), ["day"])
    assert run.evaluate() == run.result.rules["source"].views


def test_a_method_of_ones_own(
    pictures: Path, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file, named by its import string: trained, recorded, opened again."""
    (tmp_path / "my_own_method.py").write_text(
        "from unseen import Method\n"
        "from unseen.methods.base import losses\n\n"
        "class Mine(Method):\n"
        "    class Config(Method.Config):\n"
        "        factor: float = 2.0\n\n"
        "    def loss(self, batch, progress):\n"
        "        loss, accuracy = self.classification(self.network(batch.images), batch.labels)\n"
        "        return {'loss': self.config.factor * loss, 'accuracy': accuracy}\n\n"
        "    def predict(self, images, domain=None):\n"
        "        return self.network(images)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    data = {"root": str(pictures), "unseen_domain": "night"}
    method = {"name": "my_own_method:Mine", "factor": 3.0}
    run = fit("folder/aggregate", runs, data, method=method)
    assert run.result.method == "my_own_method:Mine"
    again = unseen.load_run(run.folder.path)
    assert again.experiment.method.model_dump()["factor"] == 3.0
    assert again.evaluate() == run.result.rules["source"].views
    del sys.modules["my_own_method"]


def test_a_place_without_labels_can_be_adapted_to(
    pictures: Path, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = tmp_path / "places"
    shutil.copytree(pictures, places)
    (places / "west").mkdir()
    for file in sorted((places / "night").rglob("*.png")):
        file.rename(places / "west" / f"{file.parent.name}{file.name}")
    shutil.rmtree(places / "night")
    data = {"root": str(places), "unseen_domain": "west"}
    adapted = fit("folder/aggregate", runs, data, setting="adaptation", method={"name": "dann"})
    assert adapted.accuracy() == {}
    assert set(adapted.accuracy("in_domain")) == {"day", "fog"}
    assert adapted.predict(sorted((places / "west").iterdir())).shape == (2 * PER_CLASS, 2)
    found = unseen.compare(
        "folder", runs=runs, methods=["aggregate"], data={"root": str(places)}, **TINY
    )
    assert {run.unseen_domains for run in found.results} == {("day",), ("fog",)}
    code, _, said = evaluate(capsys, str(adapted.folder.path), "--data", str(places))
    assert code == 2
    assert "has no labels in west" in said
