"""The commands `predict` and `export`: what they print, where, and how they end."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.commands import commands_in
from tests.serve.models import CLASSES, DOMAINS, make_model

from unseen.serve.model import Model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "dmg"
    make_model("dmg").save_pretrained(folder)
    make_model("aggregate").save_pretrained(folder.parent / "aggregate")
    return folder


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """In a folder with `photos/a.png`, `photos/below/b.jpg` and what is no image."""
    (tmp_path / "photos" / "below").mkdir(parents=True)
    (tmp_path / "photos" / ".hidden").mkdir()
    for number, name in enumerate(("a.png", "below/b.jpg", ".hidden/c.png")):
        pixels = np.random.default_rng(number).integers(0, 256, (30, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / name)
    (tmp_path / "photos" / "notes.txt").write_text("no image")
    (tmp_path / "empty").mkdir()

    return commands_in(tmp_path, capsys, monkeypatch)


def expected(model: Path, names: list[str], domain: str | None = None) -> np.ndarray:
    return Model.from_pretrained(str(model)).predict(names, domain)


NAMES = ["photos/a.png", "photos/below/b.jpg"]


def test_json(command, model: Path) -> None:
    answer = command("predict", str(model), "photos", "--format", "json", "--top", "2")
    assert (answer.code, answer.err) == (0, "")
    found = json.loads(answer.out)
    probabilities = expected(model, NAMES)
    assert [each["image"] for each in found] == NAMES
    for each, row in zip(found, probabilities, strict=True):
        best = row.argsort()[::-1][:2]
        assert [guess["class"] for guess in each["top"]] == [CLASSES[i] for i in best]
        assert [guess["probability"] for guess in each["top"]] == pytest.approx(row[best], abs=1e-5)
        assert list(each["opinions"]) == list(DOMAINS)
        assert all(len(opinion) == 2 for opinion in each["opinions"].values())
        assert 0 < each["disagreement"] < 1


def test_csv(command, model: Path) -> None:
    answer = command("predict", str(model), "photos", "--format", "csv", "--top", "9")
    rows = list(csv.DictReader(io.StringIO(answer.out)))
    probabilities = expected(model, NAMES)
    assert [row["image"] for row in rows] == NAMES
    for row, values in zip(rows, probabilities, strict=True):
        assert row["class_1"] == CLASSES[values.argmax()]
        # there are seven classes, so that is what a top nine has
        total = sum(float(row[f"probability_{rank}"]) for rank in range(1, 8))
        assert total == pytest.approx(1, abs=1e-4)
        assert "class_8" not in row
        assert row["photo_class"] in CLASSES
    known = expected(model, NAMES, "photo")
    found = [float(row["photo_probability"]) for row in rows]
    assert found == pytest.approx(known.max(axis=1), abs=1e-5)


def test_a_table_for_people(command, model: Path) -> None:
    answer = command("predict", str(model), "photos/a.png", "--top", "1")
    heading, line = answer.out.splitlines()
    assert heading.split() == ["image", "most", "likely", *DOMAINS, "disagreement"]
    values = expected(model, ["photos/a.png"])[0]
    best = CLASSES[values.argmax()]
    assert line.startswith(f"photos/a.png  {best} {values.max():.1%}  ")
    place = heading.index("art")
    assert line[place - 2 : place] == "  "
    assert line[place:].startswith(line.split()[3])


def test_a_known_domain_in_a_file(command, model: Path, tmp_path: Path) -> None:
    words = ("predict", str(model), "photos", "--format", "json", "--domain", "cartoon")
    answer = command(*words, "-o", "answers/found.json")
    assert (answer.code, answer.out) == (0, "")
    found = json.loads((tmp_path / "answers" / "found.json").read_text())
    top = [each["top"][0]["probability"] for each in found]
    assert top == pytest.approx(expected(model, NAMES, "cartoon").max(axis=1), abs=1e-5)
    assert all("opinions" not in each for each in found)


def test_a_model_without_opinions(command, model: Path) -> None:
    answer = command("predict", str(model.parent / "aggregate"), "photos/a.png", "--format", "csv")
    assert answer.out.splitlines()[0] == (
        "image,class_1,probability_1,class_2,probability_2,class_3,probability_3"
    )


def test_unreadable_images_are_named_and_left_out(command, model: Path, tmp_path: Path) -> None:
    (tmp_path / "photos" / "bad.png").write_bytes(b"no picture")
    answer = command("predict", str(model), "photos", "--format", "csv", "--batch", "1")
    assert answer.code == 1
    assert [line.split(",")[0] for line in answer.out.splitlines()] == ["image", *NAMES]
    assert answer.err == (
        "photos/bad.png is not a readable image: its bytes are in no known image format\n"
        "1 of 3 images were left out\n"
    )


def test_patterns_single_files_and_repeats(command, model: Path, tmp_path: Path) -> None:
    words = [str(tmp_path / "photos" / "*.png"), "photos/*", "photos/**/*.jpg", "photos/a.png"]
    answer = command("predict", str(model), *words, "--format", "csv", "--top", "1")
    names = [line.split(",")[0] for line in answer.out.splitlines()[1:]]
    a, b = NAMES
    assert names == [str(tmp_path / a), a, b, b, a]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("{model} empty", "empty holds no images; expected files that end in .jpg"),
        ("{model} nowhere.png", "there is no file or folder nowhere.png"),
        ("{model} *.gif", "there is no file or folder *.gif, and nothing matches it"),
        ("{model} photos/*.txt", "photos/*.txt holds no images"),
        ("{model} photos --domain foto", "unknown training domain 'foto'; did you mean 'photo'?"),
        ("{model} photos --top 0", "argument --top: should be 1 or more, got 0"),
        ("{model} photos --batch -1", "argument --batch: should be 1 or more, got -1"),
        ("{model} photos --device abacus", "the device 'abacus' cannot be used"),
        ("empty photos", "empty is not a model; expected a run folder"),
        ("nowhere photos", "there is no model nowhere"),
        ("photos/notes.txt photos", "photos/notes.txt is not a model"),
        ("{model}", "the following arguments are required: IMAGES"),
    ],
)
def test_mistakes_in_predict(command, model: Path, words: str, message: str) -> None:
    answer = command("predict", *words.format(model=model).split())
    assert answer.code == 2
    assert message in answer.err
    assert answer.out == ""


def test_heatmaps_are_written_beside_the_answers(command, model: Path, tmp_path: Path) -> None:
    """Image, answer and three domains, one beside the other; an exported file cannot tell."""
    answer = command("predict", str(model), "photos", "--heatmaps", "looked", "--top", "1")
    assert (answer.code, len(answer.out.splitlines()) >= 2) == (0, True)
    about = f"looked: image, answer, {', '.join(DOMAINS)}, from left to right"
    assert about in " ".join(answer.err.split())
    names = ["00000_a.png", "00001_b.png"]
    assert sorted(file.name for file in (tmp_path / "looked").iterdir()) == names
    with Image.open(tmp_path / "looked" / names[0]) as strip:
        assert strip.width == (2 + len(DOMAINS)) * strip.height
        pixels = np.asarray(strip)
    assert (pixels[:, : strip.height] != pixels[:, strip.height : 2 * strip.height]).any()
    pytest.importorskip("onnxruntime")
    assert command("export", str(model), "--to", "onnx", "-o", "model.onnx").code == 0
    answer = command("predict", "model.onnx", "photos", "--heatmaps", "looked")
    assert answer.code == 2
    assert "heatmaps need gradients, which an exported file does not have" in answer.err


def test_export_tells_what_it_compared(command, model: Path, tmp_path: Path) -> None:
    answer = command("export", str(model), "--to", "torch", "-o", "here/small.pt2")
    assert answer.code == 0
    first, second = answer.out.splitlines()
    assert first.startswith("here/small.pt2 (")
    assert first.endswith(" MB), card: here/small.pt2.md")
    assert second.startswith("Largest difference from the model's probabilities: ")
    assert second.endswith(" (allowed: 0.0001; 96 predictions on made-up images)")
    assert 0 < float(second.split()[6]) < 2e-5
    assert {path.name for path in (tmp_path / "here").iterdir()} == {"small.pt2", "small.pt2.md"}
    again = command("export", "here/small.pt2", "--to", "onnx")
    assert again.code == 2
    assert "here/small.pt2 is a file of torch.export, which unseen writes but does not" in again.err
    assert command("predict", "here/small.pt2", "photos").code == 2
