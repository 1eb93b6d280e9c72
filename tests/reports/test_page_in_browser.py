"""The page in a real browser: Chromium or Chrome with its driver (see `tests/browser.py`)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.browser import asked_for

from unseen.reports.page.write import write_report
from unseen.results.files import write_arrays
from unseen.results.result import Calibration, DomainResult, RuleResult

selenium = pytest.importorskip("selenium", reason="selenium is not installed (extra 'dev')")
from selenium import webdriver  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

HOSTILE = "<script>document.title='broken'</script>"


def _statistics(domains: list[str]) -> dict[str, Any]:
    shares = {"soft": 0.6, "hard": 0.9}
    pairs = {f"{a}|{b}": shares for i, a in enumerate(domains) for b in domains[i + 1 :]}
    return {"fc": {"kept": dict.fromkeys(domains, shares), "iou": pairs}}


@pytest.fixture
def opened(make_run, make_result, browser, tmp_path) -> Callable[[], Path]:
    """A page of two methods, two seeds and two domains, one of which is hostile."""

    def measured(accuracy: float) -> DomainResult:
        wrong = round(100 * (1 - accuracy))
        bins = Calibration(images=(50, 50), confidence=(20, 45), correct=(25, 40))
        confusion = np.array([[100 - wrong, wrong], [wrong, 100 - wrong]])
        return DomainResult.counted(confusion, bins)

    def open_page() -> Path:
        domains = ["photo", HOSTILE]
        for m, method in enumerate(("aggregate", "dmg")):
            for seed in (0, 1):
                for place, unseen in enumerate(domains):
                    seen = [name for name in (*domains, "art") if name != unseen]
                    results = {}
                    for rule, bonus in (("source", 0.0), ("last", 0.1)):
                        accuracy = 0.5 + 0.1 * m + 0.05 * place + 0.01 * seed + bonus
                        views = {
                            "out_of_domain": {unseen: measured(accuracy)},
                            "in_domain": {name: measured(0.9) for name in seen},
                        }
                        results[rule] = RuleResult(step=10, views=views)
                    log = [{"step": s, "loss": 1 / s} for s in range(1, 11)]
                    log.append(
                        {"step": 10, "validation": dict.fromkeys(seen, 0.9),
                         "statistics": _statistics(seen) if method == "dmg" else {}}
                    )  # fmt: skip
                    path = make_run(
                        method, {unseen: 0.0}, dict.fromkeys(seen, 0.9), seed=seed, metrics=log,
                        results=results, run=f"{method}-{place}-{seed}",
                        classes=["<b>dog</b>", "house"],
                    )  # fmt: skip
                    _write_pictures(path, [*seen, unseen])
        page = write_report(tmp_path / "runs", tmp_path / "out")
        browser.get_log("browser")
        browser.get_log("performance")
        browser.get(page.as_uri())
        return page

    return open_page


def _write_pictures(path: Path, domains: list[str]) -> None:
    rng = np.random.default_rng(0)
    write_arrays(
        path / "pictures.npz",
        {
            "domains": np.array(domains),
            "mistakes/images": rng.integers(0, 255, (2, 64, 64, 3), dtype=np.uint8),
            "mistakes/domain": np.array([2, 2], np.int16),
            "mistakes/true": np.array([0, 1], np.int32),
            "mistakes/predicted": np.array([1, 0], np.int32),
            "mistakes/confidence": np.array([0.99, 0.9], np.float32),
            "mistakes/name": np.array(["<u>a</u>.png", "b.png"]),
            "features/values": rng.normal(size=(30, 5)).astype(np.float16),
            "features/domain": np.repeat([0, 1, 2], 10).astype(np.int16),
            "features/label": np.tile([0, 1], 15).astype(np.int32),
        },
    )


def texts(browser, selector: str) -> list[str]:
    found = browser.find_elements(By.CSS_SELECTOR, selector)
    return [element.text for element in found if element.is_displayed()]


def first_column(browser) -> list[str]:
    return texts(browser, ".table:not([data-rule=last]) tbody tr th")[:2]


def test_nothing_is_complained_of_and_nothing_is_asked_for(opened, browser) -> None:
    page = opened()
    width = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert browser.execute_script(width) == 0
    assert [entry for entry in browser.get_log("browser") if entry["level"] != "INFO"] == []
    assert asked_for(browser) == {page.as_uri()}


def test_hostile_names_are_shown_as_text(opened, browser) -> None:
    opened()
    assert browser.title != "broken"
    assert any(HOSTILE in text for text in texts(browser, "thead th"))
    assert len(browser.find_elements(By.TAG_NAME, "script")) == 1
    shown = browser.execute_script("return document.body.textContent")
    assert "<b>dog</b> → house 99\N{NO-BREAK SPACE}%" in shown
    assert browser.find_elements(By.CSS_SELECTOR, "table u, svg b, figcaption b") == []


def test_tables_sort_both_ways(opened, browser) -> None:
    opened()
    assert first_column(browser) == ["aggregate", "dmg"]
    head = browser.find_element(By.CSS_SELECTOR, ".table[data-rule=source] thead th:nth-child(2)")
    button = head.find_element(By.TAG_NAME, "button")
    button.click()
    assert head.get_attribute("aria-sort") == "descending"
    assert first_column(browser) == ["dmg", "aggregate"]
    button.click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert first_column(browser) == ["aggregate", "dmg"]


def test_the_rule_switch_changes_the_numbers(opened, browser) -> None:
    opened()
    assert "53.0" in texts(browser, ".table td b, .table td")[0] + texts(browser, "table")[0]
    before = texts(browser, ".conclusion .number")
    assert before == ["63.0 ± 6.4 % (mean over 2 held-out domains)"]
    browser.find_element(By.CSS_SELECTOR, "#rule-last + span").click()
    assert texts(browser, ".conclusion .number") == ["73.0 ± 6.4 % (mean over 2 held-out domains)"]
    assert all("rule source" not in text for text in texts(browser, "h3"))


def test_runs_can_be_chosen(opened, browser) -> None:
    opened()
    box = browser.find_element(By.CSS_SELECTOR, ".chooser input[value=m0]")
    box.click()
    assert first_column(browser)[0] == "dmg"
    faded = browser.find_elements(By.CSS_SELECTOR, "svg.curves .curve.off")
    assert faded
    assert all("m0" in element.get_attribute("data-tags") for element in faded)
    box.click()
    assert browser.find_elements(By.CSS_SELECTOR, ".off") == []


def test_pointing_at_a_curve_reads_its_values(opened, browser) -> None:
    opened()
    curves = browser.find_element(By.CSS_SELECTOR, "svg.curves")
    browser.execute_script(
        "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", curves
    )
    webdriver.ActionChains(browser).move_to_element_with_offset(curves, 0, 0).perform()
    shown = WebDriverWait(browser, 10).until(lambda page: page.find_element(By.ID, "tip").text)
    tip = shown.split("\n")
    step = int(tip[0].removeprefix("at "))
    assert tip[1] == f"aggregate, seed 0: {float(f'{1 / step:.4g}'):g}"


def test_it_fits_a_phone_and_the_dark(opened, browser) -> None:
    opened()
    phone = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    try:
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
        style = "return getComputedStyle(document.body).backgroundColor"
        assert browser.execute_script(style) == "rgb(17, 22, 29)"
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
