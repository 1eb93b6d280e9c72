"""What is kept about a model that was averaged from other runs. No torch."""

import hashlib
import json
from collections.abc import Iterable
from typing import Literal

from pydantic import BaseModel, ConfigDict


class MergedRun(BaseModel):
    """One of the runs that a merged one was made from."""

    model_config = ConfigDict(frozen=True)

    run: str
    """Its identity."""
    folder: str
    """The name of its folder."""
    seed: int
    steps: int
    seconds: float
    validation: float
    """On its source validation images, by the runs' metric: the mean over domains."""
    averaged: bool
    """False where the greedy choice left it out."""


class Merged(BaseModel):
    """What a model was merged from: its weights are the average of those of other runs."""

    model_config = ConfigDict(frozen=True)

    choose: Literal["all", "greedy"]
    runs: tuple[MergedRun, ...]
    """All that were trained for it, the best on source validation first."""

    @property
    def identity(self) -> str:
        return merged_identity(self.choose, [each.run for each in self.runs])

    @property
    def averaged(self) -> tuple[MergedRun, ...]:
        return tuple(each for each in self.runs if each.averaged)

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted({each.seed for each in self.runs}))

    @property
    def steps(self) -> int:
        """Of all runs together."""
        return sum(each.steps for each in self.runs)

    @property
    def seconds(self) -> float:
        """Of all runs together."""
        return sum(each.seconds for each in self.runs)

    @property
    def label(self) -> str:
        """`merged (7 runs)`: the number of runs that it cost."""
        how = "merged greedily" if self.choose == "greedy" else "merged"
        return f"{how} ({len(self.runs)} runs)"

    @property
    def description(self) -> str:
        """A sentence for people."""
        left_out = len(self.runs) - len(self.averaged)
        chosen = f", chosen greedily by source validation ({left_out} left out)" if left_out else ""
        return (
            f"Merged from {len(self.runs)} runs: its weights are the average of those of "
            f"{len(self.averaged)} runs{chosen}; together they took {self.steps:,} steps."
        )


def merged_identity(choose: str, runs: Iterable[str]) -> str:
    """Another one for runs with other identities, and for another way to choose among them."""
    text = json.dumps([choose, *sorted(runs)])
    return hashlib.sha256(text.encode()).hexdigest()[:12]
