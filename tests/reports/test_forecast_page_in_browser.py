"""The page of a forecast in a real browser: offline, narrow, and with hostile names."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.browser import asked_for
from tests.forecast.made import observed, profile

from unseen.forecast.estimate import NAMES, Reference
from unseen.forecast.forecast import FileForecast, Outlier, forecast
from unseen.forecast.page import write_page

selenium = pytest.importorskip("selenium", reason="selenium is not installed (extra 'dev')")
from selenium.webdriver.common.by import By  # noqa: E402

HOSTILE = "<script>document.title='broken'</script>"


@pytest.fixture
def page(tmp_path: Path) -> Path:
    gaps = dict.fromkeys(NAMES, 0.1)
    references = [Reference(HOSTILE, d, 0.9, 0.7, gaps) for d in ("north", "south")]
    made = forecast(profile(), observed(n=40, like=1), references)
    picture = np.full((96, 96, 3), 80, dtype=np.uint8)
    strange = tuple(Outlier(Path(HOSTILE), HOSTILE, 0.9, 2.0, picture) for _ in range(20))
    path = tmp_path / "forecast.html"
    write_page(FileForecast(made, HOSTILE, (), (), strange), path)
    return path


@pytest.mark.parametrize("width", [1200, 360])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_reads_well_everywhere_and_asks_nobody(
    browser: Any, page: Path, width: int, scheme: str
) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    wish = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", wish)
    browser.get_log("performance")
    browser.get(page.as_uri())
    assert browser.title.startswith("Forecast: ")
    assert browser.get_log("browser") == []
    assert asked_for(browser) == {page.as_uri()}
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    images = browser.find_elements(By.CSS_SELECTOR, ".sheet img")
    assert len(images) == 20
    assert all(browser.execute_script("return arguments[0].naturalWidth", i) == 96 for i in images)
    colours = browser.execute_script(
        "const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]"
    )
    light, dark = ["rgb(255, 255, 255)", "rgb(17, 22, 29)"]
    assert colours[0] == (light if scheme == "light" else dark)
    for name in ("What to do", "Estimates", "What is different", "Outliers", "Classes"):
        link = browser.find_element(By.LINK_TEXT, name)
        target = link.get_attribute("href").rpartition("#")[2]
        assert browser.find_element(By.ID, target).is_displayed()
