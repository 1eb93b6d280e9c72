"""How preparing, starting and stepping grow with the number of images.

python -m benchmarks.growth [10000 100000 1000000]: makes so many tiny JPEG files (hard links to 200
different pictures) as domain/class/*, and a manifest of them, in a temporary folder that is removed
afterwards; a number is left out when it would take longer than --minutes. Every row is a process of
its own; times are seconds of processor, which other work on the machine changes little, and memory
is the peak beyond that of a process that imports the same.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from math import log10
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from unseen.reports.figures.charts import Line, axis_around, curve_chart
from unseen.reports.figures.figure import Figure
from unseen.reports.figures.svg import Drawing, Key

DOMAINS, CLASSES, PICTURES, SIDE = 4, 50, 200, 32
MEASURE = """
import json, resource, sys, time
from pathlib import Path
import numpy as np, torch, PIL.JpegImagePlugin
from unseen.data.datasets.folder import Folder, Manifest
from unseen.data.prepare import prepare
from unseen.data.roles import choose_roles
from unseen.data.sampling import Sampler

def peak():
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024

kind, root, every_file = sys.argv[1], sys.argv[2], sys.argv[3] == "prepare"
before = peak()
torch.arange(10)
start = time.process_time()
kind = {"folder": Folder, "manifest": Manifest}[kind]
config = kind.Config(name="growth", root=root, unseen_domain=("d0",), cache="encoded")
dataset = kind(config, Path(root))
prepared = prepare(dataset, 32, every_file=every_file)
seconds, memory = time.process_time() - start, peak() - before
roles = choose_roles(prepared.index, dataset.config)
sampler = Sampler(list(roles.train.values()), 16, "balanced", 0)
sampler.positions(0)
started = time.process_time() - start
begin = time.process_time()
for step in range(1, 101):
    prepared.batch(sampler.positions(step)[0])
step = (time.process_time() - begin) / 100
print(json.dumps({"images": len(prepared.index), "seconds": seconds, "until a step": started,
                  "MB": memory, "ms a step": 1000 * step}))
"""


def make(root: Path, number: int) -> None:
    """Make the files; a link to a picture is as good as a file, and takes no room."""
    pictures = []
    for each in range(PICTURES):
        pixels = np.random.default_rng(each).integers(0, 256, (4, 4, 3), dtype=np.uint8)
        file = root / "pictures" / f"{each}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).resize((SIDE, SIDE)).save(file, quality=90)
        pictures.append(os.fspath(file))
    lines = ["path,class,domain"]
    for place in range(DOMAINS * CLASSES):
        domain, name = f"d{place % DOMAINS}", f"c{place // DOMAINS:02d}"
        folder = root / "folder" / domain / name
        folder.mkdir(parents=True)
        for each in range(place, number, DOMAINS * CLASSES):
            source = pictures[each % PICTURES]
            copy = f"{source}.{each // 50_000}"  # a file has at most 65,000 names
            if not os.path.exists(copy):  # noqa: PTH110
                shutil.copyfile(source, copy)
            os.link(copy, f"{folder}/{each:07d}.jpg")
            lines.append(f"folder/{domain}/{name}/{each:07d}.jpg,{name},{domain}")
    (root / "list.csv").write_text("\n".join(lines) + "\n")


def measured(kind: str, root: Path, what: str, cache: Path) -> dict[str, float]:
    """Run one start in a process of its own."""
    command = [sys.executable, "-c", MEASURE, kind, os.fspath(root), what]
    environment = os.environ | {"UNSEEN_CACHE": os.fspath(cache)}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("numbers", nargs="*", type=int, default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--figure", type=Path, help="draw what was measured to this SVG file")
    parser.add_argument("--only", choices=("folder", "manifest"), help="not both")
    parser.add_argument("--minutes", type=float, default=20, help="stop before it takes longer")
    chosen = parser.parse_args()
    begin, last = time.monotonic(), 0.0
    rows: list[Row] = []
    print("| images | from | prepare s | MB | prepare again s | start s | MB | step ms |")
    print("|---:|---|---:|---:|---:|---:|---:|---:|")
    for number in chosen.numbers:
        if time.monotonic() - begin + 10 * last > 60 * chosen.minutes:
            print(f"left out: {number:,} images would take longer than {chosen.minutes:g} minutes")
            break
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="unseen-growth-") as temporary:
            root = Path(temporary)
            make(root, number)
            time.sleep(3)  # folders that have just changed are not trusted
            for kind, place in (("folder", root / "folder"), ("manifest", root / "list.csv")):
                if chosen.only not in (None, kind):
                    continue
                first, again = (measured(kind, place, "prepare", root / "cache") for _ in range(2))
                start = [measured(kind, place, "start", root / "cache") for _ in range(2)][1]
                times = first["seconds"], first["MB"], again["seconds"], start["until a step"]
                rows.append(Row(number, kind, *times, start["MB"], start["ms a step"]))
                text = " | ".join(f"{value:,.2f}" for value in rows[-1][2:])
                print(f"| {number:,} | {kind} | {text} |", flush=True)
        last = time.monotonic() - started
    if chosen.figure:
        chosen.figure.write_text(figure(rows).draw().as_file(), encoding="utf-8")


class Row(NamedTuple):
    images: int
    kind: str
    prepare: float
    prepare_memory: float
    again: float
    start: float
    start_memory: float
    step: float


def figure(rows: list[Row]) -> Figure:
    """Draw seconds of processor and memory by number of images, the growth of a folder."""

    def place(row: Row, field: str) -> tuple[float, float]:
        return log10(row.images), log10(max(getattr(row, field), 0.01))

    def panel(title: str, label: str, names: dict[str, tuple[int, str]]) -> Drawing:
        folders = [row for row in rows if row.kind == "folder"]
        lines = [
            Line(name, color, tuple(place(row, field) for row in folders))
            for name, (color, field) in names.items()
        ]
        x = axis_around([point[0] for line in lines for point in line.points], "images, 10ˣ")
        y = axis_around([point[1] for line in lines for point in line.points], f"{label}, 10ʸ")
        keys = tuple(Key(line.label, line.color, "line") for line in lines)
        return curve_chart(title, lines, x, y, dots=True)._replace(keys=keys)

    again, run = "prepare again", "start of a run"
    seconds = {"prepare": (0, "prepare"), again: (1, "again"), run: (2, "start")}
    memory = {"prepare": (0, "prepare_memory"), run: (2, "start_memory")}
    panels = (panel("Time", "seconds of processor", seconds), panel("Memory", "MB", memory))
    return Figure("growth", "Growth with the number of images", "", panels)


if __name__ == "__main__":
    main()
