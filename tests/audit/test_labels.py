import zlib
from pathlib import Path

import numpy as np
from tests.audit.conftest import scene


def features(name: str) -> np.ndarray:
    """What is shown (the name of the file says it) and noise, in another place in each domain."""
    domain, _, file = name.split("/")
    values = np.random.default_rng(zlib.crc32(name.encode())).normal(size=8)
    values[:6] += 10.0 * ("dog" in file)
    return values + 5.0 * (domain == "south")


def mislabel(root: Path, names: list[str]) -> None:
    for file in root.rglob("*.png"):
        file.rename(file.with_name(f"{file.parent.name}{file.name}"))
    for name in names:
        other = "dog" if "cat" in name else "cat"
        (root / name).rename((root / name).parents[1] / other / Path(name).name)


def test_labels_that_others_speak_against(scans: Path, look) -> None:
    mislabel(scans, ["north/cat/cat03.png", "south/dog/dog07.png"])
    report = look(scans, features)
    found = report.of("probably wrong labels")
    assert {report.names[each.rows[0]]: each.caption for each in found.examples} == {
        "north/dog/cat03.png": "dog, or cat?",
        "south/cat/dog07.png": "cat, or dog?",
    }
    assert "labels" in report.checked


def test_a_copy_is_not_predicted_from_its_twin(scans: Path, look) -> None:
    """Both have the same wrong label, and would speak for each other."""
    mislabel(scans, ["north/cat/cat03.png"])
    (scans / "north/dog/cat03b.png").write_bytes((scans / "north/dog/cat03.png").read_bytes())

    def with_own_mark(name: str) -> np.ndarray:
        twins = name.startswith("north/dog/cat03")
        return np.append(features(name.replace("03b", "03")), 30.0 * twins)

    report = look(scans, with_own_mark)
    found = report.of("probably wrong labels")
    assert {report.names[each.rows[0]] for each in found.examples} == {
        "north/dog/cat03.png",
        "north/dog/cat03b.png",
    }


def test_a_class_that_is_not_recalled(scans: Path, look) -> None:
    """Birds look like cats and dogs; each is called one of them."""
    for domain in ("north", "south"):
        for number in range(12):
            (scans / domain / "bird").mkdir(exist_ok=True)
            what = "dog" if number % 2 else "cat"
            picture = scene(900 + number + 50 * (domain == "north"))
            picture.save(scans / domain / "bird" / f"{what}x{number}.png")
    mislabel(scans, [])
    report = look(scans, lambda name: features(name.replace("bird/bird", "bird/")))
    text = report.of("classes that are not recalled").text
    assert "hardly ever recognises these classes: bird (0%)" in text


def test_maps_are_pooled(scans: Path, look) -> None:
    mislabel(scans, ["north/cat/cat03.png"])
    found = look(scans, lambda name: np.tile(features(name), (2, 2, 1))).of("probably wrong labels")
    assert found.count == 1
