"""The model card: what a model is, its data, its results and its limits. No torch.

Markdown with the front matter that the Hugging Face Hub reads. Equal runs have equal cards.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import yaml

from unseen.atomic import read_json, write_text
from unseen.reports.formats import result_table
from unseen.reports.text import escaped, pipe_table
from unseen.results.folder import RunFolder
from unseen.results.result import VIEWS, DomainResult, RunResult
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
    sections = [
        _front_matter(result),
        f"# {_title(result)}",
        _introduction(settings, result),
        "## Data\n\n" + _data(result, data),
        "## Results\n\n" + _results(result),
        *_calibrated(result),
        *_merged_from(result),
        "## Intended use\n\n" + _intended_use(result),
        "## Limits\n\n" + "\n".join(f"- {limit}" for limit in limits(result, data)),
        "## How to use it\n\n" + _how_to_use(result),
        "## Training settings\n\n" + _settings(settings),
    ]
    return "\n\n".join(sections) + "\n"


def write_card(folder: RunFolder, settings: Content, result: RunResult) -> None:
    """Writes the card beside the model that a run leaves."""
    write_text(folder.card, model_card(settings, result, read_json(folder.data)))


def _title(result: RunResult) -> str:
    return f"{result.label} on {result.dataset} ({result.backbone})"


def _front_matter(result: RunResult) -> str:
    """Returns what the Hub sorts models by. The licence is left to whoever owns the images."""
    from huggingface_hub import EvalResult, ModelCardData

    goal = "domain-adaptation" if result.setting == "adaptation" else "domain-generalization"
    about = ModelCardData(
        library_name="unseen",
        pipeline_tag="image-classification",
        tags=["unseen", goal, result.method, result.backbone],
        metrics=[_HUB_NAMES[metric] for metric in _metrics(result)],
        model_name=_title(result),
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
            for metric in _metrics(result)
            for view in VIEWS
            for domain, measured in result.view(result.selection, view).items()
        ],
    )
    return f"---\n{about.to_yaml()}\n---"


def _introduction(settings: Content, result: RunResult) -> str:
    size = settings["network"]["image_size"]
    pixels = f" at {size} px" if size else ""
    purpose = "so that it holds up in domains (styles, cameras, places) that it was not trained on"
    if result.trained_on_unseen:
        purpose = "as an upper bound: labels of the domain that it is measured on trained it, too"
    return (
        f"An image classifier for {len(result.classes)} classes, trained by the method "
        f"`{result.method}` of the Python package `unseen` with the network "
        f"`{result.backbone}`{pixels}, {purpose}.\n\n"
        f"Classes: {', '.join(result.classes)}."
    )


def _data(result: RunResult, data: Content) -> str:
    rows: list[Sequence[object]] = []
    for domain in result.source_domains:
        numbers = (data[part].get(domain, 0) for part in ("train", "validation", "in_domain"))
        rows.append((domain, "trained on", *numbers))
    role, unlabelled = "held out", ""
    if result.trained_on_unseen:
        role = "trained on, and measured as if unseen (upper bound)"
    elif result.setting == "adaptation":
        role, unlabelled = "target, seen without labels", " without labels"
    for domain in result.unseen_domains:
        target = data.get("target_by_domain", {}).get(domain, data["target"])
        train = target if unlabelled else data["train"].get(domain, 0)
        rows.append((domain, role, f"{train}{unlabelled}", 0, data["out_of_domain"].get(domain, 0)))
    header = ("domain", "role", "images to train", "to choose the checkpoint", "to test")
    text = f"Dataset `{result.dataset}`, content digest `{result.data[:16]}`."
    text += f"\n\n{_table(header, rows)}"
    return text if result.unseen_domains else f"{text}\n\nNo domain was held out."


def _results(result: RunResult) -> str:
    rule = result.selection
    if result.merged is None:
        origin = f"Step {result.under(rule).step} of {result.steps}, seed {result.seed}."
    else:
        origin = result.merged.description
    table = _table(*result_table(result.under(rule).views, _metrics(result), result.view_texts))
    meanings = "\n".join(f"- {each.title}: {each.meaning}" for each in result.view_texts.values())
    meanings += "\n- largest class: the accuracy of always answering with the most frequent class"
    return f"{origin} {rule_note(rule, result.metric)}\n\n{table}\n\n{meanings}"


def _metrics(result: RunResult) -> list[Metric]:
    """Returns the metric that its checkpoint was chosen by, and accuracy."""
    return list(dict.fromkeys((result.metric, "accuracy")))


def _calibrated(result: RunResult) -> Iterator[str]:
    temperature = result.under(result.selection).temperature
    if temperature != 1:
        yield (
            "## Calibrated\n\nProbabilities are calibrated: class scores are divided by the "
            f"temperature {temperature:.4g} before they become probabilities. It was fitted on the "
            "source validation images, so it holds for their domains; in another domain confidence "
            "may still be off. The predicted classes do not change, and `--raw` (in Python "
            "`raw=True`) gives the probabilities without it. Calibration error is the mean gap "
            "between confidence and accuracy."
        )


def _merged_from(result: RunResult) -> Iterator[str]:
    if result.merged is not None:
        header = ("run", "seed", "steps", "source validation", "averaged")
        rows = [
            (e.folder, e.seed, e.steps, f"{e.validation:.1%}", "yes" if e.averaged else "no")
            for e in result.merged.runs
        ]
        first = "The settings below are those of the first of them."
        yield f"## Merged from\n\n{_table(header, rows)}\n\n{first}"


def _table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    return pipe_table(header, ([escaped(str(cell)) for cell in row] for row in rows))


def _intended_use(result: RunResult) -> str:
    unseen = ", ".join(result.unseen_domains)
    where = f"on {unseen}, and on held-out images" if unseen else "on held-out images"
    alone = "" if unseen else " alone"
    return (
        "Research on domain generalization, and sorting images into the classes above where a "
        f"person checks the answers that matter. It was tested {where} of its training "
        f"domains{alone}: measure it on some labelled images of your own domain before you rely on "
        "it (`unseen evaluate RUN --data FOLDER`)."
    )


def limits(result: RunResult, data: Content) -> list[str]:
    """Returns a sentence for each thing that users of the model should know."""
    about_domains = result.view(result.selection, "out_of_domain").items()
    return [
        *_about_numbers(result),
        *(text for name, each in about_domains for text in _about_domain(name, each, result)),
        f"It always answers with one of its {len(result.classes)} classes, also for a picture "
        "that shows none of them.",
        f"It sees {data['image_size']} x {data['image_size']} pixels, whatever the picture's size "
        "and shape.",
        *_about_unreadable(data),
        *result.remarks,
    ]


def _about_numbers(result: RunResult) -> Iterator[str]:
    origin = f"one run with one seed ({result.seed}); another seed gives"
    if result.merged is not None:
        origin = f"one model merged from {len(result.merged.runs)} runs; others would give"
    yield (
        f"All numbers come from {origin} other "
        "numbers, and the difference is often larger than that between methods."
    )
    unseen = ", ".join(result.unseen_domains)
    if result.selection == "oracle":
        yield (
            "The checkpoint was chosen by the labels of the unseen domain (rule oracle): its "
            "out-of-domain accuracy is an upper bound, not what to expect."
        )
    if result.trained_on_unseen:
        yield (
            f"It was trained on labelled images of {unseen}, too: its accuracy there is an upper "
            "bound for models without such labels, and says nothing about domains that it has not "
            "seen."
        )
    elif result.setting == "adaptation":
        yield (
            f"Training saw unlabelled images of {unseen}: its accuracy there says nothing about "
            "domains that it has not seen at all."
        )
    elif unseen:
        yield (
            f"Of all domains that it never saw, it was tested on {unseen} only; others may be "
            "harder."
        )
    else:
        yield "No domain was held out, so nothing is known about domains it was not trained on."


def _about_domain(domain: str, measured: DomainResult, result: RunResult) -> Iterator[str]:
    worst = int(np.nanargmin(measured.recall))
    name = result.names_of(measured.confusion)[worst]
    yield (
        f"On {domain} it is weakest on {name}: {measured.recall[worst]:.1%} of these "
        "were recognised."
    )
    after = measured.calibrated_error
    error = measured.calibration_error if after is None else after
    if error > _MUCH:
        yield (
            f"On {domain} its confidence is off by {error:.1%} on average: "
            "do not read its probabilities there as chances of being right."
        )


def _about_unreadable(data: Content) -> Iterator[str]:
    if data["left_out"]:
        yield f"{len(data['left_out'])} unreadable images of the dataset were left out."


def _how_to_use(result: RunResult) -> str:
    first = result.training_domains[0]
    return (
        "MODEL is this folder, or the file beside this card.\n\n"
        "```sh\n"
        "unseen predict MODEL pictures/ --top 3\n"
        f"unseen predict MODEL pictures/ --domain {first} --format csv   # the domain is known\n"
        "```\n\n"
        "```python\n"
        "import unseen\n\n"
        'model = unseen.load("MODEL")\n'
        'probabilities = model.predict(["one.jpg", "two.jpg"])   # [images, classes]\n'
        "```\n\n"
        "Pictures may have any size; they are made square and scaled as in training."
    )


def _settings(settings: Content) -> str:
    """Returns all settings, except where files were and on which devices it ran."""
    shown = {key: value for key, value in settings.items() if key != "devices"}
    shown["data"] = {key: value for key, value in settings["data"].items() if key != "root"}
    pretrained = settings["network"]["pretrained"]
    if isinstance(pretrained, str):
        name = pretrained.replace("\\", "/").rpartition("/")[2]
        shown["network"] = {**settings["network"], "pretrained": name}
    text = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=1000)
    return f"```yaml\n{text}```"
