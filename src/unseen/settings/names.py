"""Settings that are lists of names. No torch."""

from typing import Annotated, Any

from pydantic import BeforeValidator


def as_list(value: Any) -> Any:
    """`photo` and `photo,sketch` are lists, too: that is how they are typed in a shell."""
    if isinstance(value, int):  # a folder called 2007, say, which YAML takes for a number
        value = str(value)
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


Names = Annotated[tuple[str, ...], BeforeValidator(as_list)]
