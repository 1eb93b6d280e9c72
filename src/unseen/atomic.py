"""Files that are there in full or not at all, whatever happens while they are written."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unseen.errors import UnseenError


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """A temporary file beside `path` that takes its place only once it is complete on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def link_file(existing: Path, path: Path) -> None:
    """Another name for a file that nobody changes in place; a copy where there are no links."""
    with atomic_file(path) as temporary:
        temporary.unlink()
        try:
            os.link(existing, temporary)
        except OSError:
            shutil.copyfile(existing, temporary)


def write_text(path: Path, text: str) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UnseenError(f"there is no {path}") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UnseenError(f"{path} is damaged: {error}") from error
