"""Averages of weights: formulas worked by hand, whole runs, resumed runs, and what is refused."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from unseen.data.dataset import OpenDatasets
from unseen.errors import SettingsError
from unseen.results.folder import RunFolder
from unseen.settings.experiment import AveragingSettings, Experiment
from unseen.training.average import Average, ValleyAverage, averaged_tensors
from unseen.training.build import build_method, build_task
from unseen.training.one_run import OneRun

Build = Callable[..., Experiment]
Run = Callable[[Experiment, Path], RunFolder]


def moving() -> dict[str, Tensor]:
    return {"weight": nn.Parameter(torch.zeros(1, dtype=torch.float64))}


def average_of(values: Sequence[float], skipped: float, **settings: Any) -> list[float | None]:
    """After each step, where a weight takes these values."""
    live = moving()
    average = Average(live, AveragingSettings(**settings), skipped)
    found: list[float | None] = []
    for step, value in enumerate(values, start=1):
        live["weight"].data.fill_(value)
        average.after_step(step)
        found.append(average.model.values["weight"].item() if average.model else None)
    return found


def test_mean_of_the_steps_after_the_first_ones() -> None:
    found = average_of([8, 4, 1, 2, 6], skipped=2, name="mean")
    assert found == [None, None, *map(pytest.approx, (1, 1.5, 3))]


def test_ema_has_weights_that_add_up_to_one_from_the_beginning() -> None:
    """Of 8, 4, 1 with decay ½: weights ¼, ½, 1 over their sum."""
    found = average_of([8, 4, 1], skipped=0, name="ema", decay=0.5)
    assert found == [*map(pytest.approx, (8, (4 + 4) / 1.5, (2 + 2 + 1) / 1.75))]


def valley(losses: Sequence[float], **settings: Any) -> list[tuple[float | None, int]]:
    """After each evaluation the average and its number of steps. There are two steps between
    evaluations, and the weight is the number of the step."""
    live = moving()
    average = ValleyAverage(live, AveragingSettings(name="swad", **settings))
    found: list[tuple[float | None, int]] = []
    step = 0
    for loss in losses:
        for _ in range(2):
            step += 1
            live["weight"].data.fill_(step)
            average.after_step(step)
        average.judge(loss)
        mean = average.model.values["weight"].item() if average.model else None
        found.append((mean, average.steps))
    return found


def mean(first: int, last: int) -> tuple[Any, int]:
    """The average of these steps, whose weights are their numbers, and how many they are."""
    return pytest.approx((first + last) / 2), last - first + 1


@pytest.mark.parametrize(
    ("losses", "settings", "expected"),
    [
        (  # the third is the lowest of three: from its weights (step 6) on; before, two steps count
            [3, 2, 1.0, 1.1, 1.2, 0.9],
            (3, 6, 0.3),
            [mean(1, 2), mean(3, 4), mean(5, 6), mean(7, 8), mean(6, 10), mean(6, 12)],
        ),
        (  # up to 1.5: 1.6 may be a hill, which counts after all; two in a row are the end
            [1, 1, 1.6, 1.5, 1.6, 1.6, 0.1],
            (2, 2, 0.5),
            [mean(1, 2), *[mean(2, 4)] * 2, *[mean(2, 8)] * 4],
        ),
        # a highest loss of 3.7: of the start itself, only the weights at the first loss are in it
        ([1, 5, 5, 1], (3, 3, 0), [mean(1, 2), mean(3, 4), mean(2, 2), mean(2, 8)]),
        # no valley, as in the authors' code
        ([5, 4, 3, 2, 1], (3, 6, 0.3), [mean(n, n + 1) for n in range(1, 10, 2)]),
    ],
)
def test_swad_averages_the_valley(
    losses: list[float], settings: tuple[int, int, float], expected: list[tuple[Any, int]]
) -> None:
    names = ("valley_start", "valley_end", "valley_rise")
    found = valley(losses, **dict(zip(names, settings, strict=True)))
    assert found == expected


@pytest.mark.parametrize("settings", [{"name": "mean"}, {"name": "swad", "valley_start": 2}])
def test_the_weights_come_back_bit_for_bit(settings: dict[str, Any]) -> None:
    live = {"weight": nn.Parameter(torch.rand(5)), "statistic": torch.rand(5)}
    chosen = AveragingSettings.model_validate(settings)
    average = Average(live, chosen, 0) if chosen.name == "mean" else ValleyAverage(live, chosen)
    for step in range(1, 4):
        for tensor in live.values():
            tensor.data.copy_(torch.rand(5))
        average.after_step(step)
        if isinstance(average, ValleyAverage):
            average.judge(1.0)
    own = {name: tensor.clone() for name, tensor in live.items()}
    with average.applied():
        assert average.model is not None
        for name, tensor in live.items():
            assert torch.equal(tensor, average.model.values[name])
            assert not torch.equal(tensor, own[name])
    for name, tensor in live.items():
        assert torch.equal(tensor, own[name])


def watch_weights(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Tensor]]:
    """What is averaged, after every step of the runs to come."""
    seen: list[dict[str, Tensor]] = []
    step = OneRun.step

    def remember(self: OneRun, *arguments: Any) -> Any:
        losses = step(self, *arguments)
        tensors = averaged_tensors(self.method)
        seen.append({name: tensor.detach().clone() for name, tensor in tensors.items()})
        return losses

    monkeypatch.setattr(OneRun, "step", remember)
    return seen


@pytest.mark.usefixtures("in_double_precision")
@pytest.mark.parametrize("method", ["aggregate", "dmg", "dann", "metareg", "importance"])
def test_a_run_saves_the_mean_of_its_steps(
    method: str, tiny: Build, run_tiny: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last four of six steps; of a method with two phases, the second half of its second."""
    seen = watch_weights(monkeypatch)
    start = {"metareg": 0.5, "importance": 0.5}.get(method, 1 / 3)
    average = {"averaging__name": "mean", "averaging__start": start}
    folder = run_tiny(tiny(f"digits/{method}", **average), tmp_path / "run")
    kept = {"metareg": 2, "importance": 2}.get(method, 4)  # phases of 2 + 4, and of 3 + 3 steps
    found = load_file(folder.weights("last"))
    assert seen[-1].keys() <= found.keys()
    for name in seen[-1]:
        expected = torch.stack([weights[name] for weights in seen[-kept:]]).mean(dim=0)
        torch.testing.assert_close(found[name], expected, msg=name)
    assert any(not torch.equal(found[name], tensor) for name, tensor in seen[-1].items())
    records = [record for record in folder.read_metrics() if "validation" in record]
    assert records[-1]["averaged_steps"] == kept


def test_frozen_parts_and_parts_of_training_alone_are_not_averaged(tiny: Build) -> None:
    def names(recipe: str, **changes: Any) -> set[str]:
        experiment = tiny(recipe, **changes)
        index = OpenDatasets().open(experiment.data).index()
        return set(averaged_tensors(build_method(experiment, build_task(index, experiment))))

    frozen = names("digits/dann", network__freeze_until="fc1")
    assert frozen
    assert not any("conv" in name or "discriminator" in name for name in frozen)
    assert any("running" in name for name in names("digits/aggregate", network__name="mnist_cnn"))
    norm = {"network__name": "mnist_cnn", "network__freeze_batch_norm": True}
    still = names("digits/aggregate", **norm)
    assert still
    assert not any("running" in name for name in still)


def test_swad_that_could_never_begin_is_refused(tiny: Build, run_tiny: Run, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"6 steps have 2; set evaluate_every=1"):
        run_tiny(tiny(averaging__name="swad"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
