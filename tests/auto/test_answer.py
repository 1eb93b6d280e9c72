"""The answer to a question about images: its sentences, numbers, page and commands."""

import json
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from unseen.automatic.answer import FILE, PAGE, REFERENCES, Answer
from unseen.automatic.budget import Clock
from unseen.automatic.choice import SAME_RUNS, Choice, Expectation, expect
from unseen.automatic.run import auto, conclude, write
from unseen.automatic.search import Search
from unseen.automatic.subject import open_subject
from unseen.cli.main import main
from unseen.errors import SettingsError, UnseenError
from unseen.results.folder import find_runs
from unseen.sweeps.cost import ImageTimes

TINY = {"network.image_size": 16, "images_per_domain": 2, "log_every": 100}
TINY |= {"devices.accelerator": "cpu"}
SMALL = {"network.name": "small_cnn", "network.pretrained": "false"}


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> Answer:
    """Of a search whose clock stands still: two places, two candidates, 40 steps and some more."""
    return searched(tmp_path_factory.mktemp("auto"))


def searched(home: Path) -> Answer:
    settings = TINY | {"data.training_domains": "plain,blended"}
    subject = open_subject("digits", "outlines", settings)
    clock, pace = Clock(24.0, now=lambda: 0.0), ImageTimes(0.02, 1e-4)
    quiet = Console(quiet=True)
    search = Search(subject, home, clock, quiet, workers=0, measure=lambda *about: pace)
    search.run()
    return write(conclude(search))


def test_a_search_ends_with_a_model_its_references_and_an_answer(answer: Answer) -> None:
    assert min(steps for _, steps in answer.tried) == 40
    assert answer.expectation.kind == "chosen by the same runs"
    assert set(answer.expectation.by_place) == {"plain", "blended"}
    result = answer.run.result
    assert result.training_domains == ("plain", "blended")
    assert list(answer.kept_out) == ["outlines"]
    references = list(find_runs(answer.home / REFERENCES))
    assert {run.read_result().unseen_domains for run in references} == {("plain",), ("blended",)}
    assert {run.read_result().method for run in references} == {result.method}
    told = json.loads((answer.home / FILE).read_text())
    assert told["text"] == answer.lines()
    assert told["expectation"]["mean"] == answer.expectation.mean
    page = (answer.home / PAGE).read_text()
    assert "was chosen without it" not in page  # the same runs chose and measured
    assert "At a new place expect" in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_the_same_search_again_trains_nothing_and_answers_the_same(answer: Answer) -> None:
    results = {run.path: run.result.stat().st_mtime_ns for run in find_runs(answer.home / "runs")}
    again = searched(answer.home)
    assert again.lines() == answer.lines()
    after = {run.path: run.result.stat().st_mtime_ns for run in find_runs(answer.home / "runs")}
    assert after == results


def test_the_model_predicts_and_the_commands_name_it(answer: Answer) -> None:
    image = np.zeros((1, 16, 16, 3), dtype=np.uint8)
    assert answer.model.predict(image).shape == (1, 10)
    assert all(str(answer.home) in command for command in answer.commands.values())


def test_a_table_and_a_notebook_show_it(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    frame = answer.to_frame()
    assert list(frame["mean"]) == sorted(frame["mean"], reverse=True)
    assert list(frame["chosen"]).count(True) == 1
    assert answer.lines()[0] in answer._repr_html_()
    assert "a new place" in answer.plot()._repr_svg_()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UnseenError, match=r"unseen\[pandas\]"):
        answer.to_frame()


def nested(**by_place: float) -> Expectation:
    return expect(by_place, dict.fromkeys(by_place, ("copies", 300)), "nested")


CLEAR = Choice(("copies", 300), 0.7, ("copies", 300), 0, 0)
CLOSE = Choice(("copies", 300), 0.7, ("masks", 300), 0.004, 0.006)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"expectation": nested(photo=0.9, art=0.7, cartoon=0.6, sketch=0.6)},
            "At a new place expect 70 % (47 to 93; accuracy, 4 places left out in turn).",
        ),
        (
            {"expectation": nested(photo=0.9, art=0.8, sketch=0.6)},
            "Hardest: sketch, 60 %. No label of a place had a part in the choice that was measured "
            "on it. With three places these choices were made by models of one place each.",
        ),
        ({"expectation": nested(photo=0.99, art=0.97)}, "98 % (82 to 100; accuracy, 2 places"),
        ({}, "with two places none is left to choose by"),
        (
            {"expectation": expect({"a": 0.5, "b": 0.6, "c": 0.7}, {}, SAME_RUNS)},
            "no time to choose for each place",
        ),
        (
            {"expectation": nested(photo=0.9, art=0.7), "plain": nested(photo=0.8, art=0.7)},
            "same rules: 75 % (+5.0 ± 63.5 points for the choice, paired by place).",
        ),
        (
            {"choice": CLEAR},
            "Chosen: copies, 300 steps: the best on the places that were left out. Tried: 2 "
            "candidates, 48 runs, 18 minutes.",
        ),
        (
            {"choice": CLOSE},
            "the simplest that is not worse by more than noise than the best, masks (0.4 points, "
            "one standard error is 0.6). Tried: 2 candidates",
        ),
        (
            {"expectation": nested(photo=0.9, art=0.8, sketch=0.6)},
            "sketch is unlike the other places, 25 points below their mean: labelled images of",
        ),
        ({"images": {"3": 100, "8": 12}}, "Few images: 12 of 8 in all places together."),
        ({"problems": ("it diverged", "too")}, "A run failed: it diverged\n"),
    ],
)
def test_sentences(answer: Answer, changes: dict, said: str) -> None:
    tried = {(name, 300): {"a": 0.5} for name in ("copies", "masks")}
    base = {"plain": None, "tried": tried, "minutes": 17.6, "runs": 48}
    assert said in "\n".join([*replace(answer, **base | changes).lines(), ""])


def test_own_images_are_looked_at_first_and_copies_are_kept_together(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """An image that lies in both places, re-encoded, is no image of a new place; there is no time
    at all, and an answer nevertheless."""
    random, root, home = np.random.default_rng(0), tmp_path / "images", tmp_path / "answer"
    for place, name, number in product("ab", ("one", "two"), range(12)):
        folder = root / place / name
        folder.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 255, (64, 64, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    Image.open(root / "a/one/0.png").save(root / "b/one/again.bmp")
    settings = [f"{key}={value}" for key, value in (TINY | SMALL).items()]
    words = ["auto", str(root), "--minutes", "0.001", "-o", str(home), "--workers", "0"]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--for", str(root / "a/two"), *settings])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert "Faults in the images: copies between domains (1)" in told
    assert "On the 12 new images expect" in told
    assert "Adapting the classifier to new images brought" in told
    groups = (home / "copies.csv").read_text()
    assert "a/one/0.png" in groups
    assert "b/one/again.bmp" in groups
    settled = [run.read_settings()["data"]["group"] for run in find_runs(home / "runs")]
    assert set(settled) == {str(home / "copies.csv")}


def test_the_command_takes_settings_and_names_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["auto", "digits", "-o", str(tmp_path), "data.training_domains=plain"])
    assert ended.value.code == 2
    assert "only one domain with labels (plain)" in capsys.readouterr().err


def test_seeds_are_read_as_those_of_comparisons(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="seeds are numbers such as 0,1,2 or 0-4, got 'two'"):
        auto("digits", minutes=1, seeds="0,two", output=tmp_path)
