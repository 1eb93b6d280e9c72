"""The one way to import packages that not everybody needs."""

import importlib
from types import ModuleType

from unseen.errors import UnseenError


def require(module: str, extra: str) -> ModuleType:
    """Import an optional package, or say which extra brings it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UnseenError(
            f"this needs the package '{module}', which is not installed: "
            f"pip install 'unseen[{extra}]'"
        ) from error
