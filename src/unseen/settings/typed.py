"""The types of settings in calls from Python. `make docs` writes this file from their classes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict


class Network(TypedDict, total=False):
    name: str
    pretrained: bool | str | Path
    image_size: int | None
    freeze_batch_norm: bool
    freeze_until: str | None
    store_features: bool
    views: int
    view_seed: int


class Optimizer(TypedDict, total=False):
    name: Literal["adam", "adamw", "sgd"]
    lr: float
    weight_decay: float
    momentum: float
    nesterov: bool
    new_layers_lr_factor: float
    layer_decay: float


class Schedule(TypedDict, total=False):
    name: Literal["constant", "exponential", "inverse", "cosine", "flat"]
    gamma: float
    power: float
    unit: Literal["step", "epoch", "run"]
    warmup: float
    decay_from: float


class Averaging(TypedDict, total=False):
    name: Literal["none", "mean", "ema", "swad"]
    start: float
    decay: float
    valley_start: int
    valley_end: int
    valley_rise: float


class Augment(TypedDict, total=False):
    crop_scale: float
    flip: float
    jitter: float
    grayscale: float
    randaugment: float
    randaugment_operations: int
    random_convolution: float
    amplitude_mix: float
    erasing: float
    mixstyle: float
    mixstyle_stages: str | Sequence[str]
    mixstyle_alpha: float


class Devices(TypedDict, total=False):
    accelerator: Literal["auto", "cpu", "cuda", "mps"]
    number: int
    accumulate: int
    readers: int
    evaluation_batch: int


class Overrides(TypedDict, total=False):
    data: Mapping[str, Any]
    network: Network
    method: Mapping[str, Any]
    optimizer: Optimizer
    schedule: Schedule
    averaging: Averaging
    augment: Augment
    devices: Devices
    setting: Literal["generalization", "adaptation"]
    steps: int | None
    epochs: float | None
    images_per_domain: int
    target_images: int | None
    head_first: bool
    sampling: Literal["balanced", "class_balanced", "pooled"]
    label_smoothing: float
    clip_gradient: float | None
    precision: Literal["32", "bf16", "fp16"]
    compile: bool
    selection: Literal["source", "last", "infomax", "snd", "bnm", "dev", "oracle"]
    metric: Literal["accuracy", "balanced", "macro_f1"]
    evaluate_every: int
    checkpoint_every: int
    log_every: int
    seed: int


class SweepKeys(TypedDict, total=False):
    datasets: str | Sequence[str]
    methods: str | Sequence[str]
    backbones: str | Sequence[str]
    unseen: str | Sequence[str]
    seeds: str | Sequence[int]
    draws: int | None
    grid: Mapping[str, Any]
    ranges: Mapping[str, Any]
    search: str | Sequence[str]
    search_seed: int
    settings: Mapping[str, Any]
    by_method: Mapping[str, Any]
    by_dataset: Mapping[str, Any]
    split_by_seed: bool
    pairs: Literal["none", "all", "nested"]
    selection: (
        Literal["source", "last", "leave-one-domain-out", "infomax", "snd", "bnm", "dev", "oracle"]
        | None
    )
    halving: Mapping[str, Any] | None
    retries: int
