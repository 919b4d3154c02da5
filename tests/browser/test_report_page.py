"""The report as a page in a real browser: no errors, sorted tables, a timeline that moves."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest
from handmade import make_report, make_trace

import tracebook
from tracebook.render import render

pytest.importorskip("selenium", reason="selenium is not installed")
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.by import By

ROOT = Path(__file__).parents[2]
HOSTILE = "evil</script><script>document.title='owned'</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def recipe():
    # By a relative path: a page names no folder of an absolute one.
    return tracebook.analyze(os.path.relpath(ROOT / "fixtures" / "full-recipe" / "trace.sqlite"))


@pytest.fixture(scope="module")
def recipe_page(recipe):
    return render(recipe, "html")


def view(canvas) -> tuple[int, int]:
    return int(canvas.get_attribute("data-from")), int(canvas.get_attribute("data-to"))


def column(driver, label: str, number: int) -> list[str]:
    rows = driver.find_elements(By.CSS_SELECTOR, f'[aria-label="{label}"] tbody tr')
    return [row.find_elements(By.TAG_NAME, "td")[number].text for row in rows]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_opens_and_fits(opened, recipe_page, width, dark):
    driver = opened(recipe_page, width=width, dark=dark)
    assert driver.title == "Decode step: full-recipe"
    assert "A step reads 20.83 GB" in driver.find_element(By.CSS_SELECTOR, ".lead").text
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    paper = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")


def test_the_timeline_zooms_and_pans_with_the_mouse(opened, recipe_page, recipe):
    driver = opened(recipe_page)
    canvas = driver.find_element(By.ID, "timeline")
    wall = recipe.median_step.wall_ns
    assert view(canvas) == (0, wall)
    for _ in range(2):
        driver.find_element(By.ID, "timeline-zoom-in").click()
    assert view(canvas) == (round(wall * 3 / 8), round(wall * 5 / 8))
    ActionChains(driver).move_to_element(canvas).click_and_hold().move_by_offset(
        100, 0
    ).release().perform()
    start, end = view(canvas)
    moved = wall / 4 * 100 / canvas.size["width"]
    assert start == pytest.approx(wall * 3 / 8 - moved, rel=0.01)
    assert end - start == pytest.approx(wall / 4, abs=2)
    driver.find_element(By.ID, "timeline-whole").click()
    assert view(canvas) == (0, wall)


def test_the_wheel_zooms_once_the_timeline_is_chosen(opened, recipe_page, recipe):
    from selenium.webdriver.common.actions.wheel_input import ScrollOrigin

    driver = opened(recipe_page)
    canvas = driver.find_element(By.ID, "timeline")
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    origin = ScrollOrigin.from_element(canvas)
    ActionChains(driver).scroll_from_origin(origin, 0, -300).perform()
    assert view(canvas) == (0, recipe.median_step.wall_ns)
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    canvas.send_keys("")
    driver.execute_script("arguments[0].focus()", canvas)
    ActionChains(driver).scroll_from_origin(origin, 0, -300).perform()
    start, end = view(canvas)
    assert end - start < recipe.median_step.wall_ns * 0.7


def test_hover_shows_the_kernel_that_is_there(opened, recipe_page, recipe):
    driver = opened(recipe_page)
    canvas = driver.find_element(By.ID, "timeline")
    step = recipe.median_step
    # The target's output layer: one kernel of several ms, so easy to point at.
    index = step.matrix.index("lm_head")
    middle = (step.start_ns[index] + step.duration_ns[index] / 2) / step.wall_ns
    size = canvas.size
    ActionChains(driver).move_to_element_with_offset(
        canvas, round((middle - 0.5) * size["width"]), size["height"] // 2 - 26 - 20
    ).perform()
    assert canvas.get_attribute("data-hovered") == str(index)
    shown = driver.find_element(By.ID, "kernel").text
    assert "output layer; reads lm_head" in shown
    gb_per_s = step.weight_bytes[index] / step.duration_ns[index]
    assert f"{step.weight_bytes[index] / 1e6:.2f} MB, {gb_per_s:.1f} GB/s" in shown
    assert step.names[step.name[index]] in shown


def test_the_timeline_is_usable_by_keyboard(opened, recipe_page, recipe):
    driver = opened(recipe_page)
    canvas = driver.find_element(By.ID, "timeline")
    wall = recipe.median_step.wall_ns
    driver.execute_script("arguments[0].focus()", canvas)
    keys = driver.switch_to.active_element
    keys.send_keys("+")
    assert view(canvas) == (round(wall / 4), round(wall * 3 / 4))
    keys.send_keys(Keys.ARROW_RIGHT)
    assert view(canvas)[0] == pytest.approx(wall * 0.35, abs=2)
    keys.send_keys(Keys.HOME)
    keys.send_keys("n")
    assert canvas.get_attribute("data-selected") == "0"
    keys.send_keys("n")
    keys.send_keys("n")
    keys.send_keys("p")
    assert canvas.get_attribute("data-selected") == "1"
    keys.send_keys(Keys.ENTER)
    start, end = view(canvas)
    assert start <= recipe.median_step.start_ns[1] < end < wall / 100
    keys.send_keys(Keys.ESCAPE)
    assert canvas.get_attribute("data-selected") == ""
    keys.send_keys("/")
    assert driver.switch_to.active_element.get_attribute("id") == "timeline-search"


def test_search_finds_kernels_and_goes_to_them(opened, recipe_page, recipe):
    driver = opened(recipe_page)
    step = recipe.median_step
    search = driver.find_element(By.ID, "timeline-search")
    search.send_keys("o_proj")
    wanted = [i for i, matrix in enumerate(step.matrix) if matrix and "o_proj" in matrix]
    assert driver.find_element(By.ID, "timeline-count").text.startswith(f"{len(wanted)} kernels")
    canvas = driver.find_element(By.ID, "timeline")
    search.send_keys(Keys.ENTER, Keys.ENTER)
    assert canvas.get_attribute("data-selected") == str(wanted[1])
    search.clear()
    search.send_keys("layer 6")
    layer = [i for i, number in enumerate(step.layer) if number == 6]
    assert driver.find_element(By.ID, "timeline-count").text.startswith(f"{len(layer)} kernels")


def test_tables_sort_both_ways_and_by_keyboard(opened, recipe_page):
    driver = opened(recipe_page)
    label = "Phases of the step"
    before = column(driver, label, 1)
    heads = driver.find_elements(By.CSS_SELECTOR, f'[aria-label="{label}"] th button')
    heads[1].send_keys(Keys.ENTER)
    times = [float(value) for value in column(driver, label, 1)]
    assert times == sorted(map(float, before), reverse=True)
    heads[1].send_keys(Keys.SPACE)
    assert [float(value) for value in column(driver, label, 1)] == sorted(times)
    heads[0].click()
    names = column(driver, label, 0)
    assert names == sorted(names)
    gb = next(
        i for i, head in enumerate(heads) if head.text.startswith("GB") and "/" not in head.text
    )
    heads[gb].click()
    values = column(driver, label, gb)
    known = [value for value in values if value != "-"]
    assert values == known + ["-"] * (len(values) - len(known))
    foot = driver.find_element(By.CSS_SELECTOR, f'[aria-label="{label}"] tfoot').text
    assert foot.startswith("step 99.60")


def test_names_stay_text(opened):
    report = make_report(trace=make_trace(unknown_name=HOSTILE))
    driver = opened(render(report, "html"))
    assert driver.title == "Decode step: run"
    assert driver.find_elements(By.CSS_SELECTOR, "main img") == []
    canvas = driver.find_element(By.ID, "timeline")
    driver.execute_script("arguments[0].focus()", canvas)
    keys = driver.switch_to.active_element
    for _ in range(5):
        keys.send_keys("n")
    assert HOSTILE in driver.find_element(By.ID, "kernel").text
    assert HOSTILE in column(driver, "Unknown kernels", 2)


def test_layers_are_numbered_at_regular_intervals(opened, recipe_page):
    driver = opened(recipe_page)
    written = driver.execute_script(
        """
        const found = [], old = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
          if (y > 46 + 18 && y < 46 + 18 + 24) found.push(text);
          old.call(this, text, x, y);
        };
        document.getElementById("timeline-whole").click();
        CanvasRenderingContext2D.prototype.fillText = old;
        return found;
        """
    )
    numbers = [int(text) for text in written]
    target = numbers[: numbers.index(max(numbers)) + 1]
    assert {b - a for a, b in pairwise(target)} in ({1}, {2}, {5}, {10})
    assert target[0] == 0 and target[-1] >= 60


def test_a_narrow_page_says_what_scrolls(opened, recipe_page):
    for width, shown in ((390, True), (1280, False)):
        driver = opened(recipe_page, width=width)
        hints = driver.find_elements(By.CSS_SELECTOR, "#phases .sideways, #pictures .sideways")
        assert len(hints) == 6
        assert {hint.is_displayed() for hint in hints} == {shown}
