"""How many planted faults the audit finds in PACS, and what it costs beside preparing.

python -m benchmarks.audit_figures [--every 1] [--page audit.html]: links all images, or every n-th,
into a folder domain/class/*, 5 % of them in a class that is not theirs; adds copies of 2 % to
another domain, saved anew, resized or flipped; marks a class of a domain; and saves some images
with 12 bits in 16. Costs are in seconds of processor, with an empty cache.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageOps
from rich.console import Console

from unseen.audit.audit import audit
from unseen.audit.findings import AuditReport, Finding
from unseen.data.dataset import open_dataset
from unseen.data.prepare import prepare
from unseen.settings.recipes import build_experiment, merge, read_recipe
from unseen.training.display import Display
from unseen.training.features import features_of_images

MARKED, DEEP = ("photo", "horse"), ("sketch", "house")
SIZE = 128


def plant(source: Path, root: Path, every: int, rng: np.random.Generator) -> dict[str, set[str]]:
    """Make the folder, and return the names of what was planted, by kind; copies as `a = b`."""
    files = sorted(file.relative_to(source) for file in source.glob("*/*/*"))[::every]
    domains, classes = (sorted({file.parts[place] for file in files}) for place in (0, 1))
    chosen = rng.permutation(len(files))
    wrong, copied = len(files) // 20, len(files) // 50
    planted: dict[str, set[str]] = {kind: set() for kind in ("labels", "copies", "mark", "deep")}
    names = dict[int, str]()
    for number, place in enumerate(chosen.tolist()):
        domain, own, name = files[place].parts
        shown = own
        if number < wrong:
            shown = str(rng.choice([each for each in classes if each != own]))
            name = f"{own}_{name}"
            planted["labels"].add(f"{domain}/{shown}/{name}")
        target = root / domain / shown / name
        target.parent.mkdir(parents=True, exist_ok=True)
        names[number] = f"{domain}/{shown}/{name}"
        if (domain, shown) == MARKED:
            marked(Image.open(source / files[place]).convert("RGB")).save(target)
            planted["mark"].add(names[number])
        elif (domain, own) == DEEP and shown == own:
            gray = np.asarray(Image.open(source / files[place]).convert("L")).astype(np.uint16)
            names[number] = f"{domain}/{shown}/{target.stem}.png"
            Image.fromarray(gray * 16).save(target.with_suffix(".png"))
            planted["deep"].add(names[number])
        else:
            target.symlink_to(source / files[place])
    plain = [n for n in names if n >= wrong and names[n] not in planted["mark"] | planted["deep"]]
    for number in plain[:copied]:
        domain, own, name = Path(names[number]).parts
        other = str(rng.choice([each for each in domains if each != domain]))
        copy = f"{other}/{own}/{domain}_{Path(name).stem}.jpg"
        image = Image.open(root / names[number]).convert("RGB")
        width, height = (max(48, int(side * rng.uniform(0.4, 2))) for side in image.size)
        image = ImageOps.mirror(image) if rng.random() < 0.5 else image
        image = image.resize((width, height)) if rng.random() < 0.7 else image
        image.save(root / copy, quality=int(rng.integers(40, 95)))
        planted["copies"].add(" = ".join(sorted((names[number], copy))))
    return planted


def marked(image: Image.Image) -> Image.Image:
    ImageDraw.Draw(image).text((image.width - 60, image.height - 20), "ACME 7", fill="white")
    return image


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    root = Path(os.environ.get("UNSEEN_DATA", ".")) / "PACS"
    parser.add_argument("--root", type=Path, default=root, help="the folder of PACS")
    parser.add_argument("--every", type=int, default=1, help="take every n-th image")
    parser.add_argument("--page", type=Path, help="write the audit's page there")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="unseen-audit-") as temporary:
        os.environ["UNSEEN_CACHE"] = f"{temporary}/cache"
        images = Path(temporary) / "images"
        planted = plant(chosen.root / "images", images, chosen.every, np.random.default_rng(0))
        settings = {"data": {"name": "folder", "root": str(images)}}
        experiment = build_experiment(merge(read_recipe("pacs/aggregate"), settings), "pacs")
        dataset = open_dataset(experiment.data)
        start = time.process_time()
        prepared = prepare(dataset, SIZE, every_file=True)
        alone = time.process_time()
        audit(dataset, prepared)
        done = time.process_time()
        print(f"prepare {alone - start:.1f} s, and the audit {done - alone:.1f} s: ", end="")
        print(f"{(done - start) / (alone - start):.2f} times")
        with Display(Console(stderr=True), len(prepared.index), "features") as display:
            features = features_of_images(prepared, experiment.network, display)
        start = time.process_time()
        report = audit(dataset, prepared, features)
        print(f"labels, from stored features: {time.process_time() - start:.1f} s")
        tell(report, planted)
        if chosen.page:
            report.write_page(prepared, chosen.page)


def tell(report: AuditReport, planted: dict[str, set[str]]) -> None:
    """Print what was found of what was planted, and what else was found."""

    def found(*kinds: str) -> set[str]:
        findings: list[Finding] = [f for kind in kinds if (f := report.of(kind)) is not None]
        examples = [each for finding in findings for each in finding.examples]
        return {" = ".join(sorted(report.names[row] for row in e.rows)) for e in examples}

    kinds = {
        "copies": ("copies between domains", "copies between classes", "copies"),
        "labels": ("probably wrong labels",),
        "deep": ("nearly black",),
    }
    print("| planted | images | found | recall | precision |\n|---|---:|---:|---:|---:|")
    for kind, names in kinds.items():
        there, both = found(*names), found(*names) & planted[kind]
        share = f"{len(both) / len(planted[kind]):.3f} | {len(both) / max(1, len(there)):.3f}"
        print(f"| {kind} | {len(planted[kind])} | {len(there)} | {share} |")
    for finding in report.findings:
        print(f"{finding.kind}: {finding.text}")


if __name__ == "__main__":
    main()
