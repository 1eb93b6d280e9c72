"""What masks and averaged weights add to a training step."""

from benchmarks.figures import Figure, Measurement, alternate, clock, median_ratio
from benchmarks.workload import batch_of, generated, open_run, settings, step_on, workspace
from unseen.config import AveragingSettings


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


def averaging_over_none(repeats: int) -> Measurement:
    """From stored features, where a step is short and what is added to it shows most."""
    with workspace() as folder:
        plain = settings(generated(folder), "aggregate", "efficientnet_lite0", 128)
        network = plain.network.model_copy(update={"freeze_until": "blocks.6"})
        plain = plain.model_copy(update={"network": network})
        every_step = AveragingSettings(name="mean", start=0)
        averaged, alone = (
            open_run(plain.model_copy(update={"averaging": average}), folder / average.name)
            for average in (every_step, AveragingSettings())
        )
        batch = batch_of(averaged)
        return median_ratio(
            alternate(
                clock(lambda: step_on(averaged, batch)),
                clock(lambda: step_on(alone, batch)),
                repeats,
                warm_up=3,
            )
        )


FIGURES = [
    Figure(
        "dmg step / aggregate step",
        "<= 1.02",
        "training steps on one batch of 3 x 16 images, ResNet-18, 224 px",
        repeats=15,
        measure=dmg_over_aggregate,
    ),
    Figure(
        "step with averaged weights / without",
        "<= 1.02",
        "training steps on one batch of 3 x 16 images from stored features, EfficientNet-Lite0 "
        "frozen before blocks.6, 128 px, the mean of all steps",
        repeats=60,
        measure=averaging_over_none,
    ),
]
