"""A trained model: from a run folder, or in the layout of the Hugging Face Hub."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub import ModelHubMixin, constants, snapshot_download

from unseen.atomic import read_json, write_json, write_text
from unseen.cards.card import model_card
from unseen.config import Experiment, complete_settings
from unseen.data.augment import PixelScale, to_input
from unseen.data.batch import Task
from unseen.errors import UnseenError
from unseen.methods.base import Method
from unseen.methods.kinds import DomainAware
from unseen.recipe_files import build_experiment
from unseen.records.folder import RunFolder
from unseen.serving.devices import choose_device
from unseen.serving.export.metadata import are_names
from unseen.serving.predictor import Answers, Predictor
from unseen.training.build import build_method
from unseen.training.checkpoints import load_weights, save_weights

FORMAT = 1
_CONFIG = constants.CONFIG_NAME
_WEIGHTS = constants.SAFETENSORS_SINGLE_FILE
_CARD = "README.md"


class Model(Predictor, ModelHubMixin):
    """A method with trained weights, its settings and its model card.

    `save_pretrained`, `from_pretrained` and `push_to_hub` are those of `huggingface_hub`.
    """

    def __init__(
        self, method: Method, experiment: Experiment, card: str, device: str = "auto"
    ) -> None:
        self.device = choose_device(device)
        self.method = _without_training_parts(method).to(self.device).eval().requires_grad_(False)
        self.experiment = experiment
        self.card = card
        self.classes = list(method.task.classes)
        self.domains = list(method.task.domains)
        self.image_size = method.network.image_size
        self.has_opinions = isinstance(method, DomainAware)
        self.scale = PixelScale(method.network.mean, method.network.std)

    def __repr__(self) -> str:
        return (
            f"Model({self.experiment.method.name}, {self.experiment.network.name}, "
            f"{len(self.classes)} classes, trained on {', '.join(self.domains)})"
        )

    @classmethod
    def from_run(cls, folder: RunFolder, device: str = "auto") -> "Model":
        """A finished run with the weights that its selection rule chose."""
        settings, result = folder.read_settings(), folder.read_result()
        experiment = build_experiment(settings, str(folder.settings))
        names = (list(result.classes), list(result.training_domains))
        weights = folder.weights(result.selection)
        card = model_card(settings, result, read_json(folder.data))
        return cls(_trained(experiment, names, weights), experiment, card, device)

    @classmethod
    def from_folder(
        cls, folder: Path, device: str = "auto", trust_imports: bool = False
    ) -> "Model":
        """A folder that `save_pretrained` made; code that its settings name is imported only with
        `trust_imports`."""
        config = read_json(folder / _CONFIG)
        if not isinstance(config, dict) or config.get("library") != "unseen":
            raise UnseenError(
                f"{folder} holds a model of another library: {_CONFIG} does not say "
                '"library": "unseen"; only models saved by unseen can be opened'
            )
        if config.get("format") != FORMAT:
            raise UnseenError(
                f"{folder / _CONFIG} has format {config.get('format')}, expected {FORMAT}; "
                "open it with the version of unseen that wrote it"
            )
        if not isinstance(config.get("settings"), dict) or not are_names(
            config.get("classes"), config.get("domains")
        ):
            raise UnseenError(
                f"{folder / _CONFIG} is damaged: it lacks settings, or names of classes and domains"
            )
        if not trust_imports:
            _refuse_imports(config["settings"], folder / _CONFIG)
        experiment = build_experiment(config["settings"], str(folder / _CONFIG))
        names = (config["classes"], config["domains"])
        method = _trained(experiment, names, folder / _WEIGHTS)
        card = folder / _CARD
        text = card.read_text(encoding="utf-8") if card.is_file() else ""
        return cls(method, experiment, text, device)

    def _save_pretrained(self, save_directory: Path) -> None:
        save_weights(save_directory / _WEIGHTS, self.method)
        write_json(
            save_directory / _CONFIG,
            {
                "library": "unseen",
                "format": FORMAT,
                "classes": self.classes,
                "domains": self.domains,
                "settings": published_settings(self.experiment),
            },
        )
        write_text(save_directory / _CARD, self.card)

    @classmethod
    def _from_pretrained(
        cls,
        *,
        model_id: str,
        revision: str | None,
        cache_dir: str | Path | None,
        force_download: bool,
        local_files_only: bool,
        token: str | bool | None,
        device: str = "auto",
        trust_imports: bool = False,
        **_: object,
    ) -> "Model":
        folder = Path(model_id)
        if not folder.is_dir():
            downloaded = snapshot_download(
                model_id,
                revision=revision,
                cache_dir=cache_dir,
                force_download=force_download,
                local_files_only=local_files_only,
                token=token,
                allow_patterns=[_CONFIG, _WEIGHTS, _CARD],
            )
            folder = Path(downloaded)
        return cls.from_folder(folder, device, trust_imports)

    @torch.no_grad()
    def answer(self, pixels: np.ndarray, domain: int | None, opinions: bool) -> Answers:
        images = torch.from_numpy(pixels).to(self.device).permute(0, 3, 1, 2)
        inputs = to_input(images, self.scale)
        if not opinions or not isinstance(self.method, DomainAware):
            scores = self.method.predict(inputs, domain)
            return Answers(scores.softmax(dim=1).cpu().numpy(), None)
        scores, each = self.method.scores_and_opinions(inputs)
        if domain is not None:
            scores = each[domain]
        by_image = each.transpose(0, 1).softmax(dim=2)
        return Answers(scores.softmax(dim=1).cpu().numpy(), by_image.cpu().numpy())


def _refuse_imports(settings: Mapping[str, Any], path: Path) -> None:
    """A method, dataset or network `module:Name` is code, and a folder may come from anywhere."""
    sections = {name: settings.get(name) for name in ("method", "data", "network")}
    for section, value in sections.items():
        name = str(value.get("name", "")) if isinstance(value, dict) else ""
        if ":" in name and not (section == "network" and name.startswith("timm:")):
            raise UnseenError(
                f"{path} asks to import code: {section}.name is '{name}'. It was not opened; if "
                "you trust it, use Model.from_pretrained(FOLDER, trust_imports=True)"
            )


def published_settings(experiment: Experiment) -> dict[str, Any]:
    """All settings but where files lay on the machine that trained."""
    settings = complete_settings(experiment)
    settings["data"]["root"] = None
    if not isinstance(experiment.network.pretrained, bool):
        settings["network"]["pretrained"] = experiment.network.pretrained.name
    return settings


def _trained(experiment: Experiment, names: tuple[list[str], list[str]], weights: Path) -> Method:
    """Built without a download, for the weights are at hand, and not compiled."""
    classes, domains = names
    plain = experiment.network.model_copy(update={"pretrained": False})
    target = experiment.data.unseen_domain[0] if experiment.setting == "adaptation" else None
    task = Task(tuple(classes), tuple(domains), target)
    method = build_method(experiment.model_copy(update={"network": plain, "compile": False}), task)
    try:
        load_weights(weights, method)
    except UnseenError as error:
        raise UnseenError(
            f"{error}\nThe model's settings say: {experiment.method.name} on "
            f"{experiment.network.name}, {len(classes)} classes, {len(domains)} training domains. "
            f"Put the file that belongs to them back, or train the run again"
        ) from error
    return method


def _without_training_parts(method: Method) -> Method:
    for name in method.traits.training_only:
        if hasattr(method, name):
            delattr(method, name)
    return method
