"""Image files by folder, pattern or name, one after the other."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from unseen.data.images import EXTENSIONS, is_image_name
from unseen.errors import DataError


def find_images(words: Iterable[str]) -> Iterator[Path]:
    """Files as they are named; folders with all that is below them; patterns such as `a/*.jpg`.

    They come in order of name, and are looked up as they are used: there may be any number.
    """
    for word in words:
        found = False
        for path in _matching(word):
            for file in _below(path) if path.is_dir() else (path,):
                found = True
                yield file
        if not found:
            raise DataError(
                f"{word} holds no images; expected files that end in {', '.join(EXTENSIONS)}"
            )


def _matching(word: str) -> Iterator[Path]:
    if Path(word).exists():
        yield Path(word)
        return
    pattern = Path(word)
    base = Path(pattern.anchor or ".")
    names = sorted(base.glob(str(pattern.relative_to(pattern.anchor)))) if _is_pattern(word) else []
    if not names:
        raise DataError(f"there is no file or folder {word}, and nothing matches it as a pattern")
    for path in names:
        hidden = any(part.startswith(".") and part not in pattern.parts for part in path.parts)
        if not hidden and (path.is_dir() or is_image_name(path.name)):
            yield path


def _is_pattern(word: str) -> bool:
    return any(sign in word for sign in "*?[")


def _below(folder: Path) -> Iterator[Path]:
    for base, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(base) / name for name in sorted(files) if is_image_name(name))
