"""The page in a real browser, as its readers see it. Needs a Chromium; CHROMIUM names one that must be there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from perf_gate.reporting.page import render
from tests.perf_gate import report_data_samples

NAMES = ("chromium", "chromium-browser", "google-chrome")
SIZES = {"desk": (1280, 800), "phone": (390, 844)}
# A container gives a browser no sandbox of its own; the page is ours and has no script.
FLAGS = ("--no-sandbox", "--disable-dev-shm-usage")


def browser_path() -> str | None:
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


pytestmark = pytest.mark.skipif(
    browser_path() is None, reason=f"no browser: none of {', '.join(NAMES)} is installed (apt-get install chromium)"
)


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser_path(), args=list(FLAGS))
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory, pages) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in pages}


@pytest.fixture(scope="module", params=[(size, scheme) for size in SIZES for scheme in ("light", "dark")], ids="-".join)
def window(browser, request):
    size, scheme = request.param
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page = context.new_page()
    page.noise = []
    page.on("console", lambda message: page.noise.append(message.text))
    page.on("pageerror", lambda error: page.noise.append(str(error)))
    page.on("request", lambda request: page.noise.append(request.url))
    yield page
    context.close()


@pytest.fixture
def tab(window):
    window.goto("about:blank")
    window.noise.clear()
    return window


@pytest.mark.parametrize("name", list(report_data_samples.ALL))
def test_the_page_is_quiet_and_its_verdict_is_seen_at_once(tab, files, name):
    url = files[name].as_uri()
    tab.goto(url)
    assert tab.noise == [url]
    width, height = tab.viewport_size["width"], tab.viewport_size["height"]
    for part in ("h1", ".lead", ".counts"):
        box = tab.locator(part).first.bounding_box()
        assert box["y"] >= 0
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        if name != "hostile":
            assert box["y"] + box["height"] <= height
    assert tab.locator("h1").bounding_box()["height"] > 30


@pytest.mark.parametrize("name", ["red", "hostile"])
def test_nothing_makes_the_page_scroll_sideways_not_even_unfolded(tab, files, name):
    tab.goto(files[name].as_uri())
    for unfold in (False, True):
        if unfold:
            tab.evaluate("() => document.querySelectorAll('details').forEach(each => { each.open = true; })")
        assert tab.evaluate("() => document.documentElement.scrollWidth") <= tab.viewport_size["width"]


def test_exactly_one_drawing_of_each_plot_is_seen(tab, files):
    tab.goto(files["red"].as_uri())
    tab.evaluate("() => document.querySelectorAll('details').forEach(each => { each.open = true; })")
    seen = tab.evaluate(
        "() => [...document.querySelectorAll('figure')].map(each =>"
        " [...each.querySelectorAll(':scope > svg')].filter(svg => svg.getBoundingClientRect().width > 0).length)"
    )
    assert len(seen) > 5
    assert set(seen) == {1}


def test_the_scheme_of_the_reader_decides(tab, files, request):
    tab.goto(files["green"].as_uri())
    ground = tab.evaluate("() => getComputedStyle(document.body).backgroundColor")
    drawn = tab.evaluate("() => getComputedStyle(document.querySelector('svg text')).fill")
    dark = request.node.callspec.params["window"][1] == "dark"
    brightness = [sum(map(int, color[4:-1].split(","))) / 3 for color in (ground, drawn)]
    assert (brightness[0] < 60) is dark
    assert (brightness[1] > 128) is dark


@pytest.mark.parametrize("window", [("desk", "light"), ("phone", "dark")], ids="-".join, indirect=True)
def test_a_screen_reader_meets_no_obstacle(tab):
    """axe-core's rules for WCAG 2 A and AA, contrast included, in both schemes."""
    from axe_playwright_python.sync_playwright import Axe

    # The page forbids every script, axe-core's too.
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    text = render(report_data_samples.data(slower=1.2, copied=4096, short=("p50",)))
    assert policy in text
    tab.set_content(text.replace(policy, ""))
    tab.evaluate("() => document.querySelectorAll('details').forEach(each => { each.open = true; })")
    rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
    # Which rules were passed is in the answer all the same; describing every element that did takes half of the time.
    options = {"runOnly": rules, "resultTypes": ["violations"]}
    results = Axe().run(tab, options=options)
    assert results.violations_count == 0, results.generate_report()
    compared = {rule["id"] for rule in results.response["passes"]}
    assert {"color-contrast", "svg-img-alt", "heading-order", "region", "scrollable-region-focusable"} <= compared
