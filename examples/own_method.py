"""Your own method in 40 lines, trained without touching the package.

A method is a class with settings, a loss and a prediction. This one is V-REx (Krueger et al., ICML
2021): it also minimises the variance of the training domains' losses, so that no domain is served
much worse than the others.

    python examples/own_method.py
    unseen train digits/aggregate method.name=own_method:Vrex     (inside this folder)
"""

import argparse
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

import unseen
from unseen import DomainBatch, Method, across_devices
from unseen.methods.base import Losses, Progress
from unseen.settings.ranges import LogUniform


class Vrex(Method):
    class Config(Method.Config):
        variance_weight: Annotated[float, LogUniform(0.1, 100)] = Field(default=1.0, ge=0)
        """Weight of the variance. Sweeps draw it from the range."""

    config: Config

    def loss(self, batch: DomainBatch, progress: Progress) -> Losses:
        scores = self.network(batch.images)
        by_image = cross_entropy(scores, batch.labels, reduction="none")
        by_domain = torch.stack(
            [by_image[batch.domains == d].mean() for d in range(batch.n_domains)]
        )
        # A variance is no mean over images, so several devices first share what they have.
        by_domain = across_devices.mean(by_domain)
        variance = by_domain.var(unbiased=False)
        return {
            "loss": by_domain.mean() + self.config.variance_weight * variance,  # minimised
            "task": by_domain.mean().detach(),  # everything else is recorded
            "variance": variance.detach(),
        }

    def predict(self, images: Tensor, domain: int | None = None) -> Tensor:
        return self.network(images)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--steps", type=int, default=60)
    arguments.add_argument("--runs", default="example_runs")
    chosen = arguments.parse_args()

    # "module:Class" names any importable method; everything else comes from the recipe.
    comparison = unseen.compare(
        "digits",
        methods=["aggregate", "own_method:Vrex"],
        unseen="outlines",
        runs=chosen.runs,
        steps=chosen.steps,
    )
    for folder in comparison.folders:
        run = unseen.load_run(folder)
        print(run.experiment.method.name, run.accuracy("out_of_domain"))
