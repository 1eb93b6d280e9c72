"""`unseen forecast` from end to end: references, files, page, JSON, ONNX."""

import json
import shutil
from pathlib import Path

import pytest
from tests.forecast.conftest import KNOWN, UNSEEN, Story

import unseen
from unseen.cli.main import main
from unseen.errors import UnseenError
from unseen.forecast.estimate import NAMES
from unseen.results.folder import RunFolder
from unseen.serve.evaluate import read_references


def call(*words: object) -> object:
    with pytest.raises(SystemExit) as ended:
        main(["forecast", *map(str, words)])
    return ended.value.code


def test_references_know_no_more_than_the_model_and_answers_are_kept(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    model = unseen.load(story.model, "cpu")
    first = read_references(story.references, model, said.append, "cpu")
    assert len(said) == 3
    assert {each.domain for each in first} == set(KNOWN)
    for each in first:
        result = RunFolder(story.references / each.run).read_result()
        assert UNSEEN not in result.training_domains
        assert result.method == "dmg"
        recorded = result.view(result.selection, "out_of_domain")[each.domain].accuracy
        assert each.accuracy == recorded
        assert set(each.gaps) == set(NAMES)
    monkeypatch.setattr(unseen.Model, "from_run", lambda *_: pytest.fail("opened again"))
    again = read_references(story.references, model, said.append, "cpu")
    assert again == first


def test_a_folder_without_references_is_refused_with_the_reason(story: Story) -> None:
    model = unseen.load(story.model, "cpu")
    model.kind = ("multihead", "small_cnn")
    with pytest.raises(UnseenError, match=r"multihead on small_cnn.*Found 5 finished runs \(agg"):
        read_references(story.references, model, lambda text: None)
    with pytest.raises(UnseenError, match="no folder"):
        read_references(story.references / "nothing", model, lambda text: None)


def test_terminal_page_and_json(
    story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (story.model, story.images, "--reference", story.references, "--device", "cpu")
    assert call(*words, "-o", tmp_path / "page.html") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert call(*words, "--json") == 0
    content = json.loads(capsys.readouterr().out)
    guess, low, high = (f"{100 * content[key]:.0f}" for key in ("accuracy", "low", "high"))
    assert f"Best guess: {guess} % of the predictions on these 60 images are right" in out
    assert f"80 % interval {low} to {high}" in out
    assert "Calibrated on 3 runs" in out
    assert "What to do" in out
    assert content["images"] == 60
    assert len(content["outliers"]) == 20
    assert {each["domain"] for each in content["references"]} == set(KNOWN)
    assert content["low"] <= content["accuracy"] <= content["high"]
    text = (tmp_path / "page.html").read_text().replace("http://www.w3.org", "")
    assert text.count("data:image/") == 20
    assert "http://" not in text
    assert "https://" not in text


def test_an_unreadable_file_is_named_and_the_others_count(
    story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(story.images, tmp_path / "images")
    (tmp_path / "images" / "broken.png").write_text("no image")
    assert call(story.model, tmp_path / "images", "--device", "cpu") == 1
    captured = capsys.readouterr()
    assert "broken.png is not a readable image" in captured.err
    assert "60 images" in captured.out
    assert "Without references" in " ".join(captured.out.split())


def test_a_saved_model_and_an_onnx_file_do_as_well(story: Story, tmp_path: Path) -> None:
    run = unseen.load_run(story.model)
    run.model.save_pretrained(tmp_path / "saved")
    file = run.export(tmp_path / "model.onnx")
    made = [
        unseen.forecast_accuracy(path, [story.images], story.references, device="cpu").forecast
        for path in (story.model, tmp_path / "saved", file)
    ]
    assert made[1].accuracy == pytest.approx(made[0].accuracy, abs=1e-4)
    names = [{each.name for each in each.estimates} for each in made]
    assert names[0] - names[2] == {"class separation", "neighbours"}
    for one, other in zip(made[0].estimates, made[2].estimates, strict=False):
        assert other.plain == pytest.approx(one.plain, abs=2 / 60)
    assert made[2].differences is not None
    assert made[2].differences.measured_by == "image statistics"
    (tmp_path / "saved" / "profile.npz").unlink()
    with pytest.raises(UnseenError, match="holds no profile"):
        unseen.forecast_accuracy(tmp_path / "saved", [story.images], device="cpu")
