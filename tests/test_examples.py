"""Every example runs as it stands, from the folder that a reader would be in."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
TRAINING = [script for script in EXAMPLES if '"--steps"' in script.read_text(encoding="utf-8")]


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_an_example_runs(script: Path, tmp_path: Path) -> None:
    environment = os.environ | {"UNSEEN_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    short = ["--steps", "4"] if script in TRAINING else []
    answer = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:__main__", str(script), *short],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip()
    assert script not in TRAINING or list((tmp_path / "example_runs").glob("*/result.json"))
