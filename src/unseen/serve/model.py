"""A trained model: from a run folder, or in the layout of the Hugging Face Hub."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub import ModelHubMixin, constants, snapshot_download
from pydantic import BaseModel, ConfigDict, Field

from unseen.atomic import read_json, read_object, write_json, write_text
from unseen.data.augment import PixelScale, to_input
from unseen.data.batch import Task
from unseen.errors import SettingsError, UnseenError
from unseen.forecast.profile import Profile
from unseen.methods.base import DomainAware, Method
from unseen.networks.heatmaps import heatmaps, place_site
from unseen.reports.card import model_card
from unseen.results.files import DIGESTS, FORMAT, check_format, checked, write_digests
from unseen.results.folder import RunFolder
from unseen.serve.onnx import Names, validated
from unseen.serve.predictor import Predictions, Predictor
from unseen.settings.experiment import Experiment, complete_settings
from unseen.settings.recipes import open_experiment
from unseen.training.build import build_method
from unseen.training.checkpoints import load_weights, save_weights
from unseen.training.outputs import pooled_features

CONFIG = constants.CONFIG_NAME
WEIGHTS = constants.SAFETENSORS_SINGLE_FILE
CARD = "README.md"
PROFILE = "profile.npz"


class Config(BaseModel):
    """The content of a saved model's config."""

    model_config = ConfigDict(strict=True)
    classes: Names
    domains: Names
    temperature: float | None = Field(None, gt=0, allow_inf_nan=False)
    settings: dict[str, Any]


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
        profile: Profile | None = None,
    ) -> None:
        self.fitted_temperature, self.profile = temperature, profile
        self.device = choose_device(device)
        for part in method.traits.training_only:
            if hasattr(method, part):
                delattr(method, part)
        self.method = method.to(self.device).eval().requires_grad_(False)
        self.experiment, self.card = experiment, card
        self.window = getattr(experiment.data, "window", None)
        self.kind = experiment.method.name, experiment.network.name
        self.classes, self.domains = list(method.task.classes), list(method.task.domains)
        self.image_size = method.network.image_size
        self.has_opinions = isinstance(method, DomainAware)
        self.has_heatmaps = place_site(method.network) is not None
        self.scale = PixelScale(method.network.mean, method.network.std)

    def __repr__(self) -> str:
        method, backbone = self.kind
        domains = ", ".join(self.domains)
        return f"Model({method}, {backbone}, {len(self.classes)} classes, trained on {domains})"

    @classmethod
    def from_run(cls, folder: RunFolder, device: str = "auto") -> "Model":
        """Open a finished run with the weights that its selection rule chose."""
        settings, result = folder.read_settings(), folder.read_result()
        experiment = open_experiment(settings, folder.settings)
        weights = folder.checked(folder.weights(result.selection))
        method = trained_method(experiment, result.classes, result.training_domains, weights)
        data = read_object(folder.checked(folder.data))
        try:
            card = model_card(settings, result, data)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            damage = f"{folder.data} is damaged: {error!r}; train the run again"
            raise UnseenError(damage) from error
        temperature = result.under(result.selection).temperature
        profile = Profile.read(folder.checked(folder.profile))
        return cls(method, experiment, card, device, temperature, profile)

    @classmethod
    def from_folder(cls, folder: Path, device: str = "auto") -> "Model":
        """Open a folder that `save_pretrained` made, checked, since it may come from anywhere."""
        path, card, profile = folder / CONFIG, folder / CARD, folder / PROFILE
        for file in (path, folder / WEIGHTS, profile):
            checked(folder, file, "put it back, or save the model again")
        found = read_json(path)
        if not isinstance(found, dict) or found.get("library") != "unseen":
            raise UnseenError(
                f"{folder} holds a model of another library: {CONFIG} does not say "
                '"library": "unseen"; only models saved by unseen can be opened'
            )
        remedy = "save a run of this version, or open it with the one that wrote it"
        check_format(found, path, remedy)
        config = validated(Config, found, path)
        experiment = open_experiment(config.settings, path)
        method = trained_method(experiment, config.classes, config.domains, folder / WEIGHTS)
        text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
        known = Profile.read(profile) if profile.is_file() else None
        return cls(method, experiment, text, device, config.temperature, known)

    def _save_pretrained(self, save_directory: Path) -> None:
        """Write all files; settings are complete but for paths on this machine."""
        settings = complete_settings(self.experiment)
        settings["data"]["root"] = None
        pretrained = self.experiment.network.pretrained
        if not isinstance(pretrained, bool):
            settings["network"]["pretrained"] = pretrained.name
        content = {"library": "unseen", "format": FORMAT, "classes": self.classes}
        content |= {"domains": self.domains, "temperature": self.fitted_temperature}
        save_weights(save_directory / WEIGHTS, self.method)
        write_json(save_directory / CONFIG, content | {"settings": settings})
        write_text(save_directory / CARD, self.card)
        (save_directory / PROFILE).unlink(missing_ok=True)
        if self.profile is not None:
            self.profile.write(save_directory / PROFILE)
        written = (save_directory / name for name in (CONFIG, WEIGHTS, PROFILE))
        write_digests(save_directory, {file: file for file in written if file.is_file()})

    @classmethod
    def _from_pretrained(cls, *, model_id: str, device: str = "auto", **download: Any) -> "Model":
        """`download`: where the mixin says that files on the Hub are to be found."""
        folder = Path(model_id)
        if not folder.is_dir():
            files = [CONFIG, WEIGHTS, CARD, PROFILE, DIGESTS]
            folder = Path(snapshot_download(model_id, allow_patterns=files, **download))
        return cls.from_folder(folder, device)

    def inputs(self, pixels: np.ndarray) -> torch.Tensor:
        images = torch.as_tensor(pixels).to(self.device).permute(0, 3, 1, 2)
        return to_input(images, self.scale)

    @torch.no_grad()
    def predict_pixels(
        self, pixels: np.ndarray, domain: int | None = None, raw: bool = False
    ) -> Predictions:
        temperature = 1.0 if raw else self.temperature
        inputs = self.inputs(pixels)
        if not isinstance(self.method, DomainAware):
            scores, opinions = self.method.predict(inputs, domain), None
        else:
            scores, each = self.method.scores_and_opinions(inputs)
            scores = scores if domain is None else each[domain]
            opinions = (each.transpose(0, 1) / temperature).softmax(dim=2).cpu().numpy()
        return Predictions((scores / temperature).softmax(dim=1).cpu().numpy(), opinions)

    def heatmaps(self, pixels: np.ndarray) -> np.ndarray:
        images, method = self.inputs(pixels), self.method
        with torch.no_grad():
            classes = method.predict(images).argmax(dim=1)
        known = range(len(self.domains)) if self.has_opinions else ()
        maps: list[torch.Tensor] = []
        for domain in (None, *known):
            predict = partial(method.predict, domain=domain)
            found = heatmaps(method, method.network, predict, images, classes)
            if found is None:
                raise UnseenError(f"{self.kind[1]} has no features with places, so no heatmaps")
            maps.append(found)
        return torch.stack(maps, dim=1).cpu().numpy()

    @torch.no_grad()
    def features(self, pixels: np.ndarray) -> np.ndarray | None:
        return pooled_features(self.method.network, [self.inputs(pixels)])


def trained_method(
    experiment: Experiment, classes: Sequence[str], domains: Sequence[str], weights: Path
) -> Method:
    """Build the method without a download, since the weights are at hand."""
    plain = experiment.network.model_copy(update={"pretrained": False})
    adapted = experiment.setting == "adaptation"
    target = "+".join(experiment.data.unseen_domain) if adapted else None
    task = Task(tuple(classes), tuple(domains), target)
    method = build_method(experiment.model_copy(update={"network": plain}), task)
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
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise SettingsError(
            f"the device '{name}' cannot be used ({str(error).splitlines()[0]}); choose auto, cpu "
            "or one that this machine has"
        ) from error
