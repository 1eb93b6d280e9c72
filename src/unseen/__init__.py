"""Image classifiers that hold up in domains they have never seen."""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0.dev0"

if TYPE_CHECKING:
    from unseen.api import Run, fit, forecast_accuracy, load_run, merge
    from unseen.automatic.run import auto
    from unseen.data.batch import DomainBatch, Task
    from unseen.errors import UnseenError
    from unseen.forecast.forecast import FileForecast
    from unseen.methods.base import Method
    from unseen.serve.model import Model
    from unseen.serve.predictor import Predictor, load
    from unseen.settings.catalog import trust_imports
    from unseen.settings.experiment import Settings
    from unseen.sweeps.tables import Comparison
    from unseen.sweeps.train import compare, sweep

__all__ = [
    "Comparison",
    "DomainBatch",
    "FileForecast",
    "Method",
    "Model",
    "Predictor",
    "Run",
    "Settings",
    "Task",
    "UnseenError",
    "auto",
    "compare",
    "fit",
    "forecast_accuracy",
    "load",
    "load_run",
    "merge",
    "sweep",
    "trust_imports",
]
_HOMES = {
    "unseen.api": ("Run", "fit", "forecast_accuracy", "load_run", "merge"),
    "unseen.automatic.run": ("auto",),
    "unseen.data.batch": ("DomainBatch", "Task"),
    "unseen.errors": ("UnseenError",),
    "unseen.forecast.forecast": ("FileForecast",),
    "unseen.methods.base": ("Method",),
    "unseen.serve.model": ("Model",),
    "unseen.serve.predictor": ("Predictor", "load"),
    "unseen.settings.catalog": ("trust_imports",),
    "unseen.settings.experiment": ("Settings",),
    "unseen.sweeps.tables": ("Comparison",),
    "unseen.sweeps.train": ("compare", "sweep"),
}


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first used, so that `import unseen` is quick."""
    home = next((module for module, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'unseen' has no attribute '{name}'")
    from unseen.optional import training_packages

    with training_packages():
        return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return __all__
