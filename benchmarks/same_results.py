"""Proof that a change of the code changed no result.

    python -m benchmarks.same_results OLD_ROOT NEW_ROOT [--only WORD] [--keep FOLDER]

The runs of `benchmarks/same_runs.py` (every method, and what the settings can switch on) are
trained for a few steps by each of two trees, in one process of its own. Then all numbers in their
weights, results, records and arrays are compared; the exit code is 1 where anything differs.
Runs that train as a stack may differ by `STACKED`. `--keep FOLDER` keeps what the old tree
computed, and takes it from there the next time.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

HERE = Path(__file__).parents[1]
STACKED = 1e-5  # largest difference of a number, relative where it is above 1
STACKED_HALF = 2e-3  # the same of numbers with 16 bits: two of the last of them
IGNORED = {"format", "run", "data", "identity", "provenance", "timing", "seconds", "version"}


def run_folders(home: Path) -> dict[str, Path]:
    """Runs by name, without the letters that stand for their settings."""
    found = {}
    for file in sorted(home.glob("*/**/result.json")):
        name = re.sub(r"-[0-9a-f]{12}$", "", file.parent.relative_to(home).as_posix())
        found[name] = file.parent
    return found


def numbers(value: Any, path: str = "") -> Iterator[tuple[str, float | None]]:
    """All numbers below a value with the path to each; the paths of other values with None."""
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, below in pairs:
            if key not in IGNORED:
                yield from numbers(below, f"{path}.{key}")
    else:
        yield path, float(value) if isinstance(value, int | float) else None


def compare(old: dict[str, Any], new: dict[str, Any], stacked: bool) -> tuple[bool, str]:
    """Whether tensors or numbers by name are equal, and what is different."""
    odd = sorted(old.keys() ^ new.keys())
    found = {key: _difference(old[key], new[key]) for key in old.keys() & new.keys()}
    told = [f"{len(odd)} missing or new: {', '.join(odd[:3])}"] if odd else []
    if any(found.values()):
        where = max(sorted(found), key=found.__getitem__)
        told.append(f"{found[where]:.2g} ({where})")
    equal = all(found[key] <= _allowed(old[key], stacked) for key in found)
    return equal and not odd, "; ".join(told) or "equal"


def _allowed(value: Any, stacked: bool) -> float:
    half = getattr(value, "dtype", None) == np.float16
    return (STACKED_HALF if half else STACKED) if stacked else 0.0


def _difference(old: Any, new: Any) -> float:
    if old is None or new is None:
        return 0.0 if old is new else float("inf")
    one, other = (np.asarray(value) for value in (old, new))
    if one.shape != other.shape or one.dtype != other.dtype:
        return float("inf")
    if one.tobytes() == other.tobytes():
        return 0.0
    one, other = one.astype(float), other.astype(float)
    return float(np.nan_to_num(abs(one - other) / np.maximum(1, abs(one)), nan=np.inf).max())


def read_weights(run: Path) -> dict[str, np.ndarray]:
    found = {}
    for file in sorted((run / "weights").glob("*.safetensors")):
        for name, tensor in load_file(file).items():
            exact = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
            found[f"{file.stem}: {name}"] = exact.numpy()
    return found


def read_result(run: Path) -> dict[str, Any]:
    return dict(numbers(json.loads((run / "result.json").read_text())))


def read_log(run: Path) -> dict[str, Any]:
    file = run / "metrics.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return dict(numbers([json.loads(line) for line in lines]))


def read_arrays(run: Path) -> dict[str, Any]:
    """Pictures, profile, confusions and what else a run keeps in npz files."""
    loaded = {file.stem: np.load(file) for file in sorted(run.glob("*.npz"))}
    found = {f"{stem}: {key}": file[key] for stem, file in loaded.items() for key in file.files}
    return {key: array for key, array in found.items() if array.dtype.kind in "biuf"}


READERS = {
    "weights": read_weights,
    "result": read_result,
    "log": read_log,
    "arrays": read_arrays,
}


def rows(old: Path, new: Path) -> Iterator[tuple[bool, list[str]]]:
    """For each run whether it is the same, and the cells of the table."""
    before, after = run_folders(old), run_folders(new)
    for name in dict.fromkeys([*before, *after]):
        stacked = name.startswith("stack of")
        sides = [side.get(name) for side in (before, after)]
        if None in sides:
            gone = "old" if sides[0] is None else "new"
            yield False, [name, f"no run in the {gone} tree", *[""] * (len(READERS) - 1)]
            continue
        found = [compare(*map(read, sides), stacked) for read in READERS.values()]
        yield all(same for same, _ in found), [name, *(text for _, text in found)]
    for file in sorted({*old.glob("*/error.txt"), *new.glob("*/error.txt")}):
        tree = "old" if file.is_relative_to(old) else "new"
        last = file.read_text().strip().splitlines()[-1]
        yield False, [file.parent.name, f"failed in the {tree} tree: {last}"]


def run_tree(root: Path, home: Path, only: str) -> None:
    """Train all runs with the package of a tree, with empty caches; `home` is there at the end."""
    part = home.with_name(f"{home.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as caches:
        chosen = {"PYTHONPATH": str(root.resolve() / "src"), "OMP_NUM_THREADS": "1"}
        chosen |= {"UNSEEN_CACHE": caches}
        call = [sys.executable, "-m", "benchmarks.same_runs", str(part.resolve()), only]
        subprocess.run(call, cwd=HERE, env=os.environ | chosen, check=True)
    part.rename(home)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.same_results")
    parser.add_argument("old", type=Path, metavar="OLD_ROOT")
    parser.add_argument("new", type=Path, metavar="NEW_ROOT")
    parser.add_argument("--only", default="", metavar="WORD", help="runs with this in the name")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="of the old tree's results")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        old, new = chosen.keep or Path(name) / "old", Path(name) / "new"
        if not old.exists():
            run_tree(chosen.old, old, "" if chosen.keep else chosen.only)
        run_tree(chosen.new, new, chosen.only)
        found = [(s, row) for s, row in rows(old, new) if chosen.only in row[0]]
    print("| " + " | ".join(["run", *READERS]) + " |\n|" + " --- |" * (len(READERS) + 1))
    print("\n".join(f"| {' | '.join(row)} |" for _, row in found))
    different = sum(not same for same, _ in found)
    print(f"\n{len(found)} runs, {different} different")
    sys.exit(1 if different or not found else 0)  # nothing compared proves nothing


if __name__ == "__main__":
    main()
