"""A saved model: settings, weights and card in the layout of the Hugging Face Hub."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import constants

from unseen.atomic import read_json, write_json, write_text
from unseen.config import Experiment, complete_settings
from unseen.errors import UnseenError
from unseen.recipe_files import build_experiment
from unseen.records.format import FORMAT, check_format
from unseen.serving.export.metadata import are_names, is_temperature

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


def read(folder: Path, trust_imports: bool) -> SavedModel:
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
