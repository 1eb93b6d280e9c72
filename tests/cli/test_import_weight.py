"""Commands that read no image start fast: they load no torch."""

import subprocess
import sys

HEAVY = ("torch", "torchvision", "timm", "lightning_fabric", "sklearn", "scipy")

CODE = """
import contextlib, io, sys
from unseen.cli.main import main
for words in {commands!r}:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        main(words.split())
    loaded = [name for name in {heavy!r} if name in sys.modules]
    if loaded or not out.getvalue():
        sys.exit(f"unseen {{words}} loads {{loaded}}, prints {{out.getvalue()!r}}")
"""


def test_no_torch_for_help_lists_and_copies(tmp_path) -> None:
    """In one process, one command after the other: none of them may load anything heavy."""
    commands = [
        "--help",
        *(f"list {kind}" for kind in ("methods", "datasets", "backbones", "recipes", "sweeps")),
        *(
            f"{name} --help"
            for name in (
                "show",
                "copy",
                "train",
                "compare",
                "sweep",
                "evaluate",
                "prepare",
                "predict",
                "export",
                "serve",
            )
        ),
        f"copy digits/dmg {tmp_path}/mine.yaml",
    ]
    code = CODE.format(commands=commands, heavy=HEAVY)
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
