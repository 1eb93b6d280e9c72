"""The notebooks of the tutorials run from top to bottom, and what they print can be read."""

import os
import re
import sys
from pathlib import Path

import pytest
from tests.docs.markdown_files import ROOT

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
BOOKS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))


@pytest.mark.parametrize("file", BOOKS, ids=lambda file: file.stem)
@pytest.mark.filterwarnings("default")
def test_a_tutorial_runs(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    book = nbformat.read(file, as_version=4)
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(book, timeout=600, kernel_name="python3", resources=where).execute()
    outputs = [each for cell in book.cells for each in cell.get("outputs", ())]
    printed = [each["text"] for each in outputs if each["output_type"] == "stream"]
    assert not re.search(r"\x1b|\r|Warning", "".join(printed)), "progress is lines of text"
    shown = {kind for each in outputs for kind in each.get("data", ())}
    assert shown & {"text/html", "image/svg+xml", "text/plain"}


@pytest.mark.parametrize("file", BOOKS, ids=lambda file: file.stem)
def test_a_tutorial_is_stored_without_outputs_and_its_links_lead_somewhere(file: Path) -> None:
    cells = nbformat.read(file, as_version=4).cells
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
    text = "".join(cell.source for cell in cells if cell.cell_type == "markdown")
    links = re.findall(r"\]\(([^)#]+)", text)
    assert [link for link in links if not (file.parent / link).exists()] == []
