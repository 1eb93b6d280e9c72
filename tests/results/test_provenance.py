"""The recorded commit is that of this package's source, or none."""

import shutil
import subprocess
from pathlib import Path

import pytest

from unseen.results import folder
from unseen.results.folder import source_commit

PLACE = Path("src/unseen/results/folder.py")


def git(folder: Path, *words: str) -> str:
    name = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    command = ["git", *name, *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Somebody's project, with one commit."""
    git(tmp_path, "init", "-q")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "theirs"\n')
    (tmp_path / ".gitignore").write_text(".venv\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "theirs")
    return tmp_path


def put(module: Path) -> Path:
    module.parent.mkdir(parents=True)
    shutil.copy(folder.__file__, module)
    return module


@pytest.mark.parametrize(
    "place",
    [
        ".venv/lib/python3.11/site-packages/unseen/records/provenance.py",
        "untracked/unseen/records/provenance.py",
        str(PLACE),
    ],
)
def test_an_installed_package_has_no_commit_inside_another_repository(
    repository: Path, place: str
) -> None:
    assert source_commit(put(repository / place)) is None


def test_a_copy_that_another_repository_keeps_has_no_commit(repository: Path) -> None:
    module = put(repository / "vendored" / "unseen" / "records" / "provenance.py")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "a copy")
    assert source_commit(module) is None


def test_the_source_tree_has_its_commit(repository: Path) -> None:
    module = put(repository / PLACE)
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "the package")
    assert source_commit(module) == git(repository, "rev-parse", "HEAD").strip()


def test_outside_of_all_repositories_there_is_no_commit(tmp_path: Path) -> None:
    assert source_commit(put(tmp_path / PLACE)) is None


def test_without_git_there_is_no_commit(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = put(repository / PLACE)
    git(repository, "add", ".")
    monkeypatch.setenv("PATH", "")
    assert source_commit(module) is None
