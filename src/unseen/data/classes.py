"""Class names as the user wants them: renamed, merged, or left out."""

from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import Field

from unseen.errors import DataError, nearest

ClassMapping = Annotated[
    dict[str, str | None] | None,
    Field(
        description="New class names, `{source: class}`; several may become one class, an empty "
        "name leaves a class out, and names that are not mentioned stay."
    ),
]


def class_names(
    found: Iterable[str], mapping: Mapping[str, str | None] | None, where: str
) -> dict[str, str]:
    """Source name -> class name, without those left out; a mapped name must exist in `where`."""
    sources = sorted(set(found))
    mapping = mapping or {}
    unknown = [f"'{name}'{nearest(name, sources)}" for name in mapping if name not in sources]
    if unknown:
        raise DataError(
            f"data.classes maps names that are not in {where}: {', '.join(unknown)} "
            f"(found: {', '.join(sources)})"
        )
    wanted = {source: mapping.get(source, source) for source in sources}
    return {source: name for source, name in wanted.items() if name}
