"""Averages of weights: formulas worked by hand, whole runs, resumed runs, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.tiny import tiny, train
from torch import Tensor, nn

from unseen.data.dataset import OpenDatasets
from unseen.settings.experiment import AveragingSettings
from unseen.training.average import Average, ValleyAverage, averaged_tensors
from unseen.training.build import build_method, build_task
from unseen.training.one_run import OneRun


def moving() -> dict[str, Tensor]:
    return {"weight": nn.Parameter(torch.zeros(1, dtype=torch.float64))}


@pytest.mark.parametrize(
    ("settings", "skipped", "expected"),
    [
        ({"name": "mean"}, 2, [None, None, 1, 1.5, 3]),
        # with decay ½: the last of 8, 4, 1 weigh ¼, ½, 1 over their sum
        ({"name": "ema", "decay": 0.5}, 0, [8, (4 + 4) / 1.5, (2 + 2 + 1) / 1.75]),
    ],
)
def test_averages_of_steps(settings: dict[str, Any], skipped: int, expected: list[Any]) -> None:
    """After each step, where a weight takes these values."""
    live = moving()
    average = Average(live, AveragingSettings(**settings), skipped)
    for step, (value, wanted) in enumerate(zip((8, 4, 1, 2, 6), expected, strict=False), start=1):
        live["weight"].data.fill_(value)
        average.after_step(step)
        found = average.model.values["weight"].item() if average.model else None
        assert found == (wanted and pytest.approx(wanted))


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
    """After each evaluation the average and its number of steps. There are two steps between
    evaluations, and the weight is the number of the step."""
    start, end, rise = settings
    chosen = AveragingSettings(name="swad", valley_start=start, valley_end=end, valley_rise=rise)
    live = moving()
    average = ValleyAverage(live, chosen)
    for number, (loss, wanted) in enumerate(zip(losses, expected, strict=True)):
        for step in (2 * number + 1, 2 * number + 2):
            live["weight"].data.fill_(step)
            average.after_step(step)
        average.judge(loss)
        assert average.model is not None
        assert (average.model.values["weight"].item(), average.steps) == wanted


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


@pytest.mark.usefixtures("in_double_precision")
@pytest.mark.parametrize("method", ["aggregate", "dmg", "dann", "metareg", "importance"])
def test_a_run_saves_the_mean_of_its_steps(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last four of six steps; of a method with two phases, the second half of its second."""
    seen: list[dict[str, Tensor]] = []
    one_step = OneRun.step

    def remember(self: OneRun, *arguments: Any) -> Any:
        losses = one_step(self, *arguments)
        tensors = averaged_tensors(self.method)
        seen.append({name: tensor.detach().clone() for name, tensor in tensors.items()})
        return losses

    monkeypatch.setattr(OneRun, "step", remember)
    start = {"metareg": 0.5, "importance": 0.5}.get(method, 1 / 3)
    average = {"averaging__name": "mean", "averaging__start": start}
    folder = train(tiny(f"digits/{method}", **average), tmp_path / "run")
    kept = {"metareg": 2, "importance": 2}.get(method, 4)  # phases of 2 + 4, and of 3 + 3 steps
    found = load_file(folder.weights("last"))
    assert seen[-1].keys() <= found.keys()
    for name in seen[-1]:
        expected = torch.stack([weights[name] for weights in seen[-kept:]]).mean(dim=0)
        torch.testing.assert_close(found[name], expected, msg=name)
    assert any(not torch.equal(found[name], tensor) for name, tensor in seen[-1].items())
    records = [record for record in folder.read_metrics() if "validation" in record]
    assert records[-1]["averaged_steps"] == kept


def test_frozen_parts_and_parts_of_training_alone_are_not_averaged() -> None:
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
