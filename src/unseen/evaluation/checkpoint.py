"""What is measured of a checkpoint that a selection rule chose: temperature, then all views."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from unseen.data.roles import Roles
from unseen.evaluation.protocol import DomainScores, Evaluator, Predict, three_views
from unseen.evaluation.temperature import fit_temperature
from unseen.records.arrays import Array
from unseen.records.result import Views

MOST_VALIDATION_IMAGES = 5_000
"""Of a domain, that the temperature is fitted on; more would only cost memory."""


class Measurement(NamedTuple):
    """Of one model."""

    views: Views
    temperature: float
    """Fitted on the validation images; 1 where it could not be fitted."""


def measure_checkpoint(
    evaluator: Evaluator, predict: Predict, roles: Roles, uses_domain: bool
) -> list[Measurement]:
    """Of each model. Validation images are answered first, and only once: where they also measure
    the in-domain view, these answers count."""
    validation = evaluator.answers(predict, _at_most(roles.validation))
    temperatures = [_fit(validation, model) for model in range(evaluator.n_models)]
    views = three_views(
        evaluator, predict, uses_domain, roles.out_of_domain, roles.in_domain,
        temperatures, validation,
    )  # fmt: skip
    return [
        Measurement(own, temperature) for own, temperature in zip(views, temperatures, strict=True)
    ]


def _fit(validation: Mapping[str, DomainScores], model: int) -> float:
    scores, labels = zip(*(each.of(model) for each in validation.values()), strict=True)
    return fit_temperature(scores, labels) or 1.0


def _at_most(images: Mapping[str, Array]) -> dict[str, Array]:
    """Spread evenly over a domain that has more."""
    most = MOST_VALIDATION_IMAGES
    return {
        domain: rows if len(rows) <= most else rows[np.arange(most) * len(rows) // most]
        for domain, rows in images.items()
    }
