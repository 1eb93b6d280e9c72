"""Commands that read no image start fast, and mistakes are told at once: without torch."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from unseen.cli.main import COMMANDS

HEAVY = ("torch", "torchvision", "timm", "lightning_fabric", "sklearn", "scipy")
CODE = """
import contextlib, io, json, sys
from unseen.cli.main import main
for words, expected in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        with contextlib.suppress(SystemExit):
            main(words.split())
    said = out.getvalue() + err.getvalue()
    loaded = [name for name in json.loads(sys.argv[2]) if name in sys.modules]
    if loaded or expected not in said:
        sys.exit(f"unseen {words} loads {loaded}, says {said!r}")
"""
LISTED = {"methods": "dmg", "datasets": "digits", "backbones": "", "recipes": "", "sweeps": ""}


def test_no_torch_for_help_lists_recipes_and_mistakes(tmp_path: Path) -> None:
    """In one process, one command after the other: none of them may load anything heavy."""
    hint = "did you mean 'digits/dmg'?"
    commands = [
        ("--help", "COMMAND"),
        *((f"list {kind}", found) for kind, found in LISTED.items()),
        *((f"{name} --help", f"usage: unseen {name}") for name in COMMANDS),
        ("show digits/dmg seed=3", "seed: 3"),
        ("show digits/dmg --save mine.yaml", "Wrote mine.yaml"),
        ("completion words -- train digits/", "digits/dmg"),
        ("trian", "did you mean 'train'?"),
        ("show digits/dgm", hint),
        ("train digits/dgm", hint),
        ("train digits/dmg stps=3", "did you mean 'steps'?"),
        ("train digits/dmg --resume", "leave out --resume"),
        ("compare digits --methods dgm", hint),
        ("compare pacs_resnet50 --methods agregate_views", "'pacs_resnet50/aggregate_views'?"),
        ("compare digits stps=3", "did you mean 'steps'?"),
        ("sweep digits methods=dgm", hint),
        ("sweep digits search=optimizer.rate", "search.optimizer.rate: unknown setting"),
        ("sweep digits --address x", "add --on ray"),
    ]
    words = [sys.executable, "-c", CODE, json.dumps(commands), json.dumps(HEAVY)]
    answer = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize("command", ["list", "compare", "predict"])
def test_a_command_loads_only_itself(command: str) -> None:
    called = f"parse({[command, '--help']})"
    parsed = f"with open('/dev/null', 'w') as sys.stdout, suppress(SystemExit): {called}"
    listed = "sys.exit(' '.join(sorted(m for m in sys.modules if m.startswith('unseen.cli.'))))"
    imports = "import sys; from contextlib import suppress; from unseen.cli.main import parse"
    words = [sys.executable, "-c", f"{imports}\n{parsed}\n{listed}"]
    answer = subprocess.run(words, capture_output=True, text=True, check=False)
    own = {"unseen.cli.main", "unseen.cli.shared", f"unseen.cli.{COMMANDS[command][0]}"}
    assert set(answer.stderr.split()) == own
