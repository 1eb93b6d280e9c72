"""The hard limits of the house style, and the layers of the design."""

import ast
import shutil
import subprocess
import sys
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


def test_imports_go_one_way() -> None:
    linter = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    if linter is None:
        pytest.skip("import-linter is not installed")
    answer = subprocess.run([linter], cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout
