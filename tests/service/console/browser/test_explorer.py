"""The picture of every kind of model as an explorer: what it shows is what REST answers, and what REST does not say is empty."""

import json
import math
from pathlib import Path
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest

from service import product
from service.settings import Settings
from service.workspace import Workspace
from tests.service.asking import client_of, learn
from tests.service.conftest import weather
from tests.service.console.browser.driving import needs_browser, visit
from tests.service.forks import local_server
from tests.support.cli import NETWORK
from tests.support.console import case_of, digits

pytestmark = needs_browser
LEARNERS = {
    "rain": ("kdb", {"k": 2, "estimator": "hdp-map"}),
    "many": ("eskdb", {"members": 2}),
    "default": ("auto", {"members": 2}),
    "sky": ("spn", {"passes": 2, "states": 2}),
    "drawn": ("gibbs", {"iterations": 20, "draws": 10}),
    "trees": ("xgboost", {}),
}
EVIDENCE = {model: {"outlook": "sunny", "windy": False} for model in LEARNERS} | {"garden": {"lawn": "wet"}}


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    """A server with one model of every kind."""
    folder: Path = tmp_path_factory.mktemp("kinds")
    pq.write_table(weather(600, 1), folder / "train.parquet")
    (folder / "garden.bif").write_text(NETWORK)
    settings = Settings(workspace=folder / "workspace", job_workers=0, request_timeout_s=600, query_s=60)
    with Workspace(settings) as workspace:
        for model, (learner, parameters) in LEARNERS.items():
            learn(workspace, folder / "train.parquet", model, learner=learner, parameters=parameters, holdout=0)
        learn(workspace, folder / "train.parquet", "posterior", target=None, learner="orders", parameters={})
        product.import_network(workspace, folder / "garden.bif", "garden")
    with local_server(settings) as server, client_of(server) as client:
        yield server.url, client


@pytest.fixture
def tab(browser, kinds):
    with visit(browser, kinds[0]) as tab:
        yield tab


@pytest.fixture
def client(kinds):
    return kinds[1]


def answer_of(client, model, kind="conditional", **known):
    """What REST answers to a query; nothing where the model has no answer."""
    answer = client.post(f"/v1/models/{model}/query", json={"queries": [{"kind": kind, **known}]})
    return answer.json()["answers"][0] if answer.status_code == 200 else {}


def written(client, model, **known):
    """The conditional distributions that REST answers, as the page writes them."""
    found = answer_of(client, model, **known)["distributions"]
    return {name: {label: digits(p) for label, p in own.items()} for name, own in found.items()}


def told_by_rest(client, model, evidence, start):
    """Probabilities of every column's values by label: of the class as predicted, of others by the joint distribution."""
    found = answer_of(client, model, evidence=evidence).get("distributions", {})
    for name, value in evidence.items():
        values = next(each["values"] for each in start["columns"] if each["name"] == name)
        found |= {name: {each["label"]: float(each["value"] == value) for each in values}} if found else {}
    if start["target"]:
        told = client.post(f"/v1/models/{model}/predict", json={"records": [evidence]}).json()
        found[start["target"]] = dict(zip(map(str, told["classes"]), told["probabilities"][0], strict=True))
    return found


def in_picture(tab, start):
    """What the boxes show, by column and label; of bars that stand upright what they say."""
    labels = {each["name"]: [value["label"] for value in each["values"]] for each in start["columns"]}
    labels[start["target"]] = list(map(str, start["classes"]))
    shown = tab.page.eval_on_selector_all(
        ".structure .value",
        """bars => bars.map((g) => [g.closest(".node").dataset.column, Number(g.dataset.value),
          g.querySelector(".number") ? g.querySelector(".number").textContent
            : g.getAttribute("aria-label").slice(g.dataset.words.length).replace(", ", "")])""",
    )
    found: dict[str, dict[str, str]] = {}
    for name, place, text in shown:
        found.setdefault(name, {})[labels[name][place]] = text
    return found


def in_list(tab):
    shown = tab.page.eval_on_selector_all(
        "#columns .value",
        """rows => rows.map((each) => [each.closest("details").dataset.column, each.dataset.label, each.lastElementChild.textContent])""",
    )
    found: dict[str, dict[str, str]] = {}
    for name, label, text in shown:
        found.setdefault(name, {})[label] = text
    return found


@pytest.mark.parametrize("model", EVIDENCE)
def test_every_number_is_that_of_rest(tab, client, model):
    evidence = EVIDENCE[model]
    case = quote(json.dumps({"evidence": evidence}))
    for page, read in (("graph", in_picture), ("what-if", lambda tab, _: in_list(tab))):
        tab.explore(f"/console/models/{model}/{page}?case={case}")
        start = tab.start()
        wanted = told_by_rest(client, model, evidence, start)
        shown = read(tab, start)
        assert evidence.keys() <= shown.keys(), "the columns of the case are there"
        for name, own in shown.items():
            for label, text in own.items():
                p = wanted.get(name, {}).get(label)
                assert text == ("" if p is None else digits(p)), (page, name, label, text, p)
        others = {text for name, own in shown.items() if name != start["target"] for text in own.values()}
        assert (others == {""}) == (model == "trees"), "only trees know no joint distribution"
        tab.check()
        assert model not in {"drawn", "trees"} or not tab.findings()


def graph_of_rain(tab):
    """Opens the graph of a network; what it begins with."""
    tab.explore("/console/models/rain/graph")
    return tab.start()


def bar_of(tab, name, label):
    return tab.page.locator(f'.node[data-column={name}] .value[data-words="{name}: {label}"]')


def follow_tab(tab, name):
    tab.page.click(f".tabs a:has-text('{name}')")
    tab.settled()


def test_a_click_on_a_bar_moves_all_others(tab, client):
    start = graph_of_rain(tab)
    free = in_picture(tab, start)
    with tab.settling():
        bar_of(tab, "outlook", "sunny").click()
    assert case_of(tab) == {"evidence": {"outlook": "sunny"}}
    now, wanted = in_picture(tab, start), told_by_rest(client, "rain", {"outlook": "sunny"}, start)
    assert now["class"] == {label: digits(p) for label, p in wanted["class"].items()} != free["class"]
    assert now["windy"] == {label: digits(p) for label, p in wanted["windy"].items()} != free["windy"]
    follow_tab(tab, "What-if")
    assert case_of(tab) == {"evidence": {"outlook": "sunny"}}, "the case goes along"
    follow_tab(tab, "Graph")
    with tab.settling():
        bar_of(tab, "class", "yes").click()
    expected = written(client, "rain", evidence={"outlook": "sunny", "class": "yes"})
    assert in_picture(tab, start)["windy"] == expected["windy"]
    with tab.settling():
        tab.page.click("#reset")
    assert in_picture(tab, start) == free
    tab.check()


def test_several_values_and_what_is_excluded(tab, client):
    start = graph_of_rain(tab)
    for label, key, known in (
        ("sunny", None, "sunny"),
        ("rain", "Shift", ["sunny", "rain"]),
        ("rain", "Alt", {"none_of": ["rain"]}),
    ):
        with tab.settling():
            bar_of(tab, "outlook", label).click(modifiers=[key] if key else [])
        assert case_of(tab) == {"evidence": {"outlook": known}}
        expected, shown = written(client, "rain", evidence={"outlook": known}), in_picture(tab, start)
        for name in ("windy", "class", "outlook") if key else ("windy",):
            assert shown[name] == expected[name], (known, name)
    assert tab.page.inner_text("#chosen") == "outlook is not rain ×"
    follow_tab(tab, "What-if")
    with tab.settling():
        tab.page.click("text=Show the next ones")
    best = answer_of(client, "rain", "map", evidence={"outlook": {"none_of": ["rain"]}}, best=5)["best"]
    ratios = [digits(math.exp(each["log_probability"] - best[0]["log_probability"])) for each in best[1:]]
    assert tab.page.locator("#p-completion table").last.locator("td.n").all_inner_texts() == ratios
    tab.explore("/console/models/drawn/what-if")
    with tab.settling():
        tab.page.fill("[aria-label='humidity, from']", "50")
        tab.page.locator("[aria-label='humidity, from']").blur()
    assert case_of(tab) == {"evidence": {"humidity": {"low": 50}}}
    assert tab.page.inner_text("#chosen") == "humidity ≥ 50 ×"
    tab.check()


@pytest.mark.parametrize(
    ("model", "name", "label", "seen"), [("garden", "lawn", "wet", "rain"), ("rain", "outlook", "sunny", "class")]
)
def test_a_column_is_set_instead_of_supposed(tab, client, model, name, label, seen):
    """The switch says which: what is shown is REST's answer to `do`, and that to evidence after a switch back."""
    tab.explore(f"/console/models/{model}/graph")
    start = tab.start()
    with tab.settling():
        tab.page.check("input[name=mode][value=set]")
        bar_of(tab, name, label).click()
    assert case_of(tab) == {"do": {name: label}}
    assert tab.page.inner_text("#chosen") == f"{name} set to {label} ×"
    shown = in_picture(tab, start)
    expected = written(client, model, do={name: label})
    assert {each: shown[each] for each in expected} == expected
    assert shown[name][label] == "1.000"
    follow_tab(tab, "What-if")
    assert case_of(tab) == {"do": {name: label}}
    assert all(own == shown[each] for each, own in in_list(tab).items())
    row = tab.page.locator(f'#columns details[data-column="{name}"] .value[data-label="{label}"]')
    with tab.settling():
        row.click()  # the switch is back at Suppose
    assert case_of(tab) == {"evidence": {name: label}}
    if seen != start["target"]:
        assert in_list(tab)[seen] == written(client, model, evidence={name: label})[seen] != shown[seen]
    tab.page.check("input[name=mode][value=set]")
    for case in ({"do": {name: label}}, {}):
        with tab.settling():
            row.click()
        assert case_of(tab) == case
    tab.check()
    tab.explore("/console/models/sky/what-if")
    assert not tab.page.locator("input[name=mode]").count(), "a circuit has no causes"


def test_regions_unfold_and_keep_the_case(tab):
    tab.explore(f"/console/models/sky/regions?open=&case={quote(json.dumps({'evidence': {'outlook': 'sunny'}}))}")
    assert tab.page.locator(".node").count() == 1 and "structure.svg" not in tab.page.inner_text("main")
    for _ in range(8):
        folded = tab.page.locator(".structure a:has-text('+ ')")
        if not folded.count():
            break
        folded.first.click()
        tab.page.wait_for_load_state("load")
        tab.settled()
    assert case_of(tab) == {"evidence": {"outlook": "sunny"}}
    assert {"outlook", "windy", "humidity", "class"} <= in_picture(tab, tab.start()).keys()
    tab.check()


def test_arrows_of_a_posterior_are_required_and_forbidden(tab, client):

    def arrows(tab):
        found = tab.page.eval_on_selector_all(
            ".edge-line:not(.folded)",
            "lines => lines.map((each) => [each.dataset.edge, Number(each.getAttribute('stroke-width'))])",
        )
        return dict(found)

    def wanted(**known):
        edges = answer_of(client, "posterior", "edges", **known)["edges"]
        supposed = {edge for edges in known.values() for edge in edges}
        found = {f"{each['from']}->{each['to']}": each["probability"] for each in edges}
        return {edge: 1 + 5 * p for edge, p in found.items() if p >= 0.01 or edge in supposed}

    tab.explore("/console/models/posterior/graph")
    assert arrows(tab) == pytest.approx(wanted(), abs=1e-9)
    edge = next(iter(wanted()))
    for known in ({"present": [edge]}, {"absent": [edge]}, {}):
        with tab.settling():
            tab.page.locator(f'.edge-line[data-edge="{edge}"]').dispatch_event("click")
        assert case_of(tab) == known and arrows(tab) == pytest.approx(wanted(**known), abs=1e-9)
    with tab.settling():
        line = tab.page.locator(".edge-line:not(.folded)").first
        x, y = line.evaluate(
            "line => { const p = line.getPointAtLength(line.getTotalLength() / 2).matrixTransform(line.getScreenCTM()); return [p.x, p.y]; }"
        )
        tab.page.mouse.click(x + 5, y)
    assert len(case_of(tab)["present"]) == 1, "a click beside a thin arrow is meant for it"
    with tab.settling():
        tab.page.click("#reset")
    with tab.settling():
        tab.page.locator("#p-edges button").first.click()
    assert case_of(tab)["present"]
    tab.check()
    assert not tab.findings()


def test_the_picture_is_found_sized_and_dragged(browser, kinds):
    with visit(browser, kinds[0], viewport={"width": 390, "height": 700}) as tab:
        tab.explore("/console/models/rain/graph")
        width = "Number(document.querySelector('.structure').getAttribute('width'))"
        first = tab.page.evaluate(width)
        for _ in range(4):
            tab.page.click("#larger")
        assert tab.page.evaluate(width) == pytest.approx(first * 1.25**4)
        at = "document.querySelector('.picture').scrollLeft"
        tab.page.evaluate("document.querySelector('.picture').scrollTo(0, 0)")
        box = tab.page.locator(".picture").bounding_box()
        tab.page.mouse.move(box["x"] + 150, box["y"] + 10)
        tab.page.mouse.down()
        tab.page.mouse.move(box["x"] + 50, box["y"] + 10, steps=4)
        tab.page.mouse.up()
        assert tab.page.evaluate(at) == 100 and not case_of(tab)
        tab.page.fill("#find", "wind")
        assert tab.page.locator(".node.found").get_attribute("data-column") == "windy"
        assert tab.page.locator("#outline tbody tr:visible").count() == 1
        tab.page.click("#fit")
        assert tab.page.evaluate(width) <= 390
        tab.check()


def test_a_box_is_moved_and_its_arrows_follow(tab):
    for model in ("rain", "posterior"):
        tab.explore(f"/console/models/{model}/graph")
        edge = tab.page.locator(".edge-line:not(.folded)").first
        path, name = edge.get_attribute("d"), edge.get_attribute("data-to")
        node = tab.page.locator(f'.node[data-column="{name}"]')
        node.scroll_into_view_if_needed()
        box, address = node.bounding_box(), tab.page.url
        middle = box["x"] + box["width"] / 2
        to_left = -1 if middle > tab.page.viewport_size["width"] / 2 else 1
        tab.page.mouse.move(middle, box["y"] + 12)
        tab.page.mouse.down()
        tab.page.mouse.move(middle + 40 * to_left, box["y"] + 2, steps=4)
        tab.page.mouse.up()
        dragged = node.bounding_box()
        assert dragged["x"] - box["x"] == pytest.approx(40 * to_left, abs=2), model
        assert edge.get_attribute("d") != path and tab.page.url == address and not case_of(tab)
        path = edge.get_attribute("d")
        tab.page.evaluate(
            "name => document.querySelector(`.node[data-column=\"${name}\"]`).querySelector('a, .value')?.focus()",
            name,
        )
        if node.locator("a, .value").count():
            tab.page.keyboard.press("Shift+ArrowLeft" if to_left < 0 else "Shift+ArrowRight")
            assert edge.get_attribute("d") != path and node.bounding_box()["x"] != dragged["x"]
    tab.check()
