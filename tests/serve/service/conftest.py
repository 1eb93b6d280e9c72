"""A service in this process."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.serve.service.asking import FORM, BrightnessModel, Reply, ask

from unseen.serve.http import Guard
from unseen.serve.limits import Limits
from unseen.serve.service import Service

Work = Callable[[Guard, Service], Coroutine[Any, Any, Any]]


@pytest.fixture
def served() -> Callable[..., Any]:
    """Runs what a test does with a service: `served(work, max_images=3, token=...)`."""

    def run(work: Work, model: Any = None, token: Any = None, keeper: Any = None, **limits) -> Any:
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
