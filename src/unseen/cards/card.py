"""The model card: what a model is, what it was given, how it did, and where it ends. No torch.

Markdown with the front matter that the Hugging Face Hub reads. Equal runs have equal cards.
"""

from collections.abc import Mapping
from typing import Any

import yaml

from unseen.atomic import read_json, write_text
from unseen.cards.limits import limits
from unseen.records.folder import RunFolder
from unseen.records.result import RunResult
from unseen.records.views import VIEWS
from unseen.reports.gather import column_name
from unseen.reports.notes import rule_note

Content = Mapping[str, Any]


def model_card(settings: Content, result: RunResult, data: Content) -> str:
    """`settings` and `data` are the content of settings.json and data.json."""
    sections = [
        _front_matter(result),
        f"# {_title(result)}",
        _introduction(settings, result),
        "## Data\n\n" + _data(result, data),
        "## Results\n\n" + _results(result),
        "## Intended use\n\n" + _intended_use(result),
        "## Limits\n\n" + "\n".join(f"- {limit}" for limit in limits(result, data)),
        "## How to use it\n\n" + _how_to_use(result),
        "## Training settings\n\n" + _settings(settings),
    ]
    return "\n\n".join(sections) + "\n"


def write_card(folder: RunFolder, settings: Content, result: RunResult) -> None:
    """Beside the model that a run leaves."""
    write_text(folder.card, model_card(settings, result, read_json(folder.data)))


def _title(result: RunResult) -> str:
    return f"{result.method} on {result.dataset} ({result.backbone})"


def _front_matter(result: RunResult) -> str:
    """What the Hub sorts models by. The licence is left to whoever owns the images."""
    adapted = result.setting == "adaptation"
    content = {
        "library_name": "unseen",
        "pipeline_tag": "image-classification",
        "tags": [
            "unseen",
            "domain-adaptation" if adapted else "domain-generalization",
            result.method,
            result.backbone,
        ],
        "metrics": ["accuracy"],
        "model-index": [{"name": _title(result), "results": _index(result)}],
    }
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=1000)
    return f"---\n{text}---"


def _index(result: RunResult) -> list[dict[str, Any]]:
    """One entry for each view and domain."""
    return [
        {
            "task": {"type": "image-classification"},
            "dataset": {"name": f"{result.dataset}, {domain}", "type": result.dataset},
            "metrics": [
                {
                    "type": "accuracy",
                    "value": round(measured.accuracy, 4),
                    "name": f"accuracy, {about.title}",
                }
            ],
        }
        for view, about in VIEWS.items()
        for domain, measured in result.view(result.selection, view).items()
    ]


def _introduction(settings: Content, result: RunResult) -> str:
    size = settings["network"]["image_size"]
    pixels = f" at {size} px" if size else ""
    return (
        f"An image classifier for {len(result.classes)} classes, trained by the method "
        f"`{result.method}` of the Python package `unseen` with the network "
        f"`{result.backbone}`{pixels}, "
        "so that it holds up in domains (styles, cameras, places) that it was not trained on.\n\n"
        f"Classes: {', '.join(result.classes)}."
    )


def _data(result: RunResult, data: Content) -> str:
    lines = [
        f"Dataset `{result.dataset}`, content digest `{result.data[:16]}`.",
        "",
        "| domain | role | images to train | to choose the checkpoint | to test |",
        "|---|---|---|---|---|",
    ]
    for domain in result.training_domains:
        numbers = (data[part].get(domain, 0) for part in ("train", "validation", "in_domain"))
        lines.append(_row(domain, "trained on", *numbers))
    adapted = result.setting == "adaptation"
    for domain in result.unseen_domains:
        role = "target, seen without labels" if adapted else "held out"
        train = f"{data['target']} without labels" if adapted else "0"
        test = data["out_of_domain"].get(domain, 0)
        lines.append(_row(domain, role, train, 0, test))
    if not result.unseen_domains:
        lines += ["", "No domain was held out."]
    return "\n".join(lines)


def _results(result: RunResult) -> str:
    rule = result.selection
    lines = [
        f"Step {result.under(rule).step} of {result.steps}, seed {result.seed}. {rule_note(rule)}",
        "",
        "| view | domain | accuracy | images | calibration error |",
        "|---|---|---|---|---|",
    ]
    for view, about in VIEWS.items():
        for domain, measured in result.view(rule, view).items():
            accuracy, error = f"{measured.accuracy:.1%}", f"{measured.calibration_error:.1%}"
            lines.append(_row(about.title, domain, accuracy, measured.images, error))
    meanings = [f"- {about.title}: {about.meaning}" for about in VIEWS.values()]
    return "\n".join([*lines, "", *meanings])


def _row(*cells: object) -> str:
    return f"| {' | '.join(str(cell).replace('|', '&#124;') for cell in cells)} |"


def _intended_use(result: RunResult) -> str:
    unseen = column_name(result.unseen_domains)
    tested = (
        f"It was tested on {unseen}, and on held-out images of its training domains"
        if result.unseen_domains
        else "It was tested on held-out images of its training domains alone"
    )
    return (
        "Research on domain generalization, and sorting images into the classes above where a "
        "person can look at what matters. "
        f"{tested}: measure it on some labelled images of your own domain before you rely on it "
        "(`unseen evaluate RUN --data FOLDER`)."
    )


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
    """Complete, but for where files lay and on which devices it ran."""
    shown = {key: value for key, value in settings.items() if key != "devices"}
    shown["data"] = {key: value for key, value in settings["data"].items() if key != "root"}
    pretrained = settings["network"]["pretrained"]
    if isinstance(pretrained, str):
        name = pretrained.replace("\\", "/").rpartition("/")[2]
        shown["network"] = {**settings["network"], "pretrained": name}
    text = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=1000)
    return f"```yaml\n{text}```"
