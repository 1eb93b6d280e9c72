"""axe-core finds nothing on the pages of the site. It is a package of npm, not of Python:
`npm install axe-core`, or UNSEEN_AXE with its file; without it, this is skipped."""

import os
from pathlib import Path
from typing import Any

import pytest
from tests.docs.markdown_files import ROOT

AXE = Path(os.environ.get("UNSEEN_AXE", ROOT / "node_modules/axe-core/axe.min.js"))
PAGES = ("index", "methods", "methods/dmg", "results", "commands", "settings", "glossary", "report")
RUN = """
const done = arguments[0];
axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]})
  .then((found) => done(found.violations.map(
    (each) => `${each.id}: ${each.nodes[0].target.join(" ")}: ${each.nodes[0].failureSummary}`)));
"""


@pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not there (npm install axe-core)")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_no_violations(site: Path, browser: Any, width: int, scheme: str) -> None:
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    for page in PAGES:
        browser.get((site / f"{page}.html").as_uri())
        browser.execute_script(AXE.read_text(encoding="utf-8"))
        assert browser.execute_async_script(RUN) == [], page
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width, page
