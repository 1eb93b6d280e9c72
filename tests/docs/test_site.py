"""The documentation site builds without a warning and asks no other host for anything."""

import json
import re
import time
from pathlib import Path
from typing import Any

_REQUEST = "Network.requestWillBeSent"


def test_nothing_is_asked_of_other_hosts(site: Path) -> None:
    """Links to other sites are fine; scripts, styles, fonts and images come with the page."""
    outside = re.compile(
        r"<(?:script|img|iframe|link|source)\b[^>]*(?:src|href)=[\"']?(?:https?:)?//[^>]*>"
    )
    found = {
        tag
        for page in site.rglob("*.html")
        for tag in outside.findall(page.read_text(encoding="utf-8"))
        if 'rel="canonical"' not in tag
    }
    assert found == set()
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?https?://", sheet.read_text(encoding="utf-8"))


def test_search_finds_settings_commands_and_functions(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    titles = {entry["title"] for entry in index["docs"]}
    assert {"unseen compare", "Settings", "Architecture"} <= titles
    text = " ".join(entry["text"] for entry in index["docs"])
    assert "overlap_weight" in text
    reference = (site / "api.html").read_text(encoding="utf-8")
    assert all(f'id="unseen.{name}"' in reference for name in ("fit", "compare", "load"))


def test_tables_and_code_are_rendered(site: Path) -> None:
    """No Markdown shows through: tables without a blank line before them, lists without one behind
    a table, unclosed fences."""
    for page in site.rglob("*.html"):
        body = page.read_text(encoding="utf-8")
        text = re.sub(r"<(pre|code)\b.*?</\1>", "", body, flags=re.DOTALL)
        assert "|---" not in text, page.name
        assert "```" not in text, page.name
        assert not re.search(r"<td[^>]*>- ", text), page.name
        assert "](" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL), page.name


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
    pages = [link.get_attribute("href").partition("?")[0].partition("#")[0] for link in found]
    assert any(page.endswith("methods/dmg.html") for page in pages)
    for page in pages:
        text = (site / page.removeprefix(f"{site.as_uri()}/")).read_text(encoding="utf-8").lower()
        assert "overlap" in text, page
        assert "weight" in text, page
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == _REQUEST]
    assert asked
    own = ("file:", "data:", "blob:", "chrome:", "chrome-untrusted:")
    assert [url for url in asked if not url.startswith(own)] == []
