"""What a package index and a new machine see of the package."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]


def test_the_readme_of_a_package_index_has_no_link_into_the_repository() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for rule in project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(rule["pattern"], rule["replacement"], text)
    assert re.findall(r"\]\((?!https?:)[^)]*\)", text) == []
    assert "# unseen" in text
    assert "https://arxiv.org" in text


def test_actions_are_pinned_by_commit() -> None:
    for file in (ROOT / ".github" / "workflows").glob("*.yml"):
        jobs = yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"].values()
        used = [step["uses"] for job in jobs for step in job["steps"] if "uses" in step]
        assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", each) for each in used), file.name


def test_make_says_that_python_is_too_old(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.6\nexit 1\n')
    old.chmod(0o755)
    program = ["make", "demo", f"PYTHON={old}"]
    answer = subprocess.run(
        program, cwd=tmp_path, capture_output=True, text=True, check=False, env=os.environ
    )
    assert answer.returncode == 2
    assert f"unseen needs Python 3.11 or newer; {old} is Python 3.9.6" in answer.stdout
    assert "make demo PYTHON=python3.12" in answer.stdout
    assert not (tmp_path / ".venv").exists()
