"""What a method gets to see: images of the training domains, and nothing of the unseen one."""

from typing import NamedTuple

from torch import Tensor


class Task(NamedTuple):
    """What is to be learned: class names and the names of the training domains, in label order."""

    classes: tuple[str, ...]
    domains: tuple[str, ...]


class DomainBatch(NamedTuple):
    """Images of all training domains; with balanced sampling equally many, domain after domain."""

    images: Tensor
    labels: Tensor
    domains: Tensor
    """Positions in `Task.domains`, 0 .. n_domains - 1."""
    keys: Tensor
    """One number per image and step. Random draws made from it (`randomness.uniform`) are the same
    after a resume and on any number of devices."""
    n_domains: int
