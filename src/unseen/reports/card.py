"""The model card: what a model is, its data, its results and its limits. No torch.

`card.md` is its text: Markdown with the front matter that the Hugging Face Hub reads. Equal runs
have equal cards.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import yaml

from unseen.atomic import read_json, write_text
from unseen.reports.formats import result_table
from unseen.reports.text import code, escaped, one_line, pipe_table
from unseen.results.folder import RunFolder
from unseen.results.result import VIEWS, RunResult
from unseen.results.rules import rule_note
from unseen.settings.experiment import METRICS, Metric

Content = Mapping[str, Any]
"""Of settings.json or data.json."""
_MUCH = 0.1
"""A calibration error worth a warning."""
_HUB_NAMES: dict[Metric, str] = {
    "accuracy": "accuracy",
    "balanced": "balanced_accuracy",
    "macro_f1": "f1",
}


def model_card(settings: Content, result: RunResult, data: Content) -> str:
    from jinja2 import Environment

    metrics: list[Metric] = list(dict.fromkeys((result.metric, "accuracy")))
    title = f"{result.label} on {result.dataset} ({result.backbone})"
    views = result.under(result.selection).views
    merged = [
        (e.folder, e.seed, e.steps, f"{e.validation:.1%}", "yes" if e.averaged else "no")
        for e in (result.merged.runs if result.merged else ())
    ]
    content = {
        "settings": settings,
        "result": result,
        "data": data,
        "title": title,
        "front_matter": _front_matter(result, title, metrics),
        "data_table": _data_table(result, data),
        "rule_note": rule_note(result.selection, result.metric),
        "results_table": pipe_table(*result_table(views, metrics, result.view_texts)),
        "merged_table": pipe_table(("run", "seed", "steps", "validation", "averaged"), merged),
        "weaknesses": list(_weaknesses(result)),
        "shown_settings": _shown(settings),
    }
    environment = Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    filters = {"text": escaped, "code": code, "word": lambda name: quote(one_line(name))}
    environment.filters |= filters
    template = Path(__file__).with_name("card.md").read_text(encoding="utf-8")
    return environment.from_string(template).render(content)


def write_card(folder: RunFolder, settings: Content, result: RunResult) -> None:
    """Writes the card beside the model that a run leaves."""
    write_text(folder.card, model_card(settings, result, read_json(folder.data)))


def _front_matter(result: RunResult, title: str, metrics: Iterable[Metric]) -> str:
    """Returns what the Hub sorts models by. The licence is left to whoever owns the images."""
    from huggingface_hub import EvalResult, ModelCardData

    goal = "domain-adaptation" if result.setting == "adaptation" else "domain-generalization"
    about = ModelCardData(
        library_name="unseen",
        pipeline_tag="image-classification",
        tags=["unseen", goal, result.method, result.backbone],
        metrics=[_HUB_NAMES[metric] for metric in metrics],
        model_name=title,
        eval_results=[
            EvalResult(
                task_type="image-classification",
                dataset_type=result.dataset,
                dataset_name=f"{result.dataset}, {domain}",
                dataset_config=domain,
                metric_type=_HUB_NAMES[metric],
                metric_value=round(measured.measures[metric], 4),
                metric_name=f"{METRICS[metric]}, {result.view_texts[view].title}",
            )
            for metric in metrics
            for view in VIEWS
            for domain, measured in result.view(result.selection, view).items()
        ],
    )
    return about.to_yaml()


def _data_table(result: RunResult, data: Content) -> str:
    parts = ("train", "validation", "in_domain")
    rows: list[Sequence[object]] = [
        (domain, "trained on", *(data[part].get(domain, 0) for part in parts))
        for domain in result.source_domains
    ]
    role, unlabelled = "unseen", ""
    if result.trained_on_unseen:
        role = "trained on, and measured as if unseen (upper bound)"
    elif result.setting == "adaptation":
        role, unlabelled = "target, seen without labels", " without labels"
    for domain in result.unseen_domains:
        target = data.get("target_by_domain", {}).get(domain, data["target"])
        train = target if unlabelled else data["train"].get(domain, 0)
        rows.append((domain, role, f"{train}{unlabelled}", 0, data["out_of_domain"].get(domain, 0)))
    header = ("domain", "role", "images to train", "to choose the checkpoint", "to test")
    return pipe_table(header, rows)


def _weaknesses(result: RunResult) -> Iterator[tuple[str, str, str, str]]:
    """Yields each unseen domain with its weakest class, the share of it that was recognised, and
    how far confidence is off, where that is much."""
    for domain, measured in result.view(result.selection, "out_of_domain").items():
        worst = int(np.nanargmin(measured.recall))
        name = result.names_of(measured.confusion)[worst]
        after = measured.calibrated_error
        error = measured.calibration_error if after is None else after
        yield domain, name, f"{measured.recall[worst]:.1%}", f"{error:.1%}" * (error > _MUCH)


def _shown(settings: Content) -> str:
    """Returns all settings, except where files were and on which devices it ran."""
    shown = {key: value for key, value in settings.items() if key != "devices"}
    shown["data"] = {key: value for key, value in settings["data"].items() if key != "root"}
    pretrained = settings["network"]["pretrained"]
    if isinstance(pretrained, str):
        name = pretrained.replace("\\", "/").rpartition("/")[2]
        shown["network"] = {**settings["network"], "pretrained": name}
    return yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=math.inf)
