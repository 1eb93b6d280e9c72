"""Image classifiers that hold up in domains they have never seen."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unseen.api import Run, fit, forecast_accuracy, load_run, merge
    from unseen.automatic.run import auto
    from unseen.data.batch import DomainBatch, Task
    from unseen.errors import UnseenError
    from unseen.methods.base import Method
    from unseen.serve.model import Model
    from unseen.serve.predictor import load
    from unseen.settings.catalog import trust_imports
    from unseen.settings.experiment import Settings
    from unseen.sweeps.compare import compare, sweep

__all__ = [
    "DomainBatch",
    "Method",
    "Model",
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

_HOME = {
    "DomainBatch": "unseen.data.batch",
    "Method": "unseen.methods.base",
    "Model": "unseen.serve.model",
    "Run": "unseen.api",
    "Settings": "unseen.settings.experiment",
    "Task": "unseen.data.batch",
    "UnseenError": "unseen.errors",
    "auto": "unseen.automatic.run",
    "compare": "unseen.sweeps.compare",
    "fit": "unseen.api",
    "forecast_accuracy": "unseen.api",
    "load": "unseen.serve.predictor",
    "load_run": "unseen.api",
    "merge": "unseen.api",
    "sweep": "unseen.sweeps.compare",
    "trust_imports": "unseen.settings.catalog",
}


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first used, so that `import unseen` is quick."""
    if name not in _HOME:
        raise AttributeError(f"module 'unseen' has no attribute '{name}'")
    from unseen.optional import training_packages

    with training_packages():
        return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
