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


def test_swad_begins_where_the_loss_stops_falling() -> None:
    """Of 3, 2, 1.0, 1.1, 1.2 the third is the lowest of three: from its weights (step 6) on. Before
    that is known, the two steps since the evaluation before count."""
    found = valley([3, 2, 1.0, 1.1, 1.2, 0.9], valley_start=3)
    assert found[:4] == [(1.5, 2), (3.5, 2), (5.5, 2), (7.5, 2)]
    assert found[4] == (pytest.approx((6 + 7 + 8 + 9 + 10) / 5), 5)
    assert found[5] == (pytest.approx((6 + 7 + 8 + 9 + 10 + 11 + 12) / 7), 7)


def test_swad_leaves_out_what_came_after_the_valley() -> None:
    """The loss may rise to 1.5 times the mean of 1 and 1, that is to 1.5: 1.6 may be a hill, and
    two of them in a row are the end."""
    settings = {"valley_start": 2, "valley_end": 2, "valley_rise": 0.5}
    found = valley([1, 1, 1.6, 1.5, 1.6, 1.6, 0.1], **settings)
    assert [count for _, count in found] == [2, 3, 3, 7, 7, 7, 7]
    assert found[2] == found[1]
    assert found[3][0] == pytest.approx(sum(range(2, 9)) / 7), "the hill counts after all"
    assert found[6] == found[3], "nothing counts after the end"


def test_swad_judges_the_losses_of_its_start_as_well() -> None:
    """1, 5 and 5 give a highest loss of 3.7 (r = 0): only the weights at the first are in it."""
    found = valley([1, 5, 5, 1], valley_start=3, valley_end=3, valley_rise=0)
    assert found[2] == (2, 1)
    assert found[3] == (pytest.approx(sum(range(2, 9)) / 7), 7)


def test_swad_without_a_valley_is_the_mean_since_the_last_evaluation() -> None:
    """As in the authors' code: of the steps 9 and 10."""
    assert valley([5, 4, 3, 2, 1], valley_start=3)[-1] == (9.5, 2)


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
