"""The budgets of the whole house (`tests/house.py`), names, functions, and the layers."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.house import BUDGETS, LONGEST_FUNCTION, counts, function_lengths, source_files

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def counted() -> dict[str, int]:
    return counts(ROOT)


@pytest.mark.parametrize("figure", BUDGETS)
def test_the_house_keeps_its_budget(figure: str, counted: dict[str, int]) -> None:
    """`make figures` shows all of them; `tests/house.py` says when a budget may be raised."""
    assert counted[figure] <= BUDGETS[figure]


def test_names_of_files_say_what_is_in_them() -> None:
    names = {"utils", "misc", "common", "helpers"}
    assert [file for file in source_files(ROOT) if file.stem in names] == []


def test_functions_are_read_at_a_glance() -> None:
    lengths = {
        f"{f.name}: {n}": k for f in source_files(ROOT) for n, k in function_lengths(f).items()
    }
    assert [name for name, lines in lengths.items() if lines > LONGEST_FUNCTION] == []


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
