"""The hard limits of the house style, and the layers of the design."""

import ast
import io
import re
import shutil
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "src").rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(ROOT / "src").as_posix())
def test_a_file_is_one_idea_of_a_readable_size(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.count("\n") <= 300
    assert file.stem not in {"utils", "misc", "common", "helpers"}
    functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef)]
    too_long = [f.name for f in functions if (f.end_lineno or 0) - f.lineno >= 40]
    assert too_long == []


METHODS = ROOT / "src/unseen/methods"  # as many files as papers
FOLDERS = sorted({file.parent for file in FILES} - {METHODS})


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_folder_can_be_taken_in_at_a_glance(folder: Path) -> None:
    files = [file.name for file in folder.glob("*.py") if file.name != "__init__.py"]
    assert len(files) <= 14, files


@pytest.mark.parametrize(("name", "most"), [("methods/base.py", 60), ("methods/dmg.py", 120)])
def test_what_everybody_reads_first_is_short(name: str, most: int) -> None:
    """Lines of code: neither blank, nor comments, nor docstrings."""
    text = (ROOT / "src/unseen" / name).read_text(encoding="utf-8")
    layout = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    spans = [(t.start[0], t.end[0]) for t in tokens if t.type not in layout and t.string]
    lines = {line for first, last in spans for line in range(first, last + 1)}
    texts = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Expr)]
    docstrings = [n for n in texts if isinstance(n.value, ast.Constant)]
    for node in docstrings:
        lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    assert len(lines) <= most


def test_no_file_knows_one_machine() -> None:
    """No absolute paths of somebody's machine; the imaginary /home/somebody may be named."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("not a git repository")
    machine = re.compile(rb"/(?:work|root|Users|tmp/trees)/|/home/(?!somebody\b)\w")
    files = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    files = [file for file in files if file.is_file() and file != Path(__file__)]
    found = [file for file in files if machine.search(file.read_bytes())]
    assert found == []


def test_imports_go_one_way() -> None:
    linter = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    if linter is None:
        pytest.skip("import-linter is not installed")
    answer = subprocess.run([linter], cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout
