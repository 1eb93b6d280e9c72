"""Your own folder of images: compare two methods, then train the model you deploy.

Images lie in root/domain/class/*, for example scans/hospital_a/healthy/0001.png. This script makes
such a folder from handwritten digits "photographed by three cameras", so that it runs anywhere;
give --root to use your own.

    python examples/own_folder.py
    python examples/own_folder.py --root scans --network efficientnet_lite0 --steps 300
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

import unseen


def make_folder(root: Path) -> None:
    """300 digits as PNG files: a sharp camera, a dark one and a noisy one."""
    random = np.random.default_rng(0)
    pictures, labels = load_digits(return_X_y=True)
    for number, (pixels, label) in enumerate(zip(pictures[:300], labels[:300], strict=True)):
        camera = ("sharp", "dark", "noisy")[number % 3]
        picture = pixels.reshape(8, 8) * 15
        if camera == "dark":
            picture = picture * 0.4
        if camera == "noisy":
            picture = picture + random.normal(0, 40, picture.shape)
        file = root / camera / str(label) / f"{number:04d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture.clip(0, 255).astype(np.uint8)).resize((32, 32)).save(file)


arguments = argparse.ArgumentParser()
arguments.add_argument("--root", type=Path, default=Path("example_images"))
arguments.add_argument("--network", default="small_cnn")
arguments.add_argument("--steps", type=int, default=30)
arguments.add_argument("--runs", default="example_runs")
chosen = arguments.parse_args()
if not chosen.root.exists():
    make_folder(chosen.root)

small = chosen.network == "small_cnn"
settings = {
    "data": {"root": chosen.root},
    "network": {
        "name": chosen.network,
        "pretrained": not small,
        "image_size": 32 if small else None,
    },
    "steps": chosen.steps,
    "images_per_domain": 8,
}

# Hold each camera out in turn: how well would the model do on a camera that it has never seen?
comparison = unseen.compare("folder", methods=["aggregate", "dmg"], runs=chosen.runs, **settings)
print(*comparison.home.glob("source/*.md"), sep="\n")

# With no unseen domain, a run trains on everything there is: the model for the camera to come.
run = unseen.fit("folder/aggregate", runs=chosen.runs, **settings)
print("trained on:", ", ".join(run.domains))
print("in domain: ", run.accuracy("in_domain"))
