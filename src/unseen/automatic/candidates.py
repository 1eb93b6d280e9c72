"""The ladder of candidates: what is compared, from the simplest to the most elaborate. No torch."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from unseen.settings import catalog
from unseen.settings.recipes import nested

Tier = Literal["head", "stages", "network"]
"""What learns: the classifier on features of the whole network, the last stages on features of
those before, or the whole network from pixels."""


class Candidate(NamedTuple):
    """One way to train a model. How long it trains is decided by the time there is."""

    name: str
    tier: Tier
    turn: int
    """Its place in the order in which candidates are taken on: 0 is always tried."""
    changes: Mapping[str, Any]
    """Settings over those of all runs, by dotted path."""
    method: str = "aggregate"
    boundary: str | None = None
    """The first stage that learns; empty: all learn."""
    views: bool = False
    """It learns from stored augmented views."""
    plain: bool = False
    """Plain training: one network, usual rates, no views, no averaging. The best of these is what
    the choice is compared to."""

    @property
    def store(self) -> tuple[Any, ...]:
        """What has to be stored before it can start; candidates with the same answer share it."""
        augmented = {k: v for k, v in self.changes.items() if k.startswith("augment.")}
        return self.boundary, self.views, *sorted(augmented.items() if self.views else ())

    @property
    def fewest_domains(self) -> int:
        """The number of training domains without which the method cannot train."""
        return 2 if catalog.load("method", self.method).traits.compares_domains else 1

    def settings(self, views: int, steps: int, evaluations: int = 2) -> dict[str, Any]:
        """Returns everything that a run of it changes."""
        every = max(1, steps // evaluations)
        length = {"steps": steps, "evaluate_every": every, "checkpoint_every": every}
        own = {} if self.boundary is None else {"network.freeze_until": self.boundary}
        own |= {"network.views": views} if self.views else {}
        return nested(length | own | dict(self.changes))


class Backbone(NamedTuple):
    """What the ladder has to know of the network."""

    stages: Sequence[str]
    last_block: str
    """The first stage of the network's last block of layers."""
    pretrained: bool
    has_norm: bool = True
    """It has batch norm, whose statistics may stay as they came with the weights."""
    precision: str = "32"
    """What last stages are trained in."""


_FLAT = {"schedule.name": "flat", "schedule.warmup": 0.05, "averaging.name": "mean"}
"""A flat rate, and the mean of the weights over the last three quarters of the run."""
_COSINE = {"schedule.name": "cosine"}
_STRONG = {"augment.random_convolution": 0.5, "augment.randaugment": 0.5}
_METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "masks": ("dmg", {"method.start_kept": 0.95, "method.mask_lr": 1e-2}),
    "masks, paper's start": ("dmg", {"method.start_kept": None, "method.mask_lr": 1e-2}),
    "coral": ("coral", {"method.penalty_weight": 0.1}),
    "sd": ("sd", {}),
    "rsc": ("rsc", {"method.feature_share": 1 / 30}),
    "mixup": ("mixup", {"method.alpha": 0.1}),
    "vrex": ("vrex", {"method.penalty_weight": 1.0}),
}
"""Beside one network for all domains: masks, and what tied with the first in the tables, each at
the settings that it had there."""


def ladder(backbone: Backbone) -> list[Candidate]:
    """Returns all candidates, the simplest first: of two that are as good the earlier is chosen."""
    if not backbone.pretrained:
        return list(_from_random_weights())
    whole = {"optimizer.lr": 3e-4, **_COSINE, "precision": backbone.precision}
    found = [
        *_heads(backbone.stages[-1]),
        *_last_stages(backbone),
        Candidate("whole network, plain", "network", 40, whole, plain=True),
    ]
    return list({each.name: each for each in reversed(found)}.values())[::-1]


def _heads(head: str) -> Iterator[Candidate]:
    """Yields classifiers on the features that the network has; many train as one."""
    fitted = {"head_first": True, "optimizer.lr": 1e-6, "schedule.name": "constant"}
    yield Candidate("head, logistic regression", "head", 0, fitted, boundary=head)
    for lr in (1e-3, 1e-2):
        plain = {"optimizer.lr": lr, **_COSINE}
        name = f"head, rate {lr:.0e}".replace("e-0", "e-")
        yield Candidate(name, "head", 0, plain, boundary=head, plain=True)
    for name in ("sd", "vrex", "masks"):
        method, own = _METHODS[name]
        changes = {"optimizer.lr": 1e-2, **_FLAT, **own}
        yield Candidate(f"head, {name}", "head", 1, changes, method, head)


def _last_stages(backbone: Backbone) -> Iterator[Candidate]:
    """Yields what learns from stored features of the stages before."""
    stages = list(backbone.stages)
    last = stages.index(backbone.last_block)
    block, middle, deep = (stages[max(1, last - back)] for back in (0, 1, 3))
    norm = {"network.freeze_batch_norm": backbone.has_norm, "precision": backbone.precision}
    for turn, lr in ((2, 1e-3), (8, 3e-4)):
        name = f"{block}, plain, rate {lr:.0e}".replace("e-0", "e-")
        changes = {"optimizer.lr": lr, **_COSINE, **norm}
        yield Candidate(name, "stages", turn, changes, boundary=block, plain=True)

    def with_views(
        name: str, turn: int, boundary: str, changes: Mapping[str, Any], method: str = "aggregate"
    ) -> Candidate:
        changes = {"optimizer.lr": 1e-3, **_FLAT, **norm, **_STRONG, **changes}
        return Candidate(f"{boundary}, {name}", "stages", turn, changes, method, boundary, True)

    yield with_views("copies", 6, block, {})
    yield with_views("copies", 3, middle, {})
    mild = {"augment.random_convolution": 0.0, "augment.randaugment": 0.0}
    yield with_views("mild copies", 9, middle, mild)
    for turn, lr in ((11, 5e-4), (10, 2e-3)):
        yield with_views(
            f"copies, rate {lr:.0e}".replace("e-0", "e-"), turn, middle, {"optimizer.lr": lr}
        )
    if backbone.has_norm:
        free = {"network.freeze_batch_norm": False}
        yield with_views("copies, batch norm learns", 5, middle, free)
    turns = dict(zip(_METHODS, (4, 7, 12, 13, 14, 15, 16), strict=True))
    for name, (method, own) in _METHODS.items():
        yield with_views(f"copies, {name}", turns[name], middle, own, method)
    if deep != middle:
        yield with_views("copies", 20, deep, {})


def _from_random_weights() -> Iterator[Candidate]:
    """Yields trainings of a small network from pixels, where there are no pretrained weights."""
    for turn, lr in ((0, 3e-3), (6, 1e-3)):
        plain = {"optimizer.lr": lr, **_COSINE}
        name = f"plain, rate {lr:.0e}".replace("e-0", "e-")
        yield Candidate(name, "network", turn, plain, plain=True)
    averaged = {"optimizer.lr": 3e-3, **_FLAT}
    yield Candidate("mean of the weights", "network", 1, averaged)
    yield Candidate("strong augmentation", "network", 2, {**averaged, **_STRONG})
    for turn, (name, (method, own)) in enumerate(_METHODS.items(), start=3):
        yield Candidate(f"{name}", "network", turn, {**averaged, **own}, method)
    for turn, name in ((20, "masks"), (21, "coral")):
        method, own = _METHODS[name]
        changes = {**averaged, **_STRONG, **own}
        yield Candidate(f"{name}, strong augmentation", "network", turn, changes, method)
