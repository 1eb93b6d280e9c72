"""The types of settings in calls from Python. `make docs` writes this file from their classes."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict


class Overrides(TypedDict, total=False):
    data: Mapping[str, Any]
    network: Mapping[str, Any]
    method: Mapping[str, Any]
    optimizer: Mapping[str, Any]
    schedule: Mapping[str, Any]
    averaging: Mapping[str, Any]
    augment: Mapping[str, Any]
    devices: Mapping[str, Any]
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
    pairs: Literal["none", "all"]
    selection: (
        Literal["source", "last", "leave-one-domain-out", "infomax", "snd", "bnm", "dev", "oracle"]
        | None
    )
    halving: Mapping[str, Any] | None
    retries: int
