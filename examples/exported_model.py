"""One ONNX file, used with onnxruntime alone.

The first part trains a small model and exports it. The second part, `classify`, is all that a
program needs to use the file: no unseen, no torch, no settings. Preparation of the images, the
average over all domains and the class names are in the file.

    python examples/exported_model.py
"""

import argparse
import json
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image


def classify(model: Path, files: list[Path], domain: str | None = None) -> list[str]:
    """The class of each image, with its probability."""
    session = onnxruntime.InferenceSession(str(model))
    facts = session.get_modelmeta().custom_metadata_map
    classes, domains = json.loads(facts["classes"]), json.loads(facts["domains"])
    answers = []
    for file in files:
        inputs = {"images": np.asarray(Image.open(file).convert("RGB"))[None]}
        if domain is not None:
            inputs["domain"] = np.array(domains.index(domain))
        (probabilities,) = session.run(["probabilities"], inputs)
        best = int(probabilities[0].argmax())
        answers.append(f"{file.name}: {classes[best]} ({probabilities[0, best]:.2f})")
    return answers


def train_and_export(runs: str, steps: int) -> tuple[Path, list[Path]]:
    """A small model of digits as one file, and two images to try it on."""
    from sklearn.datasets import load_digits

    import unseen

    run = unseen.fit("digits/dmg", runs=runs, steps=steps, data={"unseen_domain": "outlines"})
    model = run.export(run.folder.path / "model.onnx")  # checked against run.predict
    files = []
    for number, picture in enumerate(load_digits().images[:2]):
        files.append(run.folder.path / f"digit_{number}.png")
        Image.fromarray((picture * 15).astype(np.uint8)).save(files[-1])
    return model, files


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--steps", type=int, default=60)
    arguments.add_argument("--runs", default="example_runs")
    chosen = arguments.parse_args()
    model, files = train_and_export(chosen.runs, chosen.steps)
    print("domain unknown:", *classify(model, files), sep="\n  ")
    print("domain known:  ", *classify(model, files, domain="plain"), sep="\n  ")
