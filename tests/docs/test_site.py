"""The documentation site builds without a warning, asks no other host for anything, and can be used
by everybody."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.browser import asked_for
from tests.docs.markdown_files import ROOT

AXE = Path(os.environ.get("UNSEEN_AXE", ROOT / "node_modules/axe-core/axe.min.js"))
"""A package of npm, not of Python: `npm install axe-core`; without it, its test is skipped."""
PAGES = (
    *("index", "methods/dmg", "results", "commands", "settings"),
    *("architecture", "auto", "contributing", "examples"),
)
RUN = """
const done = arguments[0];
axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]})
  .then((found) => done(found.violations.map(
    (each) => `${each.id}: ${each.nodes[0].target.join(" ")}: ${each.nodes[0].failureSummary}`)));
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    answer = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    assert "WARNING" not in answer.stderr
    return folder


def test_pages_are_rendered_and_ask_nothing_of_other_hosts(site: Path) -> None:
    """Links to other sites are fine; scripts, styles, fonts and images come with the page. No
    Markdown shows through: tables without a blank line before them, lists without one behind a
    table, unclosed fences."""
    outside = re.compile(
        r"<(?:script|img|iframe|link|source)\b[^>]*(?:src|href)=[\"']?(?:https?:)?//[^>]*>"
    )
    for page in site.rglob("*.html"):
        body = page.read_text(encoding="utf-8")
        assert all('rel="canonical"' in tag for tag in outside.findall(body)), page.name
        text = re.sub(r"<(pre|code|script)\b.*?</\1>", "", body, flags=re.DOTALL)
        assert not re.search(r"\|---|```|<td[^>]*>- |\]\(", text), page.name
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?https?://", sheet.read_text(encoding="utf-8"))


def test_search_finds_settings_commands_and_functions(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    assert {"unseen compare", "Settings", "Architecture"} <= {
        each["title"] for each in index["docs"]
    }
    assert "overlap_weight" in " ".join(each["text"] for each in index["docs"])
    reference = (site / "api.html").read_text(encoding="utf-8")
    assert all(f'id="unseen.{name}"' in reference for name in ("fit", "compare", "load"))


def test_search_works_without_a_server(site: Path, browser: Any) -> None:
    """In a page opened from the file system, which asks no other host for anything; what is found
    has every word of the query."""
    browser.get((site / "index.html").as_uri())
    browser.execute_script("document.querySelector('[data-md-toggle=search]').click()")
    browser.find_element("css selector", ".md-search__input").send_keys("overlap weight")
    for _ in range(100):
        found = browser.find_elements("css selector", ".md-search-result__item > a")
        if found:
            break
        time.sleep(0.2)
    pages = [re.split(r"[?#]", link.get_attribute("href"))[0] for link in found]
    assert any(page.endswith("methods/dmg.html") for page in pages)
    for page in pages:
        text = (site / page.removeprefix(f"{site.as_uri()}/")).read_text(encoding="utf-8").lower()
        assert all(word in text for word in ("overlap", "weight")), page
    asked = asked_for(browser)
    assert asked
    assert [url for url in asked if not url.startswith("file:")] == []


@pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not there (npm install axe-core)")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_nothing(site: Path, browser: Any, width: int, scheme: str) -> None:
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get((site / "index.html").as_uri())
    for page in PAGES:
        browser.execute_script("localStorage.clear()")  # keeps the scheme of the last page
        browser.get((site / f"{page}.html").as_uri())
        shown = browser.execute_script("return document.body.dataset.mdColorScheme")
        assert shown == {"light": "default", "dark": "slate"}[scheme]
        browser.execute_script(AXE.read_text(encoding="utf-8"))
        assert browser.execute_async_script(RUN) == [], page
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width, page
