"""A service in this process, and a model for one in a process of its own."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.forecast.made import made_profile
from tests.serve.models import CLASSES, DOMAINS, make_model
from tests.serve.service.asking import FORM, BrightnessModel, Reply, ask

from unseen.serve.export import export
from unseen.serve.http import Guard
from unseen.serve.limits import Limits
from unseen.serve.service import Keeper, Service


@pytest.fixture(scope="session")
def onnx_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with opinions, and a profile of sixty validation images."""
    model = make_model("dmg")
    model.profile = made_profile(CLASSES, DOMAINS, 60)
    return export(model, "onnx", tmp_path_factory.mktemp("onnx") / "model.onnx").path


@pytest.fixture
def served() -> Callable[..., Any]:
    """Runs what a test does with a service: `served(work, max_images=3, token=...)`."""

    def run(
        work: Callable[[Guard, Service], Coroutine[Any, Any, Any]],
        model: Any = None,
        token: str | None = None,
        keeper: Keeper | None = None,
        **limits: Any,
    ) -> Any:
        bounds = Limits(**limits)
        service = Service(model or BrightnessModel(), bounds, "a model", "# The card", keeper)

        async def main() -> Any:
            with service.running():
                return await work(Guard(service, token), service)

        return asyncio.run(main())

    return run


@pytest.fixture
def asked(served: Callable[..., Any]) -> Callable[..., Reply]:
    """The reply to one request: `asked("/predict", body, headers=FORM, max_images=3)`."""

    def one(path: str, *body: bytes, headers: dict[str, str] = FORM, **options: Any) -> Reply:
        return served(lambda guard, _: ask(guard, path, *body, headers=headers), **options)

    return one
