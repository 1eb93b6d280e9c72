"""The number by which checkpoints, draws and the rows of tables are compared. No torch."""

from typing import Literal

Metric = Literal["accuracy", "balanced", "macro_f1"]

METRICS: dict[Metric, str] = {
    "accuracy": "accuracy",
    "balanced": "balanced accuracy",
    "macro_f1": "macro F1",
}
"""As tables and messages call them."""
