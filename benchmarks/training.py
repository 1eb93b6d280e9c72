"""What masks add to a training step."""

from benchmarks.figures import Figure, Measurement, alternate, clock, median_ratio
from benchmarks.workload import batch_of, generated, open_run, settings, step_on, workspace


def dmg_over_aggregate(repeats: int) -> Measurement:
    with workspace() as folder:
        dmg, aggregate = (
            open_run(settings(generated(folder), method, "resnet18", 224), folder / method)
            for method in ("dmg", "aggregate")
        )
        batch = batch_of(dmg)
        return median_ratio(
            alternate(
                clock(lambda: step_on(dmg, batch)),
                clock(lambda: step_on(aggregate, batch)),
                repeats,
                warm_up=2,
            )
        )


FIGURES = [
    Figure(
        "dmg step / aggregate step",
        "<= 1.02",
        "training steps on one batch of 3 x 16 images, ResNet-18, 224 px",
        repeats=15,
        measure=dmg_over_aggregate,
    )
]
