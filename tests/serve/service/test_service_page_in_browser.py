"""The page for people in a real browser (see `tests/browser.py`)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.service.process import Running, running
from tests.browser import asked_for
from tests.serve.service.asking import picture

pytest.importorskip("selenium", reason="selenium is not installed (extra 'dev')")
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

TOKEN = "a long secret"


@pytest.fixture(scope="module")
def service(onnx_model: Path) -> Iterator[Running]:
    with running(onnx_model) as found:
        yield found


@pytest.fixture
def pictures(tmp_path: Path) -> list[str]:
    files = {"<b>dark<b>.png": picture(10), "bright.png": picture(250)}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "cut.png").write_bytes(picture(99, (64, 64))[:70])
    return [str(tmp_path / name) for name in (*files, "cut.png")]


def wait(browser: Any, condition: Any) -> Any:
    return WebDriverWait(browser, 60, 0.05).until(condition)


def text_of(browser: Any, selector: str) -> str:
    return browser.find_element(By.CSS_SELECTOR, selector).text


def send(browser: Any, files: list[str]) -> None:
    browser.find_element(By.ID, "files").send_keys("\n".join(files))
    wait(browser, lambda each: text_of(each, "#status").endswith("done"))


def test_images_get_answers_opinions_and_outlier_scores(browser, service, pictures) -> None:
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(service.address)
    wait(browser, lambda each: "trained on" in text_of(each, "#model"))
    send(browser, pictures)
    cards = browser.find_elements(By.CSS_SELECTOR, ".answer")
    assert len(cards) == 3
    assert "cut.png is not a readable image" in cards[0].text
    good = cards[2]
    assert "<b>dark<b>.png" in good.text
    assert len(good.find_elements(By.CSS_SELECTOR, ".bars li.domain")) == 3
    assert "The domains" in good.text
    assert "The image is an outlier" in good.text
    wait(browser, lambda each: "Only 2 of the 50" in text_of(each, "#drift-text"))
    severe = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert [entry for entry in severe if "422" not in entry["message"]] == []
    strangers = {url for url in asked_for(browser) if not url.startswith(service.address)}
    assert strangers == set()


def test_it_works_with_the_keyboard_and_fits_a_phone_in_the_dark(
    browser, service, pictures
) -> None:
    phone = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    try:
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
        browser.get(service.address)
        wait(browser, lambda each: "trained on" in text_of(each, "#model"))
        send(browser, pictures)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
        style = "return getComputedStyle(document.body).backgroundColor"
        assert browser.execute_script(style) == "rgb(17, 22, 29)"
        browser.execute_script("document.getElementById('files').focus()")
        # to the first card's Remove
        webdriver.ActionChains(browser).send_keys(Keys.TAB).send_keys(Keys.ENTER).perform()
        assert len(browser.find_elements(By.CSS_SELECTOR, ".answer")) == 2
        assert browser.switch_to.active_element.get_attribute("id") == "files"
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_images_can_be_pasted_and_dropped(browser, service) -> None:
    browser.get(service.address)
    wait(browser, lambda each: "trained on" in text_of(each, "#model"))
    for event, field in (("paste", "clipboardData"), ("drop", "dataTransfer")):
        browser.execute_async_script(
            """const [kind, field, done] = arguments;
            const canvas = document.createElement("canvas");
            canvas.toBlob((blob) => {
              const given = new DataTransfer();
              given.items.add(new File([blob], kind + ".png", { type: "image/png" }));
              const event = new Event(kind, { bubbles: true, cancelable: true });
              Object.defineProperty(event, field, { value: given });
              document.body.dispatchEvent(event);
              done();
            });""",
            event,
            field,
        )
        wait(browser, lambda each: text_of(each, "#status").endswith("done"))
        assert f"{event}.png" in text_of(browser, ".answer")
        assert browser.find_elements(By.CSS_SELECTOR, ".answer .problem") == []
        browser.execute_script("document.getElementById('status').textContent = ''")


def test_the_page_for_programs_lists_every_path(browser, service) -> None:
    browser.get(f"{service.address}/docs")
    wait(browser, lambda each: len(each.find_elements(By.CSS_SELECTOR, ".endpoint")) == 5)
    assert f"{service.address}/predict" in text_of(browser, "pre")
    assert "/drift" in text_of(browser, "#endpoints")


def test_a_token_is_asked_for_and_used(browser, onnx_model) -> None:
    with running(onnx_model, "--token", TOKEN) as service:
        browser.get(service.address)
        form = browser.find_element(By.ID, "token")
        wait(browser, lambda _: form.is_displayed())
        browser.find_element(By.ID, "token-text").send_keys("wrong", Keys.ENTER)
        wait(browser, lambda each: "not the token" in text_of(each, "#token-note"))
        browser.find_element(By.ID, "token-text").send_keys(TOKEN, Keys.ENTER)
        wait(browser, lambda each: "trained on" in text_of(each, "#model"))
        assert not form.is_displayed()
