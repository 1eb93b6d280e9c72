"""What a method gets to see: labelled images of the training domains, never a label of another."""

from typing import NamedTuple

from torch import Tensor


class Task(NamedTuple):
    """What is to be learned: class names and the names of the training domains, in label order."""

    classes: tuple[str, ...]
    domains: tuple[str, ...]
    target: str | None = None
    """In adaptation: the domain (`a+b`: the union of several) whose images come without labels, in
    `DomainBatch.target`."""
    label_smoothing: float = 0.0
    """Share of each label that training spreads over all classes, in `classification` and wherever
    else a method compares scores with class labels."""


class DomainBatch(NamedTuple):
    """Images of all training domains; with balanced sampling equally many, domain after domain."""

    images: Tensor
    """What the network takes: pixels, or stored features where a part of it is frozen."""
    labels: Tensor
    domains: Tensor
    """Positions in `Task.domains`, 0 .. n_domains - 1."""
    keys: Tensor
    """One number per image and step. Random draws made from it (`randomness.uniform`) are the same
    after a resume and on any number of devices."""
    n_domains: int
    positions: Tensor
    """The number of each image in its dataset, the same at every step."""
    step_key: Tensor
    """`[1]`, for draws that are about the whole step: equal on all devices."""
    target: Tensor | None = None
    """Unlabelled images of the target domain; only for methods that ask for them."""


def every_nth(batch: DomainBatch, first: int, n: int) -> DomainBatch:
    """Return a part of a batch: of each domain, every nth image from the `first` one on."""
    names = ("images", "labels", "domains", "keys", "positions", "target")
    parts = {name: getattr(batch, name) for name in names}
    return batch._replace(**{k: None if t is None else t[first::n] for k, t in parts.items()})
