"""The model card says what happened, and what should not be concluded from it."""

from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard
from tests.made_results import counted, made_result

from unseen.reports.card import model_card
from unseen.results.result import RuleResult, RunResult, Views


def result(**changes: Any) -> RunResult:
    views: Views = {
        "out_of_domain": {"sketch": counted([[4, 1], [4, 1]], error=0.251)},
        "in_domain": {"photo": counted([[9, 1], [1, 9]], error=0.02)},
        "known_domain": {"photo": counted([[10, 0], [1, 9]], error=0.02)},
    }
    about = {
        "seed": 3,
        "training_domains": ("photo",),
        "unseen_domains": ("sketch",),
        "classes": ("cat", "dog"),
        "data": "0123456789abcdef0123",
        "results": {
            "source": RuleResult(step=200, views=views),
            "last": RuleResult(step=300, views={}),
            "oracle": RuleResult(step=100, views=views),
        },
    }
    return made_result("dmg", {}, **about | changes)


def data(**changes: Any) -> dict[str, Any]:
    return {
        "image_size": 128,
        "left_out": [],
        "train": {"photo": 100},
        "validation": {"photo": 11},
        "in_domain": {"photo": 20},
        "out_of_domain": {"sketch": 10},
        "target": 0,
    } | changes


def settings(**network: Any) -> dict[str, Any]:
    return {
        "data": {"name": "pacs", "root": "/home/somebody/PACS"},
        "network": {"name": "resnet18", "image_size": 128, "pretrained": False} | network,
        "devices": {"number": 2},
        "seed": 3,
    }


def test_all_sections_in_order() -> None:
    card = model_card(settings(), result(), data())
    headings = [line for line in card.splitlines() if line.startswith("#")]
    assert headings == [
        "# dmg on pacs (resnet18)",
        "## Data",
        "## Results",
        "## Intended use",
        "## Limits",
        "## How to use it",
        "## Training settings",
    ]
    assert "| photo | trained on | 100 | 11 | 20 |" in card
    assert "| sketch | held out | 0 | 0 | 10 |" in card
    assert "Step 200 of 300, seed 3. Selection rule source: best mean validation" in card
    assert "| sketch | out of domain | 50.0% | 50.0% | 10 | 25.1% |" in card
    assert "| photo | in domain | 90.0% | 50.0% | 20 | 2.0% |" in card
    assert "| photo | known domain | 95.0% | 50.0% | 20 | 2.0% |" in card
    assert "tested on sketch" in card
    assert card == model_card(settings(), result(), data())


def test_limits_that_always_hold() -> None:
    card = model_card(settings(), result(), data())
    assert "one run with one seed (3)" in card
    assert "it was tested on sketch only" in card
    assert "On sketch it is weakest on dog: 20.0% of these were recognised." in card
    assert "On sketch its confidence is off by 25.1% on average" in card
    assert "one of its 2 classes, also for a picture that shows none" in card
    assert "128 x 128 pixels" in card
    assert "oracle" not in card
    assert "unlabelled images" not in card
    assert "left out" not in card


def test_limits_of_some() -> None:
    oracle = model_card(settings(), result(selection="oracle"), data())
    assert "chosen by the labels of the unseen domain (rule oracle)" in oracle
    adapted = model_card(settings(), result(setting="adaptation"), data(target=55))
    assert "Training saw unlabelled images of sketch" in adapted
    assert "| sketch | target, seen without labels | 55 without labels | 0 | 10 |" in adapted
    assert "- domain-adaptation" in adapted
    remarked = model_card(settings(), result(remarks=("Mind the gap.",)), data(left_out=["a", "b"]))
    assert "- Mind the gap.\n" in remarked
    assert "- 2 unreadable images of the dataset were left out.\n" in remarked


def test_where_no_domain_was_held_out() -> None:
    results = {"source": RuleResult(step=1, views={})}
    card = model_card(
        settings(), result(unseen_domains=(), results=results), data(out_of_domain={})
    )
    assert "No domain was held out.\n" in card
    assert "nothing is known about domains it was not trained on" in card
    assert "tested on held-out images of its training domains alone" in card


def test_nothing_of_the_machine_that_trained() -> None:
    for pretrained in ("/home/somebody/weights.pth", "C:\\home\\somebody\\weights.pth"):
        card = model_card(settings(pretrained=pretrained), result(), data())
        assert "somebody" not in card
        assert "pretrained: weights.pth" in card
    shown = yaml.safe_load(card.partition("```yaml\n")[2].partition("```")[0])
    assert shown["data"] == {"name": "pacs"}
    assert shown["seed"] == 3
    assert "devices" not in shown


def test_strange_names_break_nothing() -> None:
    views: Views = {"out_of_domain": {"a|b: c": counted([[4, 1], [4, 1]])}}
    rules = {"source": RuleResult(step=1, views=views)}
    strange = result(unseen_domains=("a|b: c",), results=rules)
    card = model_card(settings(), strange, data(out_of_domain={"a|b: c": 10}))
    assert "| a\\|b: c | held out | 0 | 0 | 10 |" in card
    parsed = ModelCard(card).data
    assert parsed.eval_results is not None
    assert parsed.eval_results[0].dataset_name == "pacs, a|b: c"
    assert parsed.eval_results[0].metric_value == pytest.approx(0.5)
