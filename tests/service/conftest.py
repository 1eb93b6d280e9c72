"""A service in this process, and small pictures to send to it."""

import asyncio
import io
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from PIL import Image
from tests.service.asking import BrightnessModel

pytest.importorskip("fastapi", reason="fastapi is not installed (extra 'serve')")
from unseen.service.app import build_app
from unseen.service.guard import Guard
from unseen.service.limits import Limits
from unseen.service.service import Facts, Service


@pytest.fixture
def picture() -> Callable[..., bytes]:
    """The bytes of a gray picture."""

    def make(gray: int = 128, size: tuple[int, int] = (8, 8), kind: str = "PNG") -> bytes:
        file = io.BytesIO()
        Image.new("RGB", size, (gray, gray, gray)).save(file, kind)
        return file.getvalue()

    return make


@pytest.fixture
def served() -> Callable[..., Any]:
    """Runs what a test does with a service: `served(work, images=3, token=...)`."""

    def run(
        work: Callable[[Guard, Service], Coroutine[Any, Any, Any]],
        model: Any = None,
        token: str | None = None,
        **limits: Any,
    ) -> Any:
        facts = Facts("a model", "# The card")
        service = Service(model or BrightnessModel(), Limits(**limits), facts)

        async def main() -> Any:
            async with service.running():
                return await work(build_app(service, token), service)

        return asyncio.run(main())

    return run
