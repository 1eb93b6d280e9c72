import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.audit.conftest import scene

from unseen.cli.main import main


@pytest.fixture
def prepare(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Runs the command; its exit code and what it printed."""

    def prepare(root: Path, *words: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(["prepare", "folder", "--root", str(root), "--size", "96", *words])
        code = ended.value.code
        return (code if isinstance(code, int) else 0), capsys.readouterr().out

    return prepare


def test_findings_are_printed_and_written(scans: Path, prepare, tmp_path: Path) -> None:
    scene(1).save(scans / "south/cat/copy.jpg", quality=60)
    page, groups = (tmp_path / name for name in ("audit.html", "copies.csv"))
    code, text = prepare(scans, "-o", str(page), "--groups", str(groups))
    assert code == 0
    assert "Copies between domains: 1 pairs of images are the same" in text
    content = json.loads(prepare(scans, "--json")[1])
    [finding] = content["findings"]
    assert finding["kind"] == "copies between domains"
    assert finding["examples"][0]["images"] == ["north/cat/00.png", "south/cat/copy.jpg"]
    assert content["groups"] == dict.fromkeys(finding["examples"][0]["images"], "north/cat/00.png")
    assert groups.read_text().splitlines() == [
        "path,group",
        "north/cat/00.png,north/cat/00.png",
        "south/cat/copy.jpg,north/cat/00.png",
    ]
    written = page.read_text()
    assert written.count("data:image/jpeg;base64") == 2
    assert "north/cat/00.png = south/cat/copy.jpg" in written
    assert "http" not in written.replace("http-equiv", "").replace("http://www.w3.org", "")
    assert prepare(scans, "--strict")[0] == 1


def test_nothing_is_said_where_nothing_is_wrong(scans: Path, prepare, tmp_path: Path) -> None:
    code, text = prepare(scans, "--strict", "-o", str(tmp_path / "audit.html"))
    assert code == 0
    assert "Nothing was found. Looked at: files, folders" in text
    page = (tmp_path / "audit.html").read_text()
    assert "Nothing was found" in page
    assert "scans · 96 images" in page
    assert "Labels are checked with --labels." in page


@pytest.mark.parametrize("words", ["--labels network.pretrained=false", "--address there"])
def test_options_that_need_another_one(scans: Path, prepare, words: str) -> None:
    code, _ = prepare(scans, *words.split())
    assert code == 2
