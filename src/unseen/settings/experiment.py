"""Settings: every choice of an experiment, its meaning, default and bounds. No torch."""

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializeAsAny,
    model_validator,
)

from unseen.settings import catalog
from unseen.settings.ranges import Choice, LogUniform

NO_EFFECT_ON_RESULT = "no effect on the result"
"""Marks a setting that decides nothing about what a run computes, as `Annotated[int, MARK]`. All
others are part of a run's identity."""


class Settings(BaseModel):
    """Frozen, and closed: an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


def as_list(value: Any) -> Any:
    """Reads `photo` and `photo,sketch` as lists: that is how they are typed in a shell."""
    if isinstance(value, int):  # a folder called 2007, say, which YAML takes for a number
        value = str(value)
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


Names = Annotated[tuple[str, ...], BeforeValidator(as_list)]


Metric = Literal["accuracy", "balanced", "macro_f1"]

METRICS: dict[Metric, str] = {
    "accuracy": "accuracy",
    "balanced": "balanced accuracy",
    "macro_f1": "macro F1",
}
"""As tables and messages call them."""


class OptimizerSettings(Settings):
    name: Literal["adam", "adamw", "sgd"] = "adam"
    """The algorithm."""
    lr: Annotated[float, LogUniform(1e-5, 3e-4)] = Field(default=1e-4, gt=0)
    """Learning rate, before the schedule."""
    weight_decay: Annotated[float, LogUniform(1e-6, 1e-2)] = Field(default=0.0, ge=0)
    """L2 penalty on the weights (decoupled with `adamw`)."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Momentum of SGD."""
    nesterov: bool = False
    """Nesterov momentum, for SGD."""
    new_layers_lr_factor: float = Field(default=1.0, gt=0)
    """Multiplies `lr` for layers that did not come with pretrained weights."""
    layer_decay: float = Field(default=1.0, gt=0, le=1)
    """Multiplies `lr` once more for each stage further from the network's last one. Rates that a
    method sets for its own parameters stay as they are."""

    @model_validator(mode="after")
    def _check(self) -> "OptimizerSettings":
        if self.name == "sgd" and self.nesterov and self.momentum == 0:
            raise ValueError("nesterov needs a momentum above 0")
        return self


class ScheduleSettings(Settings):
    name: Literal["constant", "exponential", "inverse", "cosine", "flat"] = "constant"
    """exponential: gamma^t; inverse: (1 + gamma·t)^-power; cosine: to zero; flat: constant up to
    `decay_from`, then a cosine to zero."""
    gamma: float = Field(default=0.99, gt=0)
    """For `exponential` and `inverse`."""
    power: float = Field(default=0.75, gt=0)
    """For `inverse`."""
    unit: Literal["step", "epoch", "run"] = "epoch"
    """What t counts: steps, finished epochs, or the share of the whole run (0 to 1)."""
    warmup: float = Field(default=0.0, ge=0, lt=1)
    """Share of the run over which the rate rises linearly, under every schedule."""
    decay_from: float = Field(default=1.0, ge=0, le=1)
    """For `flat`: share of the run after which the rate falls; 1: never."""

    @model_validator(mode="after")
    def _check(self) -> "ScheduleSettings":
        if self.name == "flat" and self.warmup > self.decay_from:
            raise ValueError("decay_from lies before the end of warmup; the rate never gets up")
        return self


class AveragingSettings(Settings):
    """The model that counts is an average of the weights at many steps: it is validated, chosen,
    saved and exported in the place of the weights themselves. Keep the learning rate up over the
    averaged part (`schedule.name=flat`)."""

    name: Literal["none", "mean", "ema", "swad"] = "none"
    """mean: of all steps from `start` on; ema: the same with exponential decay; swad: mean of the
    steps in which the validation loss is low (NeurIPS 2021)."""
    start: float = Field(default=0.25, ge=0, lt=1)
    """For `mean` and `ema`: share of the run (in methods with two phases: of the second) after
    which they begin."""
    decay: float = Field(default=0.99, gt=0, lt=1)
    """For `ema`: factor by which a step counts less than the next one."""
    valley_start: int = Field(default=3, ge=1)
    """For `swad`, the paper's N_s: it begins at an evaluation with the lowest loss of this many,
    itself included."""
    valley_end: int = Field(default=6, ge=1)
    """For `swad`, the paper's N_e: it ends before this many evaluations in a row with too high a
    loss."""
    valley_rise: float = Field(default=0.3, ge=0)
    """For `swad`, the paper's r: a loss is too high above 1 + r times the mean at the start."""


class AugmentSettings(Settings):
    """As in DomainBed where nothing else is said; all of it is done on whole batches."""

    crop_scale: float = Field(default=0.7, gt=0, le=1)
    """Smallest share of the area that a random crop keeps; 1: no crop."""
    flip: float = Field(default=0.5, ge=0, le=1)
    """Probability of a horizontal flip."""
    jitter: float = Field(default=0.3, ge=0, le=1)
    """Strength of brightness, contrast, saturation and hue changes."""
    grayscale: float = Field(default=0.1, ge=0, le=1)
    """Probability of losing all colour."""
    randaugment: float = Field(default=0.0, ge=0, le=1)
    """Strength of RandAugment's random operations; 1: up to the paper's largest."""
    randaugment_operations: int = Field(default=2, ge=1, le=8)
    """Number of those operations for each image."""
    random_convolution: float = Field(default=0.0, ge=0, le=1)
    """Probability that an image is mixed with a randomly filtered copy of itself (RandConv)."""
    amplitude_mix: float = Field(default=0.0, ge=0, le=1)
    """Largest share of the Fourier amplitude that comes from an image of another training domain
    (FACT)."""
    erasing: float = Field(default=0.0, ge=0, le=1)
    """Probability that a random rectangle (2 to 33 % of the area) takes the image's mean."""
    mixstyle: float = Field(default=0.0, ge=0, le=1)
    """Probability that channel statistics of an image are mixed with those of an image of another
    domain, at each of `mixstyle_stages`."""
    mixstyle_stages: Names = ()
    """Stages whose input is mixed, early ones such as `blocks.1,blocks.2`."""
    mixstyle_alpha: float = Field(default=0.1, gt=0, le=1)
    """α of Beta(α, α), from which the share of an image's own statistics is drawn."""

    @model_validator(mode="after")
    def _check(self) -> "AugmentSettings":
        if (self.mixstyle > 0) != bool(self.mixstyle_stages):
            raise ValueError(
                "mixstyle needs a probability and stages, such as mixstyle=0.5 "
                "mixstyle_stages=blocks.1,blocks.2; give both or none"
            )
        return self


class DataSettings(Settings):
    """Which images, and which domains are trained on. Each dataset adds its own."""

    name: str
    """A catalogued dataset, or an import string `module:Class`."""
    root: Path | None = None
    """Folder (or file) with the images; without it, the last `unseen prepare` or $UNSEEN_DATA."""
    training_domains: Names = ()
    """Domains to train on; empty: all but the unseen ones."""
    unseen_domain: Names = ()
    """Domains that training never sees (in adaptation: the target, seen without labels); empty:
    train on all domains."""
    train_on_unseen: bool = False
    """Also train on labelled images of the unseen domains and measure on their test images: an
    upper bound."""
    validation_share: float = Field(default=0.1, ge=0, lt=1)
    """Share of each training domain for choosing the checkpoint, if there is no official list."""
    test_share: float = Field(default=0.1, ge=0, lt=1)
    """Share of each training domain for the in-domain result, if there is no official list."""
    split_seed: int = 0
    """Another number gives other validation and test images."""
    official_splits: bool = True
    """Use published splits where there are any; otherwise, or if false, images are split by the
    shares and `split_seed`, as in DomainBed."""
    share: float = Field(default=1.0, gt=0, le=1)
    """Share of each training domain's training images that is used, the same for every method."""
    bad_images: Literal["stop", "skip"] = "stop"
    """Stop at unreadable images with a list of their names, or leave them out."""
    cache: Literal["auto", "decoded", "encoded"] = "auto"
    """Prepared images as raw pixels (fast), as JPEG (compact, changes pixels slightly), or
    whichever fits the memory."""

    @model_validator(mode="after")
    def _check(self) -> "DataSettings":
        both = sorted(set(self.training_domains) & set(self.unseen_domain))
        if both:
            raise ValueError(f"{', '.join(both)} cannot be trained on and unseen at once")
        if self.validation_share + self.test_share >= 1:
            raise ValueError("validation_share + test_share leave nothing to train on")
        return self


class NetworkSettings(Settings):
    name: str
    """A catalogued backbone, `timm:NAME` for any timm network, or an import string."""
    pretrained: bool | Path = False
    """ImageNet weights (true), random ones (false), or a .safetensors or .pth file."""
    image_size: int | None = Field(default=None, ge=8)
    """Side of the square input in pixels; empty: the size the network was designed for."""
    freeze_batch_norm: bool = False
    """Keep the pretrained batch-norm statistics (scale and shift still learn)."""
    freeze_until: str | None = None
    """Stages before this one (or this block, such as `layer4.2`) are frozen. Their output, the
    stored features, is computed once and shared by all runs."""
    store_features: bool = True
    """If false, every step computes the output of frozen stages from augmented pixels."""
    views: int = Field(default=0, ge=0)
    """Augmented copies of every training image whose features are stored, too; a step draws one
    version of each image."""
    view_seed: int = Field(default=0, ge=0)
    """Another number gives other augmented copies."""

    @model_validator(mode="after")
    def _check(self) -> "NetworkSettings":
        if not self.store_features and self.freeze_until is None:
            raise ValueError(
                "store_features=false is about frozen stages, and none is frozen; "
                "set freeze_until=STAGE, or leave it out"
            )
        if self.views and (self.freeze_until is None or not self.store_features):
            raise ValueError(
                f"views={self.views} are stored features of frozen stages, and none are stored; "
                "set freeze_until=STAGE (and not store_features=false), or leave out views"
            )
        if self.view_seed and not self.views:
            raise ValueError(f"view_seed={self.view_seed} needs views; set network.views")
        return self


class DeviceSettings(Settings):
    """Where it runs."""

    accelerator: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """auto: a GPU if there is one."""
    number: int = Field(default=1, ge=1)
    """Processes (CPU) or GPUs among which each batch is split; the training stays the same."""
    accumulate: int = Field(default=1, ge=1)
    """Parts in which each device computes its share of a batch, to save memory. Gradients are those
    of the whole batch; batch norm sees a part."""
    readers: int = Field(default=1, ge=1)
    """Batches that each device reads ahead, each in its own thread."""
    evaluation_batch: int = Field(default=128, ge=1)
    """Images that each device evaluates at once."""


class Experiment(Settings):
    """Everything that decides what one run computes."""

    recipe: Annotated[str, NO_EFFECT_ON_RESULT] = ""
    """The name of the run in tables and folders: the last part of its recipe's name, such as
    `dmg_views`; empty: the method."""
    data: SerializeAsAny[DataSettings]
    network: NetworkSettings
    method: SerializeAsAny["MethodSettings"]
    optimizer: OptimizerSettings = OptimizerSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    averaging: AveragingSettings = AveragingSettings()
    augment: AugmentSettings = AugmentSettings()
    devices: Annotated[DeviceSettings, NO_EFFECT_ON_RESULT] = DeviceSettings()
    setting: Literal["generalization", "adaptation"] = "generalization"
    """Generalization: training sees nothing of the unseen domain. Adaptation: it sees unlabelled
    training images of it, and is measured on its test images."""
    steps: int | None = Field(default=None, gt=0)
    """Length of training in steps; give this or `epochs`."""
    epochs: float | None = Field(default=None, gt=0)
    """Length in passes over the training images; give this or `steps`."""
    images_per_domain: Annotated[int, LogUniform(8, 45, whole=True)] = Field(default=32, gt=0)
    """Images of each training domain in a batch, on all devices together."""
    target_images: int | None = Field(default=None, gt=0)
    """Unlabelled target images in a batch, in adaptation; empty: as many as labelled ones."""
    head_first: bool = False
    """Fit the classifier before the first step, by logistic regression on the features that the
    network starts with."""
    sampling: Literal["balanced", "class_balanced", "pooled"] = "balanced"
    """Equally many images from each domain; also equally many of each class within a domain; or a
    shuffle of all images (as in the DMG paper)."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Share of each label that is spread over all classes in training."""
    clip_gradient: float | None = Field(default=None, gt=0)
    """Largest norm of the gradient."""
    precision: Annotated[Literal["32", "bf16", "fp16"], BeforeValidator(str)] = "32"
    """32 bits; mixed with bfloat16 (on a CPU quicker only with AVX-512 BF16 or AMX); or mixed with
    16-bit floats and a scaled loss, for GPUs without bfloat16."""
    compile: bool = False
    """`torch.compile` the stages of the network, for long runs on GPUs; refused on a CPU."""
    selection: Literal["source", "last", "infomax", "snd", "bnm", "dev", "oracle"] = "source"
    """Which checkpoint counts: the best on validation images, the last one, the best on the unseen
    domain (`oracle`, an upper bound), or in adaptation one of the rules without labels."""
    metric: Metric = "accuracy"
    """What chooses the checkpoint and stands in tables: accuracy, or the mean over classes of
    recall (`balanced`) or F1, in which rare classes count as much as others."""
    evaluate_every: int = Field(default=100, gt=0)
    """Steps between evaluations on the validation images."""
    checkpoint_every: Annotated[int, NO_EFFECT_ON_RESULT] = Field(default=100, gt=0)
    """Steps between checkpoints."""
    log_every: Annotated[int, NO_EFFECT_ON_RESULT] = Field(default=10, gt=0)
    """Steps between lines in metrics.jsonl."""
    seed: int = Field(default=0, ge=0)
    """Decides initial weights, sampling, augmentation and masks."""

    @model_validator(mode="after")
    def _check(self) -> "Experiment":
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("give either steps or epochs")
        if self.setting == "adaptation" and not self.data.unseen_domain:
            raise ValueError(
                "setting=adaptation needs a target domain: set data.unseen_domain to its name"
            )
        if self.setting == "adaptation" and self.data.train_on_unseen:
            raise ValueError(
                "data.train_on_unseen trains on labels of the target, setting=adaptation without "
                "them; leave one of them out"
            )
        if self.setting == "generalization" and self.target_images is not None:
            raise ValueError("target_images are for setting=adaptation")
        if self.setting == "generalization" and self.selection in ("infomax", "snd", "bnm", "dev"):
            raise ValueError(
                f"selection={self.selection} chooses by unlabelled target images, which only "
                "setting=adaptation sees; set that, or selection=source"
            )
        return self


class MethodSettings(Settings):
    """Hyper-parameters of a method. Each method adds its own."""

    name: Annotated[str, AfterValidator(catalog.method_name)]
    """A catalogued method, or an import string `module:Class`."""


class PenaltySettings(MethodSettings):
    """Settings of methods that add a penalty to cross-entropy."""

    penalty_weight: Annotated[float, LogUniform(0.1, 10)] = Field(default=1.0, ge=0)
    """λ, the weight of the penalty."""


class AnnealedPenaltySettings(PenaltySettings):
    """Settings of methods whose penalty has its weight after a part of the run."""

    penalty_weight: Annotated[float, LogUniform(1e-1, 1e5)] = Field(default=100.0, ge=0)
    """λ, the weight of the penalty."""
    penalty_anneal: Annotated[float, LogUniform(2e-4, 1)] = Field(default=0.1, ge=0, le=1)
    """Share of the run before the penalty has its weight: until then none, or, as in the authors'
    code of IRM and V-REx, a weight of 1."""


class AdversarialSettings(MethodSettings):
    """Settings of methods whose features unlearn what a discriminator goes by."""

    domain_weight: Annotated[float, LogUniform(1e-2, 1e2)] = Field(default=1.0, ge=0)
    """Factor of λ_p: how strongly the features are turned against the discriminator in the end."""
    schedule_steepness: float = Field(default=10.0, gt=0)
    """γ: how early in the run λ_p approaches its final value."""
    discriminator_width: Annotated[int, LogUniform(64, 1024, whole=True)] = Field(default=128, gt=0)
    """Units in each hidden layer of the discriminator."""
    discriminator_depth: int = Field(default=1, ge=0)
    """Hidden layers of the discriminator; 0 makes it linear."""
    discriminator_dropout: Annotated[float, Choice((0.0, 0.1, 0.5))] = Field(
        default=0.0, ge=0, lt=1
    )
    """Dropout rate of the discriminator's hidden units."""


Experiment.model_rebuild()


def complete_settings(experiment: Experiment) -> dict[str, Any]:
    """Returns all settings as plain data, as they are written to disk."""
    return experiment.model_dump(mode="json")


def deciding(settings: BaseModel) -> dict[str, Any]:
    """Returns the settings that decide the result; a path as the place that it leads to, however it
    is spelled."""
    plain = settings.model_dump(mode="json", serialize_as_any=True)
    _keep_deciding(plain, settings)
    return plain


def _keep_deciding(plain: dict[str, Any], settings: BaseModel) -> None:
    for name in _without_effect(type(settings)):
        del plain[name]
    for name, value in settings:
        if name not in plain:
            continue
        if isinstance(value, Path):
            plain[name] = str(value.expanduser().resolve())
        elif isinstance(value, BaseModel):
            _keep_deciding(plain[name], value)


@cache
def _without_effect(kind: type[BaseModel]) -> list[str]:
    fields = kind.model_fields.items()
    return [name for name, field in fields if NO_EFFECT_ON_RESULT in field.metadata]


def identity(experiment: Experiment) -> str:
    """Returns twelve letters that stand for everything that decides the result, and for nothing
    else."""
    text = json.dumps(deciding(experiment), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
