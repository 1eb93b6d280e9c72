"""Hooks of the documentation site: the pages of methods, pages that lie outside docs/, links
between pages, and formulas.

Markdown files link to each other by their paths in the repository, so that links also work when the
files are read there. Some of them lie outside docs/; the site shows them as pages of its own, and
links to them are changed accordingly. Formulas are LaTeX as GitHub reads it; the site has them as
MathML, which browsers typeset without any script.
"""

import ast
import json
import re
import sys
from html import unescape
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from docs.generators.setting_tables import families  # noqa: E402

OUTSIDE = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "speed.md",
    "examples/README.md": "examples.md",
}
"""Files of the repository, and the pages of the site that show them."""
_CODE_IN_TABLE = re.compile(r"`[^`\n]*\\\|[^`\n]*`")
_LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)#\s]+)")
_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
WIDE = 3
"""Columns from which on a table does not fit a phone: there, each row is a card."""
_FORMULA = re.compile(r'<pre class="math"><code>(.*?)</code></pre>', re.DOTALL)
_SYMBOLS = re.compile(r"\$<code>(.*?)</code>\$")


def on_config(config: MkDocsConfig) -> None:
    """Add each method's page to the navigation, by family, and the lab book."""
    sections = {name: pages for part in config.nav or () for name, pages in part.items()}
    for family, names in families(ROOT / "docs" / "methods").items():
        pages = [{name: f"methods/{name}.md"} for name in names]
        sections["Methods"].append({family.capitalize(): pages})
    book = sorted((ROOT / "docs" / "lab").glob("*.md"), reverse=True)
    sections["Results"].append({"Lab book": [f"lab/{page.name}" for page in book]})


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie outside docs/, and those of the tutorials."""
    for source, page in OUTSIDE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        if page == "examples.md":
            text += _scripts(re.findall(r"\((\w+\.py)\)", text))
        files.append(File.generated(config, page, content=text))
    for book in (ROOT / "docs" / "tutorials").glob("*.ipynb"):
        page = f"tutorials/{book.stem}.md"
        files.append(File.generated(config, page, content=_tutorial(book)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Change links between files of the repository to links between pages."""
    here = page.file.src_uri
    if here.startswith("lab/") or here in {"changelog.md", "published.md"}:
        page.meta["search"] = {"boost": 0.3}  # records come after pages that explain
    sources = {shown: source for source, shown in OUTSIDE.items()}
    folder = PurePosixPath(sources.get(here, f"docs/{here}")).parent

    def link(match: re.Match[str]) -> str:
        target = PurePosixPath(normpath(str(folder / match[1])))
        if target.match("examples/*.py"):
            shown = f"examples.md#{target.stem}"
        elif target.suffix == ".ipynb":
            shown = f"tutorials/{target.stem}.md"
        else:
            shown = OUTSIDE.get(str(target)) or str(target).removeprefix("docs/")
        return relpath(shown, str(PurePosixPath(here).parent))

    # in code within tables, | is escaped for readers of the repository, but not for the site
    plain = _CODE_IN_TABLE.sub(lambda code: code[0].replace("\\|", "|"), markdown)
    return _LINK.sub(link, plain)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Typeset formulas: blocks of the language math, and $`symbols`$ in a sentence. What scrolls by
    itself can be reached by keys, and wide tables become cards on a phone."""

    def formula(match: re.Match[str]) -> str:
        typeset = convert(unescape(match[1]).strip(), display="block")
        return f'<div class="formula" tabindex="0">{typeset}</div>'

    html = _FORMULA.sub(formula, html)
    html = _SYMBOLS.sub(lambda match: convert(unescape(match[1])), html)
    html = html.replace('<div class="wide"', '<div class="wide" tabindex="0"')  # it scrolls
    return _TABLE.sub(_labelled, html)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Give the theme's search dialog a name for screen readers."""
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"')


def _labelled(table: re.Match[str]) -> str:
    """Give each cell of a wide table its column's name, by which it stands on a phone."""
    head, _, body = table[0].replace("<th></th>", "<td></td>").partition("</thead>")
    names = [
        re.sub(r"<[^>]+>", "", name) for name in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", head)
    ]
    if len(names) < WIDE:
        return f"{head}</thead>{body}"
    rows = []
    for row in body.split("<tr>"):
        columns = iter(names)
        rows.append(re.sub(r"<td", lambda _, c=columns: f'<td data-label="{next(c, "")}"', row))
    return f"{head.replace('<table>', '<table data-wide>')}</thead>{'<tr>'.join(rows)}"


def _tutorial(book: Path) -> str:
    """The text and code of a notebook, and where it is to be had."""
    cells = json.loads(book.read_text(encoding="utf-8"))["cells"]
    parts = []
    for cell in cells:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    parts.insert(1, f'<a href="{book.name}" download>This page as a notebook</a>')
    return "\n\n".join(parts) + "\n"


def _scripts(names: list[str]) -> str:
    """Each script under the first line of its docstring."""
    parts = []
    for script in (ROOT / "examples" / name for name in names):
        text = script.read_text(encoding="utf-8")
        title = (ast.get_docstring(ast.parse(text)) or script.stem).splitlines()[0].rstrip(".")
        heading = f"## {title} {{ #{script.stem} }}"
        parts.append(f"\n{heading}\n\n`examples/{script.name}`\n\n```python\n{text}```\n")
    return "".join(parts)
