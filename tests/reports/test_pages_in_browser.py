"""The pages in a real browser: Chromium or Chrome with its driver (see `tests/browser.py`)."""

from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from tests.browser import asked_for
from tests.forecast.made import observed, profile
from tests.made_results import by_domain

from unseen.forecast.estimate import NAMES, Reference
from unseen.forecast.forecast import FileForecast, Outlier, forecast
from unseen.forecast.page import write_page
from unseen.reports.page.write import write_report
from unseen.results.files import write_arrays
from unseen.results.result import RuleResult

selenium = pytest.importorskip("selenium", reason="selenium is not installed (extra 'dev')")
from selenium import webdriver  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

HOSTILE = "<script>document.title='broken'</script>"
DOMAINS = ["photo", HOSTILE, "art"]


@pytest.fixture
def report_page(make_run, tmp_path: Path) -> Path:
    """A page of two methods, two seeds and two domains, one of which is hostile."""
    rng = np.random.default_rng(0)
    for method, seed, place in product(("aggregate", "dmg"), (0, 1), (0, 1)):
        unseen, masked = DOMAINS[place], method == "dmg"
        seen = [name for name in DOMAINS if name != unseen]
        inside = by_domain(dict.fromkeys(seen, 0.9))
        accuracy = 0.5 + 0.1 * masked + 0.05 * place + 0.01 * seed
        results = {
            rule: RuleResult(
                step=10, views={"out_of_domain": by_domain({unseen: value}), "in_domain": inside}
            )
            for rule, value in (("source", accuracy), ("last", accuracy + 0.1))
        }
        shares = {"soft": 0.6, "hard": 0.9}
        masks = {"fc": {"kept": dict.fromkeys(seen, shares), "iou": {"|".join(seen): shares}}}
        evaluation = {"step": 10, "validation": dict.fromkeys(seen, 0.9), "statistics": masks}
        path = make_run(
            method, {unseen: 0.0}, dict.fromkeys(seen, 0.9), seed=seed, results=results,
            metrics=[*({"step": s, "loss": 1 / s} for s in range(1, 11)), *[evaluation] * masked],
            run=f"{method}-{place}-{seed}", classes=["<b>dog</b>", "house"],
            arrays={"mask.fc": np.array([[0.9, 0.9], [0.9, 0.1]])} if masked else None,
        )  # fmt: skip
        pictures = {
            "domains": np.array([*seen, unseen]),
            "mistakes/images": rng.integers(0, 255, (2, 64, 64, 3), dtype=np.uint8),
            "mistakes/domain": np.array([2, 2], np.int16),
            "mistakes/true": np.array([0, 1], np.int32),
            "mistakes/predicted": np.array([1, 0], np.int32),
            "mistakes/confidence": np.array([0.99, 0.9], np.float32),
            "mistakes/name": np.array(["<u>a</u>.png", "b.png"]),
            "features/values": rng.normal(size=(30, 5)).astype(np.float16),
            "features/domain": np.repeat([0, 1, 2], 10).astype(np.int16),
            "features/label": np.tile([0, 1], 15).astype(np.int32),
        }
        write_arrays(path / "pictures.npz", pictures)
    return write_report(tmp_path / "runs", tmp_path / "out")


@pytest.fixture
def forecast_page(tmp_path: Path) -> Path:
    gaps = dict.fromkeys(NAMES, 0.1)
    references = [Reference(HOSTILE, d, 0.9, 0.7, gaps) for d in ("north", "south")]
    made = forecast(profile(), observed(n=40, like=1), references)
    picture = np.full((96, 96, 3), 80, dtype=np.uint8)
    outliers = tuple(Outlier(Path(HOSTILE), HOSTILE, 0.9, 2.0, picture) for _ in range(20))
    path = tmp_path / "forecast.html"
    write_page(FileForecast(made, HOSTILE, (), (), outliers), path)
    return path


@pytest.mark.parametrize("width", [1200, 360])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["report_page", "forecast_page"])
def test_pages_read_well_everywhere_and_ask_nobody(
    browser: Any, request: pytest.FixtureRequest, name: str, width: int, scheme: str
) -> None:
    page: Path = request.getfixturevalue(name)
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    wish = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", wish)
    try:
        for log in ("browser", "performance"):
            browser.get_log(log)
        browser.get(page.as_uri())
        assert [entry for entry in browser.get_log("browser") if entry["level"] != "INFO"] == []
        assert asked_for(browser) == {page.as_uri()}
        assert browser.title != "broken"
        assert len(browser.find_elements(By.TAG_NAME, "script")) == 1
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        color = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert color == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(17, 22, 29)")
        images = browser.find_elements(By.CSS_SELECTOR, ".sheet img")
        assert images
        assert all(browser.execute_script("return arguments[0].naturalWidth", i) for i in images)
        for link in browser.find_elements(By.CSS_SELECTOR, "nav a"):
            target = link.get_attribute("href").rpartition("#")[2]
            assert browser.find_element(By.ID, target).is_displayed()
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.fixture
def opened(browser: Any, report_page: Path) -> Any:
    browser.get(report_page.as_uri())
    return browser


def texts(browser: Any, selector: str) -> list[str]:
    found = browser.find_elements(By.CSS_SELECTOR, selector)
    return [element.text for element in found if element.is_displayed()]


def first_column(browser: Any) -> list[str]:
    return texts(browser, ".table:not([data-rule=last]) tbody tr th")[:2]


def test_hostile_names_are_shown_as_text(opened: Any) -> None:
    assert any(HOSTILE in text for text in texts(opened, "thead th"))
    shown = opened.execute_script("return document.body.textContent")
    assert "<b>dog</b> → house 99\N{NO-BREAK SPACE}%" in shown
    assert opened.find_elements(By.CSS_SELECTOR, "table u, svg b, figcaption b") == []


def test_tables_sort_both_ways_and_numbers_follow_the_chosen_rule_and_runs(opened: Any) -> None:
    assert first_column(opened) == ["aggregate", "dmg"]
    head = opened.find_element(By.CSS_SELECTOR, ".table[data-rule=source] thead th:nth-child(2)")
    for order, rows in (("descending", ["dmg", "aggregate"]), ("ascending", ["aggregate", "dmg"])):
        head.find_element(By.TAG_NAME, "button").click()
        assert head.get_attribute("aria-sort") == order
        assert first_column(opened) == rows
    box = opened.find_element(By.CSS_SELECTOR, ".chooser input[value=m0]")
    box.click()
    assert first_column(opened)[0] == "dmg"
    faded = opened.find_elements(By.CSS_SELECTOR, "svg.curves .curve.off")
    assert faded
    assert all("m0" in element.get_attribute("data-tags") for element in faded)
    box.click()
    assert opened.find_elements(By.CSS_SELECTOR, ".off") == []
    assert "53.0" in texts(opened, "table")[0]
    number = "63.0 ± 6.4 % (mean over 2 unseen domains)"
    assert texts(opened, ".conclusion .number") == [number]
    opened.find_element(By.CSS_SELECTOR, "#rule-last + span").click()
    assert texts(opened, ".conclusion .number") == [number.replace("63.0", "73.0")]
    assert all("rule source" not in text for text in texts(opened, "h3"))


def test_pointing_at_a_curve_reads_its_values(opened: Any) -> None:
    curves = opened.find_element(By.CSS_SELECTOR, "[data-name=curve_loss] svg.curves")
    into_view = "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})"
    opened.execute_script(into_view, curves)

    def pointed_at(page: Any) -> str:  # a pointer that is there already does not move
        for offset in (3, 0):
            webdriver.ActionChains(page).move_to_element_with_offset(curves, offset, 0).perform()
        return page.find_element(By.ID, "tip").text

    shown = WebDriverWait(opened, 20).until(pointed_at)
    tip = shown.split("\n")
    step = int(tip[0].removeprefix("at "))
    assert tip[1] == f"aggregate, seed 0: {float(f'{1 / step:.4g}'):g}"


def test_small_panels_are_enlarged_and_the_contents_stay_in_view(opened: Any) -> None:
    button = opened.find_element(By.CSS_SELECTOR, ".small .panel button")
    before = opened.find_element(By.CSS_SELECTOR, ".small .panel").size["width"]
    opened.execute_script("arguments[0].click()", button)
    assert button.get_attribute("aria-expanded") == "true"
    assert opened.find_element(By.CSS_SELECTOR, ".small .panel").size["width"] > 2 * before
    opened.execute_script("scrollTo({ top: 3000, behavior: 'instant' })")
    place = "return document.querySelector('nav').getBoundingClientRect().top"
    assert 0 <= opened.execute_script(place) < 100


def test_figures_are_taken_away_as_a_file_or_alone_on_paper(opened: Any) -> None:
    opened.execute_script(
        "URL.createObjectURL = (blob) => { blob.text().then((text) => { window.file = text; });"
        " return 'data:,'; }; window.print = () => {};"
    )
    figure = opened.find_element(By.CSS_SELECTOR, "figure[data-name=accuracy_source]")
    as_svg, as_pdf = figure.find_elements(By.CSS_SELECTOR, ".downloads button")
    opened.execute_script("arguments[0].click()", as_svg)
    wait = WebDriverWait(opened, 10)
    drawn = ElementTree.fromstring(wait.until(lambda page: page.execute_script("return file")))
    written = {[*text.itertext()][-1] for text in drawn.iter("{http://www.w3.org/2000/svg}text")}
    assert {"photo", HOSTILE, "overall", "aggregate", "dmg"} <= written
    assert "var(--" not in "".join(drawn.itertext())
    opened.execute_script("arguments[0].click()", as_pdf)
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert [each for each in opened.find_elements(By.TAG_NAME, "h3") if each.is_displayed()] == [
        figure.find_element(By.TAG_NAME, "h3")
    ]
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    opened.execute_script("dispatchEvent(new Event('afterprint'))")
    assert opened.find_elements(By.CSS_SELECTOR, "rect.unit.one"), "strips keep their colours"
