"""The browser that tests of web pages run in: found on this machine, or installed by `make test`.

`python -m tests.browser` makes sure that there is one. It never fails: where no browser can be had,
it says so in one line, and the tests that need one are skipped.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MAC_NAMES = ("Chromium", "Google Chrome", "Google Chrome for Testing")
DEBIAN_PACKAGES = ("chromium", "chromium-driver")
MISSING = (
    "no Chromium with a chromedriver was found; install both (Debian: apt-get install "
    f"{' '.join(DEBIAN_PACKAGES)}; macOS: brew install --cask chromium chromedriver)"
)


FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--window-size=1200,900",
)


class Browser(NamedTuple):
    program: Path
    driver: Path


def find_browser() -> Browser | None:
    program = next((path for path in _programs() if path.is_file()), None)
    if program is None:
        return None
    driver = next((path for path in _drivers(program) if path.is_file()), None)
    return None if driver is None else Browser(program, driver)


def _programs() -> Iterator[Path]:
    yield from (Path(path) for name in NAMES if (path := shutil.which(name)))
    for folder in (Path("/Applications"), Path.home() / "Applications"):
        yield from (folder / f"{name}.app/Contents/MacOS/{name}" for name in MAC_NAMES)
    for cache in (".cache", "Library/Caches"):  # where Playwright keeps the browsers it fetched
        yield from sorted(
            (Path.home() / cache / "ms-playwright").glob("chromium-*/chrome-*/chrome")
        )


def _drivers(program: Path) -> Iterator[Path]:
    yield from (Path(path) for path in (shutil.which("chromedriver"),) if path)
    if "CHROMEWEBDRIVER" in os.environ:  # GitHub's runners
        yield Path(os.environ["CHROMEWEBDRIVER"], "chromedriver")
    yield from (folder / "chromedriver" for folder in (program.parent, Path("/usr/lib/chromium")))


def start_browser(profile: Path) -> Any:
    """A driver of the browser, which keeps its messages and requests; skips the test without."""
    import pytest

    pytest.importorskip("selenium", reason="selenium is not installed (extra 'dev')")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    found = find_browser()
    if found is None:
        pytest.skip(MISSING)
    options = webdriver.ChromeOptions()
    options.binary_location = str(found.program)
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=Service(str(found.driver)))


def asked_for(browser: Any) -> set[str]:
    """Addresses that were requested since the last look, without what lies inside a page and what
    the browser's own start page, which may still be loading, asks for."""
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = {
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    }
    own = ("data:", "blob:", "chrome:", "chrome-untrusted:")
    return {url for url in urls if not url.startswith(own)}


def install_browser() -> None:
    """From the distribution, where this user may install packages."""
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    print("Installing Chromium for the tests of the report page ...", flush=True)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    install = ("install", "--yes", "--no-install-recommends", *DEBIAN_PACKAGES)
    for words in (install, ("update",), install):  # the lists may be old or missing
        answer = subprocess.run(
            ["apt-get", "-qq", "--option=DPkg::Lock::Timeout=300", *words],
            env=environment,
            capture_output=True,
            check=False,
        )
        if words == install and answer.returncode == 0:
            return


if __name__ == "__main__":
    if find_browser() is None:
        install_browser()
    if find_browser() is None:
        print(f"Tests of the report page will be skipped: {MISSING}", file=sys.stderr)
