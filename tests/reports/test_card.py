"""The model card says what happened, and what should not be concluded from it."""

import re
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard
from tests.made_results import counted, made_result

from unseen.reports.card import model_card
from unseen.results.result import RuleResult, Views

VIEWS: Views = {
    "out_of_domain": {"sketch": counted([[4, 1], [4, 1]], error=0.251)},
    "in_domain": {"photo": counted([[9, 1], [1, 9]], error=0.02)},
    "known_domain": {"photo": counted([[10, 0], [1, 9]], error=0.02)},
}
RULES = {
    "source": RuleResult(step=200, views=VIEWS),
    "last": RuleResult(step=300, views={}),
    "oracle": RuleResult(step=100, views=VIEWS),
}


def card(data: dict[str, Any] | None = None, pretrained: Any = False, **result: Any) -> str:
    """The card of a run of `dmg` with these changes."""
    settings = {
        "data": {"name": "pacs", "root": "/home/somebody/PACS"},
        "network": {"name": "resnet18", "image_size": 128, "pretrained": pretrained},
        "devices": {"number": 2},
        "seed": 3,
    }
    numbers = {
        "train": {"photo": 100},
        "validation": {"photo": 11},
        "in_domain": {"photo": 20},
        "out_of_domain": {"sketch": 10},
    }
    about = {
        "seed": 3,
        "training_domains": ("photo",),
        "unseen_domains": ("sketch",),
        "classes": ("cat", "dog"),
        "data": "0123456789abcdef0123",
        "results": RULES,
    }
    images = {"image_size": 128, "left_out": [], "target": 0, **numbers}
    return model_card(settings, made_result("dmg", {}, **about | result), images | (data or {}))


def test_all_sections_in_order() -> None:
    text = card()
    assert [line.lstrip("# ") for line in text.splitlines() if line.startswith("#")] == [
        *("dmg on pacs (resnet18)", "Data", "Results", "Intended use", "Limits"),
        *("How to use it", "Training settings"),
    ]
    for line in (
        "| photo | trained on | 100 | 11 | 20 |",
        "| sketch | unseen | 0 | 0 | 10 |",
        "Step 200 of 300, seed 3. Selection rule source: best mean validation",
        "| sketch | out of domain | 50.0% | 50.0% | 10 | 25.1% |",
        "| photo | in domain | 90.0% | 50.0% | 20 | 2.0% |",
        "| photo | known domain | 95.0% | 50.0% | 20 | 2.0% |",
        "tested on sketch",
    ):
        assert line in text
    assert text == card()


def test_limits_that_always_hold() -> None:
    text = card()
    for limit in (
        "one run with one seed (3)",
        "it was tested on sketch only",
        "On sketch it is weakest on dog: 20.0% of these were recognised.",
        "On sketch its confidence is off by 25.1% on average",
        "one of its 2 classes, also for an image that shows none",
        "128 x 128 pixels",
    ):
        assert limit in text
    for other in ("oracle", "unlabelled images", "left out"):
        assert other not in text


def test_limits_of_some() -> None:
    assert "chosen by the labels of the unseen domain (rule oracle)" in card(selection="oracle")
    adapted = card({"target": 55}, setting="adaptation")
    assert "Training saw unlabelled images of sketch" in adapted
    assert "| sketch | target, seen without labels | 55 without labels | 0 | 10 |" in adapted
    assert "- domain-adaptation" in adapted
    remarked = card({"left_out": ["a", "b"]}, remarks=("Mind the gap.",))
    assert "- Mind the gap.\n" in remarked
    assert "- 2 unreadable images of the dataset were left out.\n" in remarked
    bound = card(training_domains=("photo", "sketch"), trained_on_unseen=True)
    assert "| sketch | upper bound | 50.0%" in bound
    assert "- upper bound: test images of a domain whose other images trained" in bound


def test_where_no_domain_was_held_out() -> None:
    results = {"source": RuleResult(step=1, views={})}
    text = card({"out_of_domain": {}}, unseen_domains=(), results=results)
    assert "No domain was held out.\n" in text
    assert "nothing is known about domains it was not trained on" in text
    assert "tested on test images of its training domains alone" in text


@pytest.mark.parametrize("file", ["/home/somebody/weights.pth", "C:\\home\\somebody\\weights.pth"])
def test_nothing_of_the_machine_that_trained(file: str) -> None:
    text = card(pretrained=file)
    assert "somebody" not in text
    assert "pretrained: weights.pth" in text
    shown = yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])
    assert (shown["data"], shown["seed"]) == ({"name": "pacs"}, 3)
    assert "devices" not in shown


def test_strange_names_break_nothing() -> None:
    """Names come from folders, and folders from strangers."""
    domain, hostile = "a|b: c", "[x](http://evil) <b>\n# Heading\n```"
    views: Views = {"out_of_domain": {domain: counted([[4, 1], [4, 1]])}}
    names = {"classes": (hostile, "-dog"), "training_domains": (f"{hostile}; rm -rf /",)}
    names |= {"recipe": hostile, "remarks": (hostile,), "dataset": "`pacs`", "backbone": hostile}
    rules = {"source": RuleResult(step=1, views=views)}
    data = {"out_of_domain": {domain: 10}}
    text = card(data, unseen_domains=(domain,), results=rules, **names)
    assert "| a\\|b: c | unseen | 0 | 0 | 10 |" in text
    body = text.split("\n---\n", 1)[1]
    assert "# Heading" not in [line.strip() for line in body.splitlines()]
    assert body.count("\n```") == 2 * len(("shell", "python", "settings"))
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", body, flags=re.S)
    assert not re.search(r"(?<!\\)<b>|(?<!\\)\[x", prose)
    parsed = ModelCard(text).data
    assert parsed.eval_results is not None
    assert parsed.eval_results[0].dataset_name == "`pacs`, a|b: c"
    assert parsed.eval_results[0].metric_value == pytest.approx(0.5)
