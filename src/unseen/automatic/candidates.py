"""The ladder of candidates: what is compared, from the simplest to the most elaborate. No torch."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from unseen.settings import catalog
from unseen.settings.recipes import nested


class Candidate(NamedTuple):
    """One way to train a model. How long it trains is decided by the time there is."""

    name: str
    tier: Literal["head", "stages", "network"]
    """What learns: the classifier on features of the whole network, the last stages on features of
    those before, or the whole network from pixels."""
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

    def settings(self, views: int, steps: int) -> dict[str, Any]:
        """Returns everything that a run of it changes."""
        every = max(1, steps // 2)
        own: dict[str, Any] = {"steps": steps, "evaluate_every": every, "checkpoint_every": every}
        own |= {} if self.boundary is None else {"network.freeze_until": self.boundary}
        own |= {"network.views": views} if self.views else {}
        return nested(own | dict(self.changes))


_FLAT = {"schedule.name": "flat", "schedule.warmup": 0.05, "averaging.name": "mean"}
"""A flat rate, and the mean of the weights over the last three quarters of the run."""
_COSINE = {"schedule.name": "cosine"}
_STRONG = {"augment.random_convolution": 0.5, "augment.randaugment": 0.5}
_METHODS: dict[str, tuple[int, str, dict[str, Any]]] = {
    "masks": (4, "dmg", {"method.start_kept": 0.95, "method.mask_lr": 1e-2}),
    "masks, paper's start": (7, "dmg", {"method.start_kept": None, "method.mask_lr": 1e-2}),
    "coral": (12, "coral", {"method.penalty_weight": 0.1}),
    "sd": (13, "sd", {}),
    "rsc": (14, "rsc", {"method.feature_share": 1 / 30}),
    "mixup": (15, "mixup", {"method.alpha": 0.1}),
    "vrex": (16, "vrex", {"method.penalty_weight": 1.0}),
}
"""Beside one network for all domains: masks, and what tied with the first in the tables, each with
its turn among what learns from copies, and at the settings that it had there."""


def ladder(
    stages: Sequence[str], last_block: str, has_norm: bool, precision: str
) -> list[Candidate]:
    """Returns all candidates for a pretrained network, the simplest first: of two that are as good
    the earlier is chosen. Last stages keep the statistics of batch norm, if there are any, as they
    came with the weights; `last_block` is the first stage of the last block of layers."""
    head, last = stages[-1], list(stages).index(last_block)
    block, middle, deep = (stages[max(1, last - back)] for back in (0, 1, 3))
    kept = {"network.freeze_batch_norm": has_norm, "precision": precision}
    fitted = {"head_first": True, "optimizer.lr": 1e-6, "schedule.name": "constant"}
    found = [Candidate("head, logistic regression", "head", 0, fitted, boundary=head)]
    found += [
        _plain(f"head, rate {rate}", "head", 0, rate, boundary=head) for rate in ("1e-3", "1e-2")
    ]
    for name in ("sd", "vrex", "masks"):
        _, method, own = _METHODS[name]
        changes = {"optimizer.lr": 1e-2, **_FLAT, **own}
        found.append(Candidate(f"head, {name}", "head", 1, changes, method, head))
    for turn, rate in ((2, "1e-3"), (8, "3e-4")):
        found.append(_plain(f"{block}, plain, rate {rate}", "stages", turn, rate, kept, block))

    def copies(turn: int, boundary: str, name: str, own: Any, method: str = "aggregate") -> None:
        changes = {"optimizer.lr": 1e-3, **_FLAT, **kept, **_STRONG, **own}
        name = f"{boundary}, {name}"
        found.append(Candidate(name, "stages", turn, changes, method, boundary, views=True))

    copies(6, block, "copies", {})
    copies(3, middle, "copies", {})
    copies(9, middle, "mild copies", dict.fromkeys(_STRONG, 0.0))
    copies(11, middle, "copies, rate 5e-4", {"optimizer.lr": 5e-4})
    copies(10, middle, "copies, rate 2e-3", {"optimizer.lr": 2e-3})
    if has_norm:
        copies(5, middle, "copies, batch norm learns", {"network.freeze_batch_norm": False})
    for name, (turn, method, own) in _METHODS.items():
        copies(turn, middle, f"copies, {name}", own, method)
    if deep != middle:
        copies(20, deep, "copies", {})
    precise = {"precision": precision}
    found.append(_plain("whole network, plain", "network", 40, "3e-4", precise))
    return list({each.name: each for each in reversed(found)}.values())[::-1]


def small_ladder() -> list[Candidate]:
    """Returns trainings of a small network from pixels, where there are no pretrained weights."""
    rates = ((0, "3e-3"), (6, "1e-3"))
    found = [_plain(f"plain, rate {rate}", "network", turn, rate) for turn, rate in rates]
    averaged = {"optimizer.lr": 3e-3, **_FLAT}
    strong = {**averaged, **_STRONG}
    found.append(Candidate("mean of the weights", "network", 1, averaged))
    found.append(Candidate("strong augmentation", "network", 2, strong))
    for turn, (name, (_, method, own)) in enumerate(_METHODS.items(), start=3):
        found.append(Candidate(name, "network", turn, {**averaged, **own}, method))
    for turn, name in ((20, "masks"), (21, "coral")):
        _, method, own = _METHODS[name]
        name = f"{name}, strong augmentation"
        found.append(Candidate(name, "network", turn, {**strong, **own}, method))
    return found


def _plain(
    name: str, tier: Any, turn: int, rate: str, own: Any = None, boundary: str | None = None
) -> Candidate:
    changes = {"optimizer.lr": float(rate), **_COSINE, **(own or {})}
    return Candidate(name, tier, turn, changes, boundary=boundary, plain=True)
