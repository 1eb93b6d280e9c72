"""The manifest that examples/long_tail.py makes of a balanced folder."""

import csv
import importlib.util
from collections import Counter
from pathlib import Path

import pytest

from unseen.data.dataset import open_dataset
from unseen.data.roles import choose_roles
from unseen.settings.recipes import load_experiment

SCRIPT = Path(__file__).parents[1] / "examples" / "long_tail.py"


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, str]]]:
    """Two domains of five classes with 100 images each, or half as many."""
    folder = tmp_path_factory.mktemp("long_tail")
    for domain, number in (("east", 100), ("west", 50)):
        for name in "abcde":
            home = folder / "images" / domain / name
            home.mkdir(parents=True)
            for count in range(number):
                (home / f"{count}.png").touch()
    spec = importlib.util.spec_from_file_location("long_tail", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.write_manifest(folder / "images", folder / "list.csv")
    first = (folder / "list.csv").read_bytes()
    script.write_manifest(folder / "images", folder / "list.csv")
    assert (folder / "list.csv").read_bytes() == first
    with (folder / "list.csv").open(newline="") as file:
        return folder / "list.csv", list(csv.DictReader(file))


def test_training_images_fall_to_a_twentieth_in_the_same_order_everywhere(rows) -> None:
    for domain in ("east", "west"):
        own = [row for row in rows[1] if row["domain"] == domain and row["split"] != "test"]
        counts = Counter(row["class"] for row in own)
        first = counts["a"]
        expected = [first * 20 ** (-rank / 4) for rank in range(5)]
        assert [counts[name] for name in "abcde"] == pytest.approx(expected, abs=1)
        assert all(
            {"train", "validation"} <= {r["split"] for r in own if r["class"] == n} for n in "abcde"
        )


def test_test_images_are_as_balanced_as_the_folder(rows) -> None:
    tested = Counter((r["domain"], r["class"]) for r in rows[1] if r["split"] == "test")
    assert all(20 <= tested["east", name] <= 40 for name in "abcde")
    names = [row["path"] for row in rows[1]]
    assert len(set(names)) == len(names)


def test_both_ways_to_train_are_measured_on_the_same_images(rows) -> None:
    """Those of the unseen domain that the manifest tests on."""
    found = []
    for changes in ({}, {"metric": "balanced", "sampling": "class_balanced"}):
        given = {"data.root": str(rows[0]), "data.unseen_domain": "west"} | changes
        experiment = load_experiment("manifest/aggregate", given)
        index = open_dataset(experiment.data).index()
        roles = choose_roles(index, experiment.data)
        found.append(sorted(index.names[row] for row in roles.out_of_domain["west"]))
    tested = [r["path"] for r in rows[1] if r["split"] == "test" and r["domain"] == "west"]
    assert found == [sorted(tested)] * 2
