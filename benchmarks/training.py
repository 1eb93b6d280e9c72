"""What masks, averaged weights and augmented views add to a training step."""

import time
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.figures import Clock, Figure, Measurement, alternate, clock, median_ratio
from benchmarks.workload import batch_of, generated, open_run, settings, step_on, workspace
from unseen.networks import quick_cpu
from unseen.settings.experiment import AveragingSettings, Experiment
from unseen.training.session import Session


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
        plain = _from_features(folder)
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


def many_views_over_one(repeats: int) -> Measurement:
    """Steps with their reading, which is waited for here."""
    with workspace() as folder:
        eight, one = (
            open_run(_from_features(folder, views=views), folder / f"views{views}")
            for views in (8, 1)
        )
        numbers = iter(range(10**6))

        def step(session: Session) -> Clock:
            return clock(lambda: step_on(session, batch_of(session, next(numbers))))

        return median_ratio(alternate(step(eight), step(one), repeats, warm_up=3))


def bfloat16_over_32_bits(repeats: int) -> Measurement:
    """Processor time, where the last three stages learn."""
    with workspace() as folder:
        plain = _from_features(folder, freeze_until="blocks.5", freeze_batch_norm=True)
        mixed, full = (
            open_run(plain.model_copy(update={"precision": precision}), folder / precision)
            for precision in ("bf16", "32")
        )
        batch = batch_of(full)

        def step(session: Session) -> Clock:
            return clock(lambda: step_on(session, batch), time.process_time)

        return median_ratio(alternate(step(mixed), step(full), repeats, warm_up=3))


def products_over_convolutions(precision: str, repeats: int) -> Measurement:
    """Processor time of the same step; small maps of one pixel leave all to oneDNN."""
    with workspace() as folder:
        plain = _from_features(folder, freeze_batch_norm=True)
        session = open_run(plain.model_copy(update={"precision": precision}), folder / "run")
        batch = batch_of(session)

        def step(largest_map: int) -> Clock:
            def work() -> None:
                with patch.object(quick_cpu, "LARGEST_MAP", largest_map):
                    step_on(session, batch)

            return clock(work, time.process_time)

        products, convolutions = step(quick_cpu.LARGEST_MAP), step(1)
        return median_ratio(alternate(products, convolutions, repeats, warm_up=3))


def _from_features(folder: Path, **network: Any) -> Experiment:
    plain = settings(generated(folder), "aggregate", "efficientnet_lite0", 128)
    frozen = {"freeze_until": "blocks.6"} | network
    return plain.model_copy(update={"network": plain.network.model_copy(update=frozen)})


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
    Figure(
        "step that reads 8 augmented views / one view",
        "<= 1.02",
        "training steps of 3 x 16 images from stored features, reading included, "
        "EfficientNet-Lite0 frozen before blocks.6, 128 px",
        repeats=60,
        measure=many_views_over_one,
    ),
    Figure(
        "step in bfloat16 / in 32 bits",
        "<= 0.75",
        "training steps on one batch of 3 x 16 images from stored features, EfficientNet-Lite0 "
        "frozen before blocks.5, 128 px, on a processor with bfloat16 instructions",
        repeats=15,
        measure=bfloat16_over_32_bits,
    ),
    Figure(
        "step with matrix products for small maps / with oneDNN's convolutions",
        "<= 0.95",
        "training steps on one batch of 3 x 16 images from stored features, EfficientNet-Lite0 "
        "frozen before blocks.6, 128 px, 32 bits, on a processor with AVX2 and without AVX-512",
        repeats=30,
        measure=partial(products_over_convolutions, "32"),
    ),
    Figure(
        "step with matrix products for small maps / with oneDNN's convolutions, bfloat16",
        "<= 0.95",
        "the same in bfloat16, on a processor with AVX-512 BF16",
        repeats=30,
        measure=partial(products_over_convolutions, "bf16"),
    ),
]
