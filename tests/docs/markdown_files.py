"""The Markdown files of the repository, and the code and links in them."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FILES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *(ROOT / folder / "README.md" for folder in ("benchmarks", "examples")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", flags=re.MULTILINE | re.DOTALL)
_PLACEHOLDER = re.compile(r"…|\.\.\.|\[|^[A-Z_|]{2,}(:\d+)?$|^<")


def name_of(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


class Command(NamedTuple):
    """A command in a page, and the words of it."""

    file: Path
    words: tuple[str, ...]

    @property
    def has_placeholders(self) -> bool:
        """Whether some of its words stand for others: RUN, DIR, runs/pacs-…, [key=value …]."""
        return any(_PLACEHOLDER.search(word.rpartition("=")[2]) for word in self.words)

    def __str__(self) -> str:
        return f"{name_of(self.file)}: {' '.join(self.words)}"


def text_of(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def prose_of(file: Path) -> str:
    return re.sub(_FENCE, "", text_of(file))


def blocks(file: Path, language: str | None = None) -> Iterator[str]:
    """Fenced code, of one language or of any."""
    for indent, found, code in _FENCE.findall(text_of(file)):
        if language in (None, found):
            yield re.sub(rf"^{indent}", "", code, flags=re.MULTILINE)


def commands(program: str) -> list[Command]:
    """All commands of a program in all files: lines of code blocks, and code within sentences."""
    found: dict[str, Command] = {}
    for file in FILES:
        lines = [line for code in blocks(file) for line in code.replace("\\\n", " ").split("\n")]
        lines += re.findall(r"^    .*$", text_of(file), flags=re.MULTILINE)
        lines += re.findall(r"(?<!`)`([^`]+)`(?!`)", prose_of(file))
        for line in lines:
            words = _words(" ".join(line.split()).replace("\\|", "|"))
            if len(words) > 1 and words[0] == program:
                command = Command(file, tuple(words))
                found[str(command)] = command
    return list(found.values())


def _words(line: str) -> list[str]:
    """A line as a shell reads it, without comments, redirections and leading assignments."""
    try:
        words = shlex.split(re.sub(r"\s(#|\(|>).*", "", line))
    except ValueError:
        return []
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    return words


def broken_links(file: Path) -> list[str]:
    """Links inside the repository that lead nowhere, or to no heading."""
    found = re.findall(r"(?<=\]\()[^)\s]+(?=\))", re.sub(r"`[^`\n]*`", "", prose_of(file)))
    broken = []
    for link in found:
        path, _, anchor = link.partition("#")
        target = file.parent / path if path else file
        outside = re.match(r"https?:|mailto:", link)
        if not outside and not (target.exists() and (not anchor or anchor in _anchors(target))):
            broken.append(link)
    return broken


def _anchors(file: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", prose_of(file), flags=re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}
