"""Train on three domains, measure on the fourth, and predict.

The embedded digits come in four styles, which are the domains: plain, blended, coloured and
outlines. The model never sees "outlines" while it trains.

    python examples/train_and_predict.py
    python examples/train_and_predict.py --steps 1500     (longer, and much better)
"""

import argparse

import numpy as np
from sklearn.datasets import load_digits

import unseen

arguments = argparse.ArgumentParser()
arguments.add_argument("--steps", type=int, default=60)
arguments.add_argument("--runs", default="example_runs")
chosen = arguments.parse_args()

# A recipe is a named set of settings; keyword arguments override them. The same call a second
# time opens the finished run instead of training it again.
run = unseen.fit(
    "digits/dmg",
    runs=chosen.runs,
    steps=chosen.steps,
    data={"unseen_domain": "outlines"},
    seed=0,
)

print("folder:       ", run.folder.path)
print("trained on:   ", ", ".join(run.domains))
print("out of domain:", run.accuracy("out_of_domain"))  # the domain it has never seen
print("in domain:    ", run.accuracy("in_domain"))  # held-out images of the training domains

# Images are file names, PIL images or uint8 arrays [height, width, 3], of any size.
pictures = load_digits().images[:3] * 15
images = [np.stack([picture] * 3, axis=-1).astype(np.uint8) for picture in pictures]
for probabilities in run.predict(images):
    best = int(probabilities.argmax())
    print(f"predicted {run.classes[best]} with probability {probabilities[best]:.2f}")

# If you know which training domain an image comes from, say so: its own mask is then used.
print("known domain: ", run.predict(images[:1], domain="plain").round(2))
