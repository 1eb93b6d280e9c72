"""DomainBed's protocol: trials with splits of their own, several datasets, its summary table."""

import csv
import io
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from tests.made_results import made_result

import unseen
from unseen.errors import SettingsError
from unseen.reports.formats import to_csv, to_latex, to_markdown
from unseen.reports.tables import Expected, standard_error, summarize
from unseen.results.result import RunResult
from unseen.settings import catalog
from unseen.settings.experiment import identity
from unseen.settings.recipes import load_experiment
from unseen.sweeps.cost import ImageTimes, estimate, time_method
from unseen.sweeps.draws import draws_of, find_parts
from unseen.sweeps.plan import plan_sweep
from unseen.sweeps.sweep_file import load_sweep
from unseen.sweeps.tables import Comparison

SMALL = """
datasets: digits, folder
methods: aggregate, irm
unseen: plain, ink
seeds: 0-1
split_by_seed: true
draws: 2
pairs: all
selection: source
settings:
  data.validation_share: 0.2
  data.test_share: 0
  network: {image_size: 16}
  images_per_domain: 4
  steps: 4
  evaluate_every: 2
  devices.accelerator: cpu
ranges:
  optimizer.lr: {log_uniform: [1e-4, 1e-2]}
search: optimizer.lr
by_dataset:
  digits:
    settings: {steps: 3}
  folder:
    settings: {data.root: ROOT, network: {name: small_cnn, pretrained: false}}
    ranges: {optimizer.lr: {choice: [5e-3]}}
    pairs: none
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two datasets, two methods, two draws, two seeds."""
    root = tmp_path_factory.mktemp("small") / "pictures"
    random = np.random.default_rng(0)
    for domain in ("ink", "oil", "wax"):
        for name in ("cat", "dog"):
            (root / domain / name).mkdir(parents=True)
            for number in range(12):
                pixels = random.integers(0, 256, (16, 16, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / domain / name / f"{number}.png")
    file = root.parent / "small.yaml"
    file.write_text(SMALL.replace("ROOT", str(root)))
    return file


@pytest.fixture(scope="module")
def done(small: Path, shared_cache: Path) -> Comparison:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNSEEN_CACHE", str(shared_cache))
        return unseen.sweep(small, runs=small.parent / "runs", console=Console(quiet=True))


def test_every_seed_is_a_trial_with_a_split_of_its_own(small: Path) -> None:
    plan = plan_sweep(load_sweep(small), "small")
    for run in (*plan.singles, *plan.pairs):
        data = run.experiment.data
        assert data.split_seed == run.condition.seed
        assert not data.official_splits
        assert (data.validation_share, data.test_share) == (0.2, 0)
    assert {run.condition.dataset for run in plan.pairs} == {"digits"}
    assert len(plan.pairs) == 3 * 2 * 2 * 2
    assert len(plan.singles) == (1 + 1) * 2 * 2 * 2
    lengths = {run.condition.dataset: run.experiment.steps for run in plan.singles}
    assert lengths == {"digits": 3, "folder": 4}
    drawn = {r.experiment.optimizer.lr for r in plan.singles if r.condition.dataset == "folder"}
    assert len(drawn) == 2  # the recipe's, and the one choice of this dataset


def test_the_summary_has_datasets_as_columns_and_the_average_last(done: Comparison) -> None:
    assert not done.missing
    assert set(done.summaries) == {"source", "last", "leave-one-domain-out", "oracle"}
    table = done.summaries["source"]
    assert table.columns == ("digits", "folder", "average")
    assert [row.name for row in table.rows] == ["aggregate", "irm"]
    chosen = [each for each in done.chosen if each.rule == "source"]
    for row in table.rows:
        for dataset, cell in zip(("digits", "folder"), row.cells, strict=False):
            trials = [_trial(done, chosen, dataset, row.name, seed) for seed in (0, 1)]
            assert cell.estimate.mean == pytest.approx(fmean(trials))
            # of two values, both are half their distance from the mean
            assert cell.estimate.half_width == pytest.approx(
                abs(trials[0] - trials[1]) / 2 / 2**0.5
            )
        *columns, average = row.cells
        assert average.estimate.mean == pytest.approx(fmean(c.estimate.mean for c in columns))
        assert average.estimate.half_width is None


def _trial(done: Comparison, chosen: list[Any], dataset: str, method: str, seed: int) -> float:
    """Percent, the mean over the unseen domains of the draws that were chosen."""
    own = [
        each
        for each in chosen
        if each.run.condition[:2] == (dataset, method) and each.run.condition.seed == seed
    ]
    results = [each.run.result for each in own]
    return 100 * fmean(each.mean("source", "out_of_domain") or 0 for each in results)


def test_a_dataset_without_pairs_is_empty_and_summaries_have_all_formats(done: Comparison) -> None:
    first, second, average = done.summaries["leave-one-domain-out"].rows[0].cells
    assert first.estimate is not None
    assert second.estimate is average.estimate is None
    for rule in done.summaries:
        for suffix in (".csv", ".md", ".tex"):
            text = (done.home / rule / f"summary{suffix}").read_text(encoding="utf-8")
            assert "standard" in text
            assert "irm" in text
    rows = list(csv.DictReader(io.StringIO((done.home / "source" / "summary.csv").read_text())))
    assert {row["column"] for row in rows} == {"digits", "folder", "average"}
    assert all(float(row["standard_error"]) >= 0 for row in rows if row["column"] != "average")


def result(method: str, dataset: str, seed: int, accuracy: float, **changes: Any) -> RunResult:
    changes |= {"rules": ("source",), "dataset": dataset}
    return made_result(method, {"sketch": accuracy}, seed=seed, **changes)


def test_the_error_is_domainbeds() -> None:
    """numpy's std (of the population) over √n: of 80, 82 and 87 it is 2.944 / 1.732."""
    found = standard_error([80.0, 82.0, 87.0])
    assert found == (83.0, pytest.approx(np.std([80, 82, 87]) / 3**0.5), 3)
    assert found[1] == pytest.approx(1.6997, abs=1e-4)


def test_gaps_and_upper_bounds_in_a_summary() -> None:
    expected = Expected(("aggregate", "dmg"), (("sketch",),), (0, 1))
    results = {
        "pacs": [
            *(result("aggregate", "pacs", seed, 0.8) for seed in (0, 1)),
            *(result("dmg", "pacs", seed, 0.9) for seed in (0, 1)),
            *(result("bound", "pacs", s, 0.99, trained_on_unseen=True) for s in (0, 1)),
        ],
        "vlcs": [result("aggregate", "vlcs", 0, 0.6), result("dmg", "vlcs", 1, 0.7)],
    }
    table = summarize(results, dict.fromkeys(results, expected), "source", ("About.",))
    best = {row.name: [bool(cell and cell.best) for cell in row.cells] for row in table.rows}
    assert best == {"aggregate": [False] * 3, "dmg": [True, False, False], "bound": [False] * 3}
    markdown = to_markdown(table)
    assert r"| aggregate | 80.0 ± 0.0 | 60.0\* | – |" in " ".join(markdown.split())
    assert any(note.startswith("bound: labelled") for note in table.notes)
    assert table.notes[0] == "About."
    assert "standard_error" in to_csv(table).splitlines()[0]
    assert r"\textbf{90.0 $\pm$ 0.0}" in to_latex(table)


def test_what_does_not_fit_is_named(small: Path) -> None:
    changes = {"settings.data.split_seed": 3, "by_dataset": {"nowhere": {"settings": {}}}}
    with pytest.raises(SettingsError) as caught:
        plan_sweep(load_sweep(small, changes), "small")
    assert "unknown dataset 'nowhere'" in str(caught.value)
    assert "settings.data.split_seed: is chosen by 'split_by_seed'" in str(caught.value)
    with pytest.raises(SettingsError, match="settings: batch: unknown key"):
        plan_sweep(load_sweep(small, {"by_dataset.digits.settings.batch": 3}), "small")


def everything(experiment: Any, n_domains: int, n_classes: int) -> ImageTimes:
    return ImageTimes(training=2.0, evaluation=1.0)


def test_the_cost_of_a_run_is_steps_evaluations_and_the_end(small: Path) -> None:
    plan = plan_sweep(load_sweep(small), "small")
    rows = estimate(plan, lambda *_: ImageTimes(training=2.0, evaluation=1.0))
    folder, digits = ("folder", "small_cnn"), ("digits", "small_cnn")
    assert [(row.kind[::2], row.planned) for row in rows] == [(digits, 16)] * 2 + [(folder, 4)] * 2
    # 4 steps of 2 · 4 images; 2 evaluations of 48 · 0.2 images; twice 24 + 9.6 at the end
    assert rows[-1].seconds_per_run == pytest.approx(64 + 19.2 + 67.2)


def test_datasets_that_are_not_at_hand_are_all_named(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNSEEN_DATA", str(tmp_path))
    monkeypatch.setenv("UNSEEN_CACHE", str(tmp_path / "cache"))
    changes = {"datasets": "digits,vlcs,colored_mnist", "methods": "aggregate", "pairs": "none"}
    with pytest.raises(SettingsError) as caught:
        plan_sweep(load_sweep(small, changes), "small")
    for text in (
        "datasets: vlcs: where is the dataset 'vlcs'?",
        "datasets: colored_mnist: where is the dataset 'colored_mnist'?",
        "datasets: those at hand are digits",
    ):
        assert text in str(caught.value)


@pytest.mark.parametrize("method", catalog.METHODS)
def test_every_method_is_timed_on_noise(method: str) -> None:
    settings = {"network.image_size": 16, "data.unseen_domain": "plain"}
    experiment = load_experiment(f"digits/{method}", settings)
    before, threads = identity(experiment), torch.get_num_threads()
    times = time_method(experiment, 3, 7, threads=1, gpu=False)
    assert times.training > 0
    assert times.evaluation > 0
    assert (identity(experiment), torch.get_num_threads()) == (before, threads)


def test_the_shipped_benchmark() -> None:
    """ColoredMNIST has no pairs."""
    sweep = load_sweep("domainbed")
    assert sweep.rules == ("source", "last", "leave-one-domain-out", "oracle")
    assert sweep.by_dataset["colored_mnist"].pairs == "none"
    parts = find_parts(sweep, "domainbed")
    assert len(parts) == 7 * 22
    for part in parts:
        experiment = part.experiment
        mnist = part.dataset.endswith("mnist")
        assert experiment.network.name == ("mnist_cnn" if mnist else "resnet50_v1")
        assert experiment.network.freeze_until is None
        assert experiment.schedule.name == "constant"
        assert experiment.optimizer.lr == (1e-3 if mnist else 5e-5)
        assert experiment.images_per_domain == (64 if mnist else 32)
        assert experiment.data.validation_share == 0.2
        assert experiment.steps == (15000 if part.dataset == "domainnet" else 5000)
        assert len(draws_of(sweep, part, seed=2)) == 20
