"""Hooks of the documentation site: pages that live outside docs/, and links between them.

Markdown files link to each other by their paths in the repository, so that they also work when they
are read there. Three of them, and the examples, lie outside docs/: they become pages of the site,
and links to them are changed to match.
"""

import ast
import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "speed.md",
    "README.md": "index.md",
    "examples": "examples.md",
}
"""Files and folders of the repository, and the pages of the site that show them."""
_LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)#\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie outside docs/."""
    for source, page in OUTSIDE.items():
        if page == "index.md":
            continue
        path = ROOT / source
        text = _examples(path) if path.is_dir() else path.read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Change links between files of the repository to links between pages."""
    here = page.file.src_uri
    source = next((s for s, shown in OUTSIDE.items() if shown == here and s != "README.md"), None)
    folder = PurePosixPath(source or f"docs/{here}").parent

    def link(match: re.Match[str]) -> str:
        target = normpath(str(folder / match[1]))
        shown = OUTSIDE.get(target) or OUTSIDE.get(str(PurePosixPath(target).parent))
        if shown is None and target.startswith("docs/"):
            shown = target.removeprefix("docs/")
        return relpath(shown, str(PurePosixPath(here).parent)) if shown else match[1]

    return _LINK.sub(link, markdown)


def _examples(folder: Path) -> str:
    """One page with all examples: the introduction, then each script under its first line."""
    parts = [(folder / "README.md").read_text(encoding="utf-8")]
    for script in sorted(folder.glob("*.py")):
        text = script.read_text(encoding="utf-8")
        title = (ast.get_docstring(ast.parse(text)) or script.stem).splitlines()[0].rstrip(".")
        parts.append(f"## {title}\n\n`examples/{script.name}`\n\n```python\n{text}```\n")
    return "\n".join(parts)
