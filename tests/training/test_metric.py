"""`metric` and `sampling=class_balanced` in whole runs: selection, resume, oracle."""

from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from tests.tiny import tiny, train

from unseen.data.dataset import open_dataset
from unseen.data.roles import choose_roles
from unseen.results.rules import Evaluation, choose, recorded_validation
from unseen.training.build import build_sampler
from unseen.training.first_pass import shares

RARE = {"metric": "balanced", "sampling": "class_balanced", "images_per_domain": 4}


def test_the_metric_decides_and_not_accuracy() -> None:
    first = Evaluation(10, {"a": 0.9}, metric="balanced", validation_metric={"a": 0.3})
    second = Evaluation(20, {"a": 0.8}, metric="balanced", validation_metric={"a": 0.5})
    assert choose("source", [first, second]) == 20
    assert second.score == 0.5
    looks = [
        first._replace(unseen={"u": 0.9}, unseen_metric={"u": 0.1}),
        second._replace(unseen={"u": 0.8}, unseen_metric={"u": 0.2}),
    ]
    assert choose("oracle", looks) == 20
    assert choose("source", [each._replace(validation_metric=None) for each in looks]) == 10


def test_an_older_record_has_accuracies_that_decide() -> None:
    assert recorded_validation({"step": 1, "validation": {"a": 0.5}}) == {"a": 0.5}
    record = {"step": 1, "validation": {"a": 0.5}, "validation_macro_f1": {"a": 0.4}}
    assert recorded_validation(record) == {"a": 0.4}


@pytest.mark.parametrize("metric", ["balanced", "macro_f1"])
def test_a_run_records_and_chooses_by_its_metric(metric, tmp_path: Path) -> None:
    folder = train(tiny(metric=metric, selection="oracle", evaluate_every=1), tmp_path / "run")
    records = [record for record in folder.read_metrics() if "validation" in record]
    assert all(r[f"validation_{metric}"].keys() == r["validation"].keys() for r in records)
    result = folder.read_result()
    assert result.metric == metric
    best = max(fmean(record[f"validation_{metric}"].values()) for record in records)
    chosen = next(r for r in records if r["step"] == result.under("source").step)
    assert fmean(chosen[f"validation_{metric}"].values()) == best
    looked = next(r for r in records if r["step"] == result.under("oracle").step)
    looks = [record[f"unseen_{metric}"]["outlines"] for record in records]
    assert looked[f"unseen_{metric}"]["outlines"] == max(looks)
    measured = result.view("oracle", "out_of_domain")["outlines"]
    assert measured.measures[metric] == looked[f"unseen_{metric}"]["outlines"]
    assert measured.accuracy == looked["unseen"]["outlines"]


def test_the_sampler_of_a_run_knows_its_labels() -> None:
    experiment = tiny(sampling="class_balanced", images_per_domain=10)
    index = open_dataset(experiment.data).index()
    sampler = build_sampler(experiment, choose_roles(index, experiment.data))
    rows, domains, _ = sampler.positions(4)
    for domain in range(3):
        assert sorted(index.labels[rows[domains == domain]]) == list(range(10))


def test_classes_weigh_the_same_in_a_head_that_is_fitted_first() -> None:
    labels = np.array([3, 3, 3, 7])
    assert shares(labels, by_class=False).tolist() == [1 / 4] * 4
    assert shares(labels, by_class=True).tolist() == [1 / 6, 1 / 6, 1 / 6, 1 / 2]
