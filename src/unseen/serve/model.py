"""A trained model: from a run folder, or in the layout of the Hugging Face Hub."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from huggingface_hub import ModelHubMixin, constants, snapshot_download

from unseen.atomic import read_json, write_json, write_text
from unseen.data.augment import PixelScale, to_input
from unseen.data.batch import Task
from unseen.errors import SettingsError, UnseenError
from unseen.forecast.profile import Profile
from unseen.methods.base import DomainAware, Method
from unseen.reports.card import model_card
from unseen.results.files import FORMAT, check_format
from unseen.results.folder import RunFolder
from unseen.serve.predictor import Answers, Predictor, are_names, is_temperature
from unseen.settings.experiment import Experiment, complete_settings
from unseen.settings.recipes import build_experiment
from unseen.training.build import build_method
from unseen.training.checkpoints import load_weights, save_weights
from unseen.training.profile import pooled_features

CONFIG = constants.CONFIG_NAME
WEIGHTS = constants.SAFETENSORS_SINGLE_FILE
CARD = "README.md"
PROFILE = "profile.npz"
FILES: list[str] = [CONFIG, WEIGHTS, CARD, PROFILE]


class SavedModel(NamedTuple):
    experiment: Experiment
    classes: list[str]
    domains: list[str]
    weights: Path
    card: str
    temperature: float | None
    """None where a version saved it that fitted none."""


def read_model_folder(folder: Path, trust_imports: bool) -> SavedModel:
    """Checked, since a folder may come from anywhere; with `trust_imports` its settings may name
    code to be imported."""
    path, card = folder / CONFIG, folder / CARD
    config = read_json(path)
    if not isinstance(config, dict) or config.get("library") != "unseen":
        raise UnseenError(
            f"{folder} holds a model of another library: {CONFIG} does not say "
            '"library": "unseen"; only models saved by unseen can be opened'
        )
    check_format(config, path, "save a run of this version, or open it with the one that wrote it")
    settings, classes, domains = (config.get(key) for key in ("settings", "classes", "domains"))
    if not isinstance(settings, dict) or not are_names(classes, domains):
        raise UnseenError(f"{path} is damaged: it lacks settings, or names of classes and domains")
    temperature = config.get("temperature")
    if temperature is not None and not is_temperature(temperature):
        raise UnseenError(f"{path} is damaged: the temperature is {temperature!r}, not above 0")
    if not trust_imports:
        _refuse_imports(settings, path)
    text = card.read_text(encoding="utf-8") if card.is_file() else ""
    experiment = build_experiment(settings, str(path))
    names = (config["classes"], config["domains"])
    return SavedModel(experiment, *names, folder / WEIGHTS, text, temperature)


def write(model: SavedModel) -> None:
    """All but the weights, beside them; settings are complete but for paths on this machine."""
    experiment, folder = model.experiment, model.weights.parent
    settings = complete_settings(experiment)
    settings["data"]["root"] = None
    if not isinstance(experiment.network.pretrained, bool):
        settings["network"]["pretrained"] = experiment.network.pretrained.name
    content: dict[str, Any] = {"classes": model.classes, "domains": model.domains}
    if model.temperature is not None:
        content["temperature"] = model.temperature
    content["settings"] = settings
    write_json(folder / CONFIG, {"library": "unseen", "format": FORMAT, **content})
    write_text(folder / CARD, model.card)


def _refuse_imports(settings: Mapping[str, Any], path: Path) -> None:
    """A method, dataset or network `module:Name` is code."""
    for section in ("method", "data", "network"):
        value = settings.get(section)
        name = str(value.get("name", "")) if isinstance(value, dict) else ""
        if ":" in name and not (section == "network" and name.startswith("timm:")):
            raise UnseenError(
                f"{path} asks to import code: {section}.name is '{name}'. It was not opened; if "
                "you trust it, use Model.from_pretrained(FOLDER, trust_imports=True)"
            )


class Model(Predictor, ModelHubMixin):
    """A method with trained weights, its settings and its model card.

    `save_pretrained`, `from_pretrained` and `push_to_hub` are those of `huggingface_hub`.
    """

    def __init__(
        self,
        method: Method,
        experiment: Experiment,
        card: str,
        device: str = "auto",
        temperature: float | None = None,
    ) -> None:
        self.fitted_temperature = temperature
        self.device = choose_device(device)
        for part in method.traits.training_only:
            if hasattr(method, part):
                delattr(method, part)
        self.method = method.to(self.device).eval().requires_grad_(False)
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
        weights = folder.weights(result.selection)
        method = trained_method(experiment, result.classes, result.training_domains, weights)
        card = model_card(settings, result, read_json(folder.data))
        temperature = result.under(result.selection).temperature
        model = cls(method, experiment, card, device, temperature)
        model.profile = _profile(folder.profile)
        return model

    @classmethod
    def from_folder(
        cls, folder: Path, device: str = "auto", trust_imports: bool = False
    ) -> "Model":
        """A folder that `save_pretrained` made; code that its settings name is imported only with
        `trust_imports`."""
        saved = read_model_folder(folder, trust_imports)
        method = trained_method(saved.experiment, saved.classes, saved.domains, saved.weights)
        model = cls(method, saved.experiment, saved.card, device, saved.temperature)
        model.profile = _profile(folder / PROFILE)
        return model

    def _save_pretrained(self, save_directory: Path) -> None:
        weights, temperature = save_directory / WEIGHTS, self.fitted_temperature
        save_weights(weights, self.method)
        write(
            SavedModel(self.experiment, self.classes, self.domains, weights, self.card, temperature)
        )
        if self.profile is not None:
            self.profile.write(save_directory / PROFILE)

    @classmethod
    def _from_pretrained(
        cls, *, model_id: str, device: str = "auto", trust_imports: bool = False, **download: Any
    ) -> "Model":
        """`download`: where the mixin says that files on the Hub are to be found."""
        folder = Path(model_id)
        if not folder.is_dir():
            files = FILES
            downloaded: str = snapshot_download(model_id, allow_patterns=files, **download)
            folder = Path(downloaded)
        return cls.from_folder(folder, device, trust_imports)

    @torch.no_grad()
    def answer(
        self, pixels: np.ndarray, domain: int | None, opinions: bool, raw: bool = False
    ) -> Answers:
        temperature = 1.0 if raw else self.temperature
        images = torch.as_tensor(pixels).to(self.device).permute(0, 3, 1, 2)
        inputs = to_input(images, self.scale)
        if not opinions or not isinstance(self.method, DomainAware):
            scores = self.method.predict(inputs, domain) / temperature
            return Answers(scores.softmax(dim=1).cpu().numpy(), None)
        scores, each = self.method.scores_and_opinions(inputs)
        if domain is not None:
            scores = each[domain]
        by_image = (each.transpose(0, 1) / temperature).softmax(dim=2)
        probabilities = (scores / temperature).softmax(dim=1)
        return Answers(probabilities.cpu().numpy(), by_image.cpu().numpy())

    @torch.no_grad()
    def features(self, pixels: np.ndarray) -> np.ndarray | None:
        images = torch.as_tensor(pixels).to(self.device).permute(0, 3, 1, 2)
        return pooled_features(self.method.network, [to_input(images, self.scale)])


def _profile(path: Path) -> Profile | None:
    """Models of older versions have none."""
    return Profile.read(path) if path.is_file() else None


def trained_method(
    experiment: Experiment, classes: Sequence[str], domains: Sequence[str], weights: Path
) -> Method:
    """Built without a download, since the weights are at hand, and not compiled."""
    plain = experiment.network.model_copy(update={"pretrained": False})
    adapted = experiment.setting == "adaptation"
    target = "+".join(experiment.data.unseen_domain) if adapted else None
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


def choose_device(name: str) -> torch.device:
    """`auto`: a GPU where there is one, else the CPU; otherwise as torch names devices."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise SettingsError(
            f"the device '{name}' cannot be used ({reason}); choose auto, cpu or one that this "
            "machine has"
        ) from error
    return device
