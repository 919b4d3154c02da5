"""The comparison of two runs as a page in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracebook.compare.baseline import Baseline
from tracebook.compare.comparison import compare
from tracebook.compare.record import record
from tracebook.render.comparison import render

pytest.importorskip("selenium", reason="selenium is not installed")
from selenium.webdriver.common.by import By

FIXTURES = Path(__file__).parents[2] / "fixtures"


@pytest.fixture(scope="module")
def page():
    old, new = (
        Baseline((record(FIXTURES / name / "trace.sqlite"),))
        for name in ("dflash2-k10", "dflash2-k10-nvfp4-drafter")
    )
    return render(compare(old, new), None, "html")


@pytest.mark.parametrize("width", [1280, 390])
def test_two_runs_make_one_page(opened, page, width):
    driver = opened(page, width=width)
    assert driver.title == "Two runs compared"
    assert "shorter" in driver.find_element(By.CSS_SELECTOR, ".lead").text
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    heads = driver.find_elements(By.CSS_SELECTOR, '[aria-label="Change of each phase"] th button')
    heads[1].click()
    rows = driver.find_elements(By.CSS_SELECTOR, '[aria-label="Change of each phase"] tbody tr')
    assert rows[0].text.startswith("target layers")
    foot = driver.find_element(By.CSS_SELECTOR, '[aria-label="Change of each phase"] tfoot')
    assert foot.text.startswith("step 116")
