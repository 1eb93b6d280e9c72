"""Runs averaged into one model: what is averaged, what it says of itself, and what it can do."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file, save_file
from tests.sweeps.merging.conftest import Train, save_start

import unseen
from unseen.data.dataset import open_dataset
from unseen.data.feed import Feed
from unseen.errors import UnseenError
from unseen.results.folder import RunFolder
from unseen.serve.evaluate import evaluate
from unseen.serve.model import Model
from unseen.sweeps.merge import Choice, average

QUIET = Console(quiet=True)
INSIDE = {"plain", "blended", "coloured"}


def merged(runs: list[RunFolder], output: Path, choose: Choice = "all") -> unseen.Run:
    return unseen.merge([run.path for run in runs], output, choose=choose, console=QUIET)


def write(path: Path, **tensors: torch.Tensor) -> Path:
    save_file(tensors, path)
    return path


def test_tensors_are_averaged_and_what_is_the_same_stays_so_to_the_last_bit(tmp_path: Path) -> None:
    counter = "norm.num_batches_tracked"
    torch.manual_seed(0)
    same = torch.randn(1000) * 1e-3
    files = []
    for number, (values, count) in enumerate((((1.0, 2.0), 5), ((3.0, 8.0), 9), ((2.0, -1.0), 7))):
        tensors = {"w": torch.tensor(values), counter: torch.tensor(count), "same": same}
        tensors["phase"] = torch.tensor(False)
        files.append(write(tmp_path / f"{number}.safetensors", **tensors))
    found = average(files)
    assert found["w"].tolist() == [2.0, 3.0]
    assert found["w"].dtype == torch.float32
    assert (found[counter].item(), found["phase"].item()) == (9, False)
    assert torch.equal(found["same"], same)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"w": torch.zeros(3)}, r"w is \[3\] in .*, and \[2\] in the runs before"),
        ({"v": torch.zeros(2)}, r"v is \[2\] in .*, and missing in the runs before"),
        ({"w": torch.zeros(2), "chosen": torch.tensor([True])}, "chosen in .* has no mean"),
    ],
)
def test_tensors_that_mean_something_else_are_refused(
    tmp_path: Path, other: dict[str, torch.Tensor], said: str
) -> None:
    first = {"w": torch.zeros(2)}
    if "chosen" in other:
        first["chosen"] = torch.tensor([False])
    files = [write(tmp_path / "a.safetensors", **first), write(tmp_path / "b.safetensors", **other)]
    with pytest.raises(UnseenError, match=said):
        average(files)


@pytest.mark.parametrize("recipe", ["digits/aggregate", "digits/dmg", "digits/multihead"])
def test_a_merged_model_is_the_one_with_averaged_weights(
    trained: Train, tmp_path: Path, recipe: str
) -> None:
    runs = [trained(recipe, seed=seed) for seed in (0, 1, 2)]
    found = merged(runs, tmp_path / "model")
    each = [load_file(run.weights("source")) for run in runs]
    by_hand = {
        name: torch.stack([t[name] for t in each]).double().mean(dim=0).to(first.dtype)
        for name, first in each[0].items()
    }
    model = Model.from_run(runs[0])
    model.method.load_state_dict(by_hand)
    model.fitted_temperature = found.model.temperature
    pictures = np.random.default_rng(0).integers(0, 256, (5, 20, 20, 3), dtype=np.uint8)
    np.testing.assert_allclose(found.predict(pictures), model.predict(pictures), atol=1e-5)
    assert not np.allclose(found.predict(pictures), Model.from_run(runs[0]).predict(pictures))
    views = found.result.under("source").views
    assert evaluate(found.model) == evaluate(model) == views


def test_a_merged_model_says_what_it_is(trained: Train, tmp_path: Path) -> None:
    runs = [trained(seed=seed) for seed in (1, 2)]
    run = merged(runs, tmp_path / "model")
    found = run.result
    assert (found.label, found.seed) == ("aggregate, merged (2 runs)", 1)
    assert found.merged is not None
    assert found.merged.steps == 12
    seconds = [json.loads(run.timing.read_text())["seconds"] for run in runs]
    assert json.loads((tmp_path / "model/timing.json").read_text())["seconds"] == sum(seconds)
    assert {each.folder for each in found.merged.runs} == {run.path.name for run in runs}
    others = {run.read_result().run for run in runs}
    assert found.run not in others | {merged([*runs, trained(seed=0)], tmp_path / "3").result.run}
    card = (tmp_path / "model/README.md").read_text()
    assert "Merged from 2 runs" in card
    assert runs[0].path.name in card
    assert "one seed" not in card
    assert RunFolder(tmp_path / "model").read_metrics()[0]["validation"].keys() == INSIDE


def test_the_best_run_is_where_settings_come_from(trained: Train, tmp_path: Path) -> None:
    runs = [trained(optimizer__lr=lr) for lr in (1e-6, 1e-2)]
    found = merged(runs, tmp_path / "model")
    best = max(found.result.merged.runs, key=lambda each: each.validation)
    assert found.result.merged.runs[0] == best
    assert found.experiment == unseen.load_run(runs[0].path.parent / best.folder).experiment


def test_merging_again_changes_nothing(trained: Train, tmp_path: Path) -> None:
    runs = [trained(seed=seed) for seed in (0, 1)]
    merged(runs, tmp_path / "model")
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "model").rglob("*")}
    merged(runs[::-1], tmp_path / "model")
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "model").rglob("*")} == before
    with pytest.raises(UnseenError, match="is there already, and not the model"):
        merged([*runs, trained(seed=2)], tmp_path / "model")
    with pytest.raises(UnseenError, match="is there already, and not the model"):
        merged([runs[0], trained(seed=2)], runs[1].path)
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_the_greedy_choice_leaves_a_bad_run_out(trained: Train, tmp_path: Path) -> None:
    good = [trained(seed=seed, steps=40, evaluate_every=40) for seed in (0, 1)]
    bad = trained(seed=2, steps=40, evaluate_every=40, optimizer__lr=1.0)
    found = merged([bad, *good], tmp_path / "greedy", "greedy").result
    assert found.merged is not None
    left_out = [each.folder for each in found.merged.runs if not each.averaged]
    assert bad.path.name in left_out
    assert found.label == "aggregate, merged greedily (3 runs)"
    validation = RunFolder(tmp_path / "greedy").read_metrics()[0]["validation"]
    alone = found.merged.runs[0].validation
    assert sum(validation.values()) / len(validation) >= alone
    everything = merged([bad, *good], tmp_path / "all").result
    assert everything.merged is not None
    assert len(everything.merged.averaged) == 3
    assert everything.run != found.run


def test_the_choice_never_looks_at_the_unseen_domain(
    trained: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[int] = []
    original = Feed.evaluation

    def watched(self: Feed, rows: np.ndarray) -> Any:
        looked_at.extend(rows.tolist())
        return original(self, rows)

    def chosen(*_: Any) -> None:
        raise UnseenError("the choice is made")

    runs = [trained(seed=seed) for seed in (0, 1)]
    monkeypatch.setattr(Feed, "evaluation", watched)
    monkeypatch.setattr("unseen.sweeps.merge._measure_rules", chosen)
    with pytest.raises(UnseenError, match="the choice is made"):
        merged(runs, tmp_path / "model", "greedy")
    index = open_dataset(unseen.load_run(runs[0].path).experiment.data).index()
    assert {index.names[row].partition("/")[0] for row in looked_at} == INSIDE


@pytest.mark.parametrize(
    ("recipe", "changes", "said"),
    [
        ("digits/aggregate", {"data__unseen_domain": "plain"}, "unseen domains: "),
        ("digits/aggregate", {"data__split_seed": 5}, "data.split_seed: 0 and 5"),
        ("digits/aggregate", {"network__image_size": 24}, "network.image_size: 16 and 24"),
        ("digits/aggregate", {"network__pretrained": False}, "random starts"),
        ("digits/aggregate", {"selection": "oracle"}, "labels of the unseen domain"),
        ("digits/aggregate", {"selection": "last"}, "selection: source and last"),
        ("digits/multihead", {}, "method.name: aggregate and multihead"),
        ("digits/dmg", {"method__sites": ["fc2"]}, "method.sites: fc1 and fc2"),
    ],
)
def test_runs_that_do_not_belong_together_are_refused(
    trained: Train, tmp_path: Path, recipe: str, changes: dict[str, Any], said: str
) -> None:
    first = trained(recipe, method__sites=["fc1"]) if "method__sites" in changes else trained()
    runs = [first, trained(recipe, **changes)]
    with pytest.raises(UnseenError) as refused:
        merged(runs, tmp_path / "model")
    assert said in str(refused.value)
    assert not (tmp_path / "model").exists()


def test_another_start_is_refused_and_a_copy_of_it_is_not(
    trained: Train, start: Path, tmp_path: Path
) -> None:
    other = save_start(tmp_path / "other.safetensors", seed=8)
    with pytest.raises(UnseenError, match=r"network\.pretrained: .*start.* and .*other"):
        merged([trained(), trained(network__pretrained=str(other), seed=1)], tmp_path / "model")
    copy = tmp_path / "copy.safetensors"
    copy.write_bytes(start.read_bytes())
    found = merged([trained(), trained(network__pretrained=str(copy), seed=1)], tmp_path / "model")
    assert found.result.label == "aggregate, merged (2 runs)"


def test_what_cannot_be_merged_at_all(trained: Train, tmp_path: Path) -> None:
    first, second = trained(), trained(seed=1)
    with pytest.raises(UnseenError, match="1 finished run found"):
        merged([first], tmp_path / "model")
    with pytest.raises(UnseenError, match="there is no run"):
        merged([first, RunFolder(tmp_path / "nothing")], tmp_path / "model")
    again = merged([first, second], tmp_path / "model").folder
    with pytest.raises(UnseenError, match=r"was merged itself; name the runs .*seed"):
        merged([again, first], tmp_path / "other")


def test_a_folder_of_runs_stands_for_those_that_were_trained(
    trained: Train, tmp_path: Path
) -> None:
    home = tmp_path / "runs"
    for seed in (0, 1):
        run = trained(seed=seed).path
        shutil.copytree(run, home / run.name)
    found = unseen.merge(home, home / "model", console=QUIET)
    assert found.result.label == "aggregate, merged (2 runs)"
    assert unseen.merge(home, home / "model", console=QUIET).result == found.result


def test_stored_features_are_used_and_not_made_again(
    trained: Train, shared_cache: Path, tmp_path: Path
) -> None:
    runs = [trained("digits/dmg", network__freeze_until="fc1", seed=seed) for seed in (0, 1)]
    before = sorted(p.name for p in shared_cache.rglob("*"))
    found = merged(runs, tmp_path / "model")
    assert sorted(p.name for p in shared_cache.rglob("*")) == before
    frozen = "network.stages.conv1.0.weight"
    tensors = [load_file(each.weights("source")) for each in (*runs, found.folder)]
    assert torch.equal(tensors[0][frozen], tensors[2][frozen])
    assert not torch.equal(tensors[0]["logits.0"], tensors[2]["logits.0"])
    assert evaluate(found.model) == found.result.under("source").views
    assert found.export(tmp_path / "model.pt2").is_file()
    assert "Merged from 2 runs" in (tmp_path / "model.pt2.md").read_text()
