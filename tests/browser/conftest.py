"""A headless Chromium without network for tests of pages; they are skipped where there is none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--window-size=1280,900",
    # Whatever a page might ask for from elsewhere fails, and is then a console error.
    "--host-resolver-rules=MAP * ~NOTFOUND",
)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    """One browser for all tests of pages."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("needs chromium and chromedriver (Debian: chromium, chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in (*_FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('browser')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    running = webdriver.Chrome(
        options=options, service=webdriver.ChromeService(executable_path=driver)
    )
    yield running
    running.quit()


@pytest.fixture
def opened(chromium, tmp_path):
    """Opens a page from disk and, at the end, asserts that the console stayed empty."""

    def show(html: str, *, width: int = 1280, dark: bool = False):
        path = Path(tmp_path) / "page.html"
        path.write_text(html, encoding="utf-8")
        chromium.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500},
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        chromium.get(path.as_uri())
        return chromium

    chromium.get_log("browser")
    yield show
    assert chromium.get_log("browser") == []
