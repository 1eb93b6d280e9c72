"""The runs whose results `benchmarks.same_results` compares; it starts this in each tree.

Nothing but the public interface of the package is used: the code inside may change altogether.
"""

import json
import re
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from tests.tiny import TINY, save_trunk
from torch.optim.optimizer import register_optimizer_step_post_hook

import unseen

QUIET = Console(quiet=True)
COMMON = TINY | {"checkpoint_every": 3}
FROZEN = {"network.freeze_until": "fc1"}
ADAPTED = {"setting": "adaptation"}
MIXSTYLE = {"augment.mixstyle": 0.5, "augment.mixstyle_stages": "conv2,conv3"}
SWAD = {"averaging.name": "swad", "averaging.valley_start": 2, "evaluate_every": 1}
EVERYTHING = {
    "augment.randaugment": 0.5,
    "augment.random_convolution": 0.5,
    "augment.amplitude_mix": 1.0,
    "augment.erasing": 0.5,
    "label_smoothing": 0.1,
    "optimizer.layer_decay": 0.5,
    **MIXSTYLE,
}
SPECIAL: dict[str, tuple[str, dict[str, Any]]] = {
    "stored features": ("dmg", FROZEN),
    "features computed at every step": ("dmg", FROZEN | {"network.store_features": False}),
    "views": ("aggregate", FROZEN | {"network.views": 2}),
    "head first": ("dmg", {"head_first": True}),
    "head first from features": ("multihead", FROZEN | {"head_first": True}),
    "swad": ("aggregate", SWAD),
    "mean": ("dmg", {"averaging.name": "mean"}),
    "ema": ("metareg", {"averaging.name": "ema", "averaging.decay": 0.8}),
    "mixstyle": ("aggregate", MIXSTYLE),
    "all augmentations": ("dmg", EVERYTHING),
    "batch norm": ("dann", {"network.name": "mnist_cnn"}),
    "pooled": ("dmg", {"sampling": "pooled"}),
    "balanced classes": ("dmg", {"sampling": "class_balanced", "metric": "balanced"}),
    "sgd": ("aggregate", {"optimizer.name": "sgd", "clip_gradient": 0.5, "schedule.warmup": 0.3}),
    "epochs": ("dmg", {"steps": None, "epochs": 0.02, "schedule.name": "cosine"}),
    "oracle": ("dmg", {"selection": "oracle"}),
    "bfloat16": ("dmg", {"precision": "bf16"}),
    "one mask for all": ("dmg", {"method.masks": "shared"}),
    "masks as dropout": ("dmg", {"method.masks": "dropout"}),
    "routed": ("dmg", {"method.prediction": "routed"}),
    "two unseen domains": ("dmg", {"data.unseen_domain": "plain,outlines"}),
    "trained on unseen": ("dmg", {"data.train_on_unseen": True}),
    "dann adapts": ("dann", ADAPTED),
    "cdann adapts": ("cdann", ADAPTED | {"selection": "infomax"}),
    "dsn adapts": ("dsn", ADAPTED | {"selection": "dev"}),
    "coral adapts": ("coral", ADAPTED | {"selection": "snd"}),
    "mmd adapts": ("mmd", ADAPTED | {"selection": "bnm"}),
    "reweighting adapts to two": ("reweighting", {"data.unseen_domain": "plain,outlines"}),
}
STOPPED = "stopped and resumed"
MERGED = "merged"
STACKS = "aggregate", "multihead", "dmg", "fusion", "coral", "irm", "groupdro", "fishr"


def train_all(home: Path, only: str) -> None:
    """All runs with the package that this process imports, into `home`."""
    save_trunk(home / "trunk.safetensors")
    planned = {method: (method, {}) for method in _methods()} | SPECIAL
    for name, (method, changes) in planned.items():
        if only in name:
            _note(home / name, lambda m=method, c=changes, n=name: _fit(home / n, m, c))
    if only in STOPPED:
        _note(home / STOPPED, lambda: _stop_and_resume(home / STOPPED))
    if only in MERGED:
        _note(home / MERGED, lambda: _merge(home / MERGED))
    for method in STACKS:
        if only in (name := f"stack of {method}"):
            _note(home / name, lambda m=method, n=name: _sweep(home / n, m))


def _methods() -> list[str]:
    """The names in the catalog, without other names of the same method."""
    command = [sys.executable, "-m", "unseen", "list", "methods"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.findall(r"^(\w+) +(.*)$", listed, re.MULTILINE)
    return [name for name, text in found if "another name of" not in text]


def _note(folder: Path, work: Callable[[], Any]) -> None:
    """Do it; what goes wrong is written down and compared like a result."""
    folder.mkdir()
    try:
        work()
    except Exception:
        (folder / "error.txt").write_text(traceback.format_exc())
        print(f"{folder.name}: {traceback.format_exc(limit=-1)}", file=sys.stderr)


def _fit(folder: Path, method: str, changes: dict[str, Any]) -> None:
    settings = {key: value for key, value in (COMMON | changes).items() if value is not None}
    unseen.fit(f"digits/{method}", runs=folder, console=QUIET, **settings)


def _stop_and_resume(folder: Path) -> None:
    """An error after the fifth update; then the run goes on from its checkpoint at step 4."""
    updates = []

    def stop(*_: object) -> None:
        updates.append(1)
        if len(updates) == 5:
            raise ArithmeticError("stopped here")

    changes = {"checkpoint_every": 2}
    hook = register_optimizer_step_post_hook(stop)
    try:
        _fit(folder, "dmg", changes)
    except ArithmeticError:
        _fit(folder, "dmg", changes)
    finally:
        hook.remove()
    if len(updates) != 7:  # steps 1 to 5, then 5 and 6
        raise AssertionError(f"{len(updates)} updates in place of 7: it did not resume at step 4")


def _merge(folder: Path) -> None:
    for seed in (0, 1):
        _fit(folder, "dmg", FROZEN | {"seed": seed, "network.pretrained": _trunk(folder)})
    unseen.merge(folder, folder / "merged", console=QUIET)


def _trunk(folder: Path) -> str:
    return str(folder.parent / "trunk.safetensors")


def _sweep(folder: Path, method: str) -> None:
    """Six runs from stored features that train together."""
    settings = COMMON | FROZEN | {"network.pretrained": _trunk(folder)}
    del settings["data.unseen_domain"]
    sweep = {
        "datasets": "digits",
        "methods": method,
        "unseen": "plain,outlines",
        "seeds": [0, 1, 2],
    }
    (folder / "sweep.yaml").write_text(json.dumps(sweep | {"settings": settings}))
    unseen.sweep(folder / "sweep.yaml", runs=folder, console=QUIET)


if __name__ == "__main__":
    train_all(Path(sys.argv[1]), sys.argv[2])
