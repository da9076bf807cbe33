"""Every page in a real browser, light and dark: nothing forbidden, failed or foreign; accessible; by keyboard."""

import re
from urllib.parse import quote

from tests.service.console.browser.conftest import HOSTILE
from tests.service.console.browser.driving import needs_browser
from tests.support.console import case_of

pytestmark = needs_browser
PAGES = {
    "overview": "/console",
    "model": "/console/models/rain",
    "compare": "/console/models/rain/compare?left=1&right=2",
    "graph": "/console/models/rain@1/graph",
    "family": "/console/models/rain@1/graph/windy",
    "circuit": "/console/models/sky/graph",
    "regions": "/console/models/sky/regions",
    "what-if": "/console/models/rain@1/what-if",
    "what-if of a circuit": "/console/models/sky/what-if",
    "monitoring": "/console/monitoring",
    "monitoring of a model": "/console/models/rain/monitoring",
    "a column of it": "/console/models/rain/monitoring?column=humidity",
    "drift on the graph": "/console/models/rain/graph?drift=24h",
    "jobs": "/console/jobs",
    "train": "/console/train",
    "data": "/console/data",
    "dataset": "/console/data/weather",
    "rows and columns": "/console/data/weather/rows",
    "two models": "/console/models/rain/compare?left=1&right=hostile",
    "settings": "/console/settings",
    "login": "/console/login",
    "read": "/docs/read",
    "licences": "/docs/licences",
}
# Of its hundreds of parts, which are drawn alike, the first ones show the colours: those of all take as long as all other pages.
LONG = "read"
FIRST_PARTS = (
    "document.querySelectorAll('main > :is(section, table, h3, p):nth-of-type(n + 9)').forEach((part) => part.remove())"
)
WIDTH = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(document.scrollingElement.scrollWidth))))"


def test_no_page_does_what_it_must_not(visiting):
    """Tables may scroll within a page that is as wide as a phone; the page itself stays, and so does the list of models."""
    found: dict[str, list[str]] = {}
    widths: dict[tuple[str, int], int] = {}
    with visiting(color_scheme="light") as tab:
        for name, path in PAGES.items():
            tab.page.emulate_media(color_scheme="light")
            tab.page.set_viewport_size({"width": 1280, "height": 720})
            tab.go(path)
            if tab.page.locator("#start").count():
                tab.settled()
            assert tab.page.title().endswith("fewpass") and tab.page.locator("h1").count() == 1, name
            found[name] = tab.findings(without=("color-contrast",) if name == LONG else ())
            # The other scheme has other colours, and the same page.
            tab.page.emulate_media(color_scheme="dark")
            if name != LONG:
                found[name] += tab.findings("color-contrast")
            for width in (1024, 390):
                tab.page.set_viewport_size({"width": width, "height": 800})
                widths[name, width] = tab.page.evaluate(WIDTH)
            if name == "overview":
                assert tab.page.evaluate("document.querySelector('#models').scrollWidth") <= 390
            if name == LONG:
                tab.page.evaluate(FIRST_PARTS)
                for scheme in ("dark", "light"):
                    tab.page.emulate_media(color_scheme=scheme)
                    found[name] += tab.findings("color-contrast")
            tab.check()
    assert not any(found.values()), found
    assert not {name: width for name, width in widths.items() if width > name[1]}


def test_the_api_can_be_tried_without_a_network(tab):
    tab.go("/docs")
    tab.page.wait_for_selector(".swagger-ui .opblock")
    tab.check()
    tab.page.wait_for_selector(".swagger-ui .version")
    color, back = (
        tab.page.evaluate(f"getComputedStyle(document.querySelector('.swagger-ui .title small{inner}')).{what}")
        for inner, what in ((" .version", "color"), (" .version", "backgroundColor"))
    )
    assert color == "rgb(255, 255, 255)" and back == "rgba(0, 0, 0, 0)", "white on the colour of its badge"


def test_names_of_others_run_nothing(tab):
    case = quote(f'{{"evidence":{{"x":1.5}},"target":"{HOSTILE.replace(chr(34), chr(92) + chr(34))}"}}')
    paths = [
        "/console/models/hostile/graph",
        f"/console/models/hostile/graph/{quote(HOSTILE, safe='')}",
        f"/console/models/hostile/what-if?case={case}",
    ]
    for path in paths:
        tab.go(path)
        if "what-if" in path:
            tab.settled()
        assert tab.page.evaluate("window.hacked") is None and tab.page.locator("img").count() == 0
        text = tab.page.inner_text("main") + tab.page.content().replace("&lt;", "<")
        assert "<img src=x" in text
        tab.check()


def test_the_keyboard_suffices(tab):
    tab.go("/console/models/rain@1/graph")
    tab.page.keyboard.press("Tab")
    assert tab.page.evaluate("document.activeElement.className") == "skip"
    tab.page.locator(".structure a").first.focus()
    tab.settled()
    here = "document.activeElement.closest('.node').dataset.column"
    assert tab.page.evaluate(here) == "class"
    tab.page.keyboard.press("ArrowDown")
    said = tab.page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert re.fullmatch(r"class: no, 0\.\d{3}", said), said
    with tab.settling():
        tab.page.keyboard.press("Space")
    assert tab.page.evaluate("document.activeElement.getAttribute('aria-label')") == "class: no, 1.000"
    assert tab.page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowLeft"):
        tab.page.keyboard.press(key)
    column = tab.page.evaluate(here)
    assert column not in {None, "class"}
    tab.page.locator(f".structure a[data-column={column}]").focus()
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_url("**/graph/*")
    assert column in tab.page.inner_text("h1")
    tab.explore("/console/models/rain@1/what-if")
    tab.page.locator(".value").first.focus()
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    tab.page.keyboard.press("Tab")
    assert tab.page.evaluate(outline) != "none", "the focus can be seen"
    with tab.settling():  # the address changes before the page does
        tab.page.keyboard.press("Space")
    assert case_of(tab) and tab.page.locator("#chosen li").count() == 1


def test_monitoring_from_the_list_to_the_hour_and_the_graph(tab):
    tab.go("/console")
    row = tab.page.locator("#models tr:has(a:text-is('rain'))")
    assert re.search(r"1,2\d\d\b", row.inner_text()), "and those of other tests"
    assert "by labels" in row.inner_text()
    row.locator("a:has-text('drifts')").click()
    tab.page.wait_for_url("**/console/models/rain/monitoring")
    text = tab.page.inner_text("main")
    assert "The data drifts." in text and "humidity has numbers outside the range of training" in text
    assert "Calibration, by labels" in text and "Predictions by confidence" in text
    assert tab.page.locator("[data-chart=timeline] canvas").count() == 1
    tab.page.click("table a:has-text('humidity')")
    tab.page.wait_for_selector("#column")
    tab.page.click("summary:has-text('Hours with rows')")
    assert "yes" in tab.page.inner_text("[aria-label=Timeline]") and "served" in tab.page.inner_text(".cards")
    tab.page.locator("[aria-label=Timeline] tbody tr:has-text('yes') a").first.click()
    tab.page.wait_for_selector("text=The window ends")
    assert "The data drifts." in tab.page.inner_text("main")
    tab.page.click("text=On the graph")
    assert "until=" in tab.page.url  # an hour that is over stays that hour
    tab.page.wait_for_selector(".structure .node.blamed")
    assert tab.page.locator(".node.blamed[data-column=humidity]").count() == 1
    assert "drifts" in tab.page.inner_text("#outline tr:has-text('humidity')")
    tab.page.click("[aria-label='columns around windy']")
    tab.page.wait_for_selector("text=around windy")
    assert "until=" in tab.page.url and "of served rows until" in tab.page.inner_text("main")
    tab.check()


def test_pages_can_be_read_without_scripts(visiting, house):
    with visiting(java_script_enabled=False) as tab:
        for path in ("/console", "/console/models/rain", "/console/models/rain@1/graph", "/console/jobs", "/docs/read"):
            tab.page.goto(f"{house.server.url}{path}")
            text = tab.page.inner_text("main")
            assert tab.page.locator("table").count() >= 1 or "No job" in text or "none" in text
