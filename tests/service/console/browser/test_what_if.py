"""The what-if explorer in a real browser."""

import re

from tests.service.console.browser.driving import needs_browser
from tests.support.console import case_of, digits

pytestmark = needs_browser
PAGE = "/console/models/rain@1/what-if"


def shown(tab):
    """The answer's table: label and probability."""
    rows = tab.page.locator("#p-answer tbody tr")
    return {row.locator("th").inner_text(): row.locator("td.n").first.inner_text() for row in rows.all()}


def predicted(house, **record):
    """The probability of each class as REST predicts it and the page writes it."""
    answer = house.client.post("/v1/models/rain@1/predict", json={"records": [record]}).json()
    return {str(name): digits(p) for name, p in zip(answer["classes"], answer["probabilities"][0], strict=True)}


def click(tab, column, label):
    tab.page.locator(f'#columns details[data-column="{column}"] .value[data-label="{label}"]').click()


def test_a_click_supposes_and_shows_what_the_model_predicts(tab, house):
    tab.explore(PAGE)
    with tab.settling():
        click(tab, "outlook", "sunny")
    assert case_of(tab) == {"evidence": {"outlook": "sunny"}}
    assert shown(tab) == predicted(house, outlook="sunny")
    assert "sampling error" in tab.page.inner_text("#p-answer") and "outlook" in tab.page.inner_text("#p-contributions")
    assert "1 in " in tab.page.inner_text("#p-surprise")
    assert "Log probability" in tab.page.inner_text("#p-completion")
    assert '\'{"evidence":{"outlook":"sunny"}}\'' in tab.page.text_content("#as-curl")
    assert '"outlook": "sunny"' in tab.page.text_content("#as-python")
    with tab.settling():
        tab.page.locator("#chosen button").click()
    assert case_of(tab) == {} and tab.page.locator("#chosen li").count() == 0
    tab.check()


def test_of_ten_fast_clicks_the_last_one_wins(tab, house):
    tab.explore(PAGE)
    labels = ["sunny", "rain", "overcast"]
    for number in range(10):
        value = f'#columns details[data-column="outlook"] .value[data-label="{labels[number % 3]}"]'
        tab.page.locator(value).dispatch_event("click")  # faster than a pointer
    last = labels[9 % 3]
    tab.page.wait_for_function(
        "() => { const d = document.getElementById('what-if').dataset; return d.state === 'settled' && d.settled === '11'; }"
    )
    assert shown(tab) == predicted(house, outlook=last)
    assert case_of(tab)["evidence"] == {"outlook": last}


def test_the_address_holds_the_case_and_one_beside(tab):
    tab.explore(PAGE)
    with tab.settling():
        click(tab, "windy", "True")
    tab.page.click("#pin")
    assert tab.page.is_visible("#p-beside")
    with tab.settling():
        click(tab, "windy", "False")
    here, url = shown(tab), tab.page.url
    difference = tab.page.inner_text("#p-beside table")
    tab.page.goto(url)
    tab.settled()
    assert shown(tab) == here and tab.page.inner_text("#p-beside table") == difference
    tab.check()


def test_a_circuit_answers_about_any_column(tab, house):
    tab.explore("/console/models/sky/what-if")
    with tab.settling():
        tab.page.select_option("#target", "windy")
    query = {"queries": [{"kind": "conditional", "variables": ["windy"]}]}
    wanted = house.client.post("/v1/models/sky/query", json=query).json()["answers"][0]["distributions"]["windy"]
    assert shown(tab) == {label: digits(p) for label, p in wanted.items()}
    assert "class" in tab.page.inner_text("#p-contributions"), "contributions are of the class"
    tab.check()


def test_what_is_wrong_is_said_and_the_page_goes_on(tab):
    tab.explore(PAGE)
    tab.page.click("summary:has-text('Load a row')")
    tab.page.fill("#row", '{"outlok": "sunny"}')
    tab.page.click("#load")
    tab.page.wait_for_selector("#what-if[data-state=refused]")
    assert "outlook" in tab.page.inner_text("#problem")
    with tab.settling():
        tab.page.click("#reset")
    assert tab.page.inner_text("#problem") == ""


def test_a_press_during_a_repaint_is_a_click(tab):
    """Answers that come while a button of the mouse is down wait, so that what is pressed is what is clicked."""
    tab.explore(PAGE)
    before = tab.n_settled()
    asked = tab.page.locator("#p-ask button").first
    name = asked.inner_text()
    asked.hover()
    tab.page.mouse.down()
    other = f'#columns details:not([data-column="{name}"]) .value'
    with tab.settling():
        with tab.page.expect_response(lambda answer: "interval" in (answer.request.post_data or "")):
            tab.page.locator(other).first.dispatch_event("click")
        tab.page.wait_for_timeout(200)  # longer than a paint
        assert tab.n_settled() == before
        tab.page.mouse.up()
        tab.page.wait_for_function("(name) => document.getElementById('find').value === name", arg=name)
    assert len(case_of(tab)["evidence"]) == 1
    tab.check()


def test_the_focus_stays_where_a_repaint_replaces_it(tab):
    """By keyboard: taking values back one after the other needs no way through the whole page."""
    tab.explore(f'{PAGE}?case={{"evidence":{{"outlook":"rain","windy":true}}}}')
    focused = "document.activeElement.closest('#chosen, [data-body]')?.id ?? document.activeElement.id"
    for left in (1, 0):
        with tab.settling():
            tab.page.locator("#chosen button").first.focus()
            tab.page.keyboard.press("Space")
        assert len(case_of(tab).get("evidence", {})) == left
        assert tab.page.evaluate(focused) == ("chosen" if left else "reset")
    tab.page.locator("#p-ask button").last.focus()
    name = tab.page.evaluate("document.activeElement.textContent")
    with tab.settling():
        tab.page.locator(f'#columns details:not([data-column="{name}"]) .value').first.dispatch_event("click")
    assert tab.page.evaluate("document.activeElement.closest('#p-ask') !== null")


def test_a_click_on_an_interval_supposes_the_interval(tab, house):
    """The chip, the address and the call name it; with Alt it is excluded; a typed number stays a number."""
    tab.explore(PAGE)
    values = next(each["values"] for each in tab.start()["columns"] if each["name"] == "humidity")
    label, words = next((each["label"], each["words"]) for each in values if each["words"].startswith(">"))
    with tab.settling():
        click(tab, "humidity", label)
    assert case_of(tab) == {"evidence": {"humidity": label}}
    assert tab.page.inner_text("#chosen button") == f"humidity {words} ×"
    inside = float(words.removeprefix("> ")) + 0.5
    assert shown(tab) == predicted(house, humidity=inside), "every number of an interval has the code of a network"
    assert label in tab.page.text_content("#as-curl")
    with tab.settling():
        tab.page.locator("#chosen button").click()
    with tab.settling():
        tab.page.locator(f'#columns details[data-column="humidity"] .value[data-label="{label}"]').click(
            modifiers=["Alt"]
        )
    assert case_of(tab) == {"evidence": {"humidity": {"none_of": [label]}}}
    assert tab.page.inner_text("#chosen button") == f"humidity is not {words} ×"
    tab.check()


def test_a_phone_shows_the_interval(visiting):
    """At 390 px no page scrolls sideways, and the answer's probability and interval are inside of its panel."""
    with visiting(viewport={"width": 390, "height": 800}) as tab:
        tab.explore(f'{PAGE}?case={{"evidence":{{"outlook":"rain"}}}}')
        table = tab.page.locator("#p-answer table").bounding_box()
        assert "sampling error" in tab.page.inner_text("#p-answer")
        assert table is not None and table["x"] + table["width"] <= 390 - 16
        for path in (
            "",
            "/models/rain",
            "/models/rain/monitoring",
            "/models/rain/compare?left=1&right=2",
            "/monitoring",
            "/jobs",
            "/data",
            "/settings",
        ):
            tab.go(f"/console{path}")
            assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        tab.check()


def test_times_are_those_of_the_browser_with_their_zone(visiting):
    """One form on every page, in the zone of who looks."""
    with visiting(timezone_id="America/New_York") as tab:
        for path in ("", "/models/rain", "/jobs", "/data", "/settings", "/monitoring"):
            tab.go(f"/console{path}")
            for _ in range(50):  # a part that was fetched again shows the server's times until the script finds them
                times = tab.page.eval_on_selector_all("time", "(all) => all.map((each) => each.textContent)")
                are_local = [
                    re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)? (GMT-[45]|E[SD]T)", each) for each in times
                ]
                if times and all(are_local):
                    break
                tab.page.wait_for_timeout(100)
            assert times and all(are_local), (path, times)
        tab.check()
