"""Evidence of every kind as a user gives it: REST, the command line, what-if, an ensemble's joint member."""

import json

import pytest

from tests.service.cli.test_cli import fewpass
from tests.service.http.test_predict import problem
from tests.service.http.test_query import ask

LIKELY = {"windy": {"True": 0.8, "False": 0.2}}


def joint_of(site, model, *columns):
    """{labels: probability} of some columns."""
    (told,) = ask(site.client, model, {"kind": "conditional", "variables": list(columns), "joint": True})
    return {tuple(cell["values"].values()): cell["probability"] for cell in told["distribution"]}


@pytest.fixture(scope="module")
def blend(site):
    return site.learn("blend", "eskdb", members=2).name


@pytest.mark.parametrize("model", ["weather", "sky", "blend"])
def test_a_network_a_circuit_and_an_ensembles_joint_are_what_their_joint_says(site, circuit, blend, model):
    joint = joint_of(site, model, "outlook", "windy", "class")
    outlooks = {"sunny", "overcast"}
    marginal, excluded, conditional, best = ask(
        site.client,
        model,
        {"kind": "marginal", "evidence": {"outlook": sorted(outlooks)}},
        {"kind": "marginal", "evidence": {"outlook": {"none_of": ["rain"]}, "class": "yes"}},
        {"kind": "conditional", "variables": ["class"], "evidence": {"outlook": sorted(outlooks)}, "likely": LIKELY},
        {"kind": "map", "variables": ["class", "outlook"], "likely": LIKELY, "time_limit_s": 60},
    )
    assert marginal["probability"] == pytest.approx(sum(p for (o, _, _), p in joint.items() if o in outlooks), rel=1e-9)
    expected = sum(p for (o, _, c), p in joint.items() if o != "rain" and c == "yes")
    assert excluded["probability"] == pytest.approx(expected, rel=1e-9)
    weighted = {key: p * LIKELY["windy"][key[1]] for key, p in joint.items()}
    by_class = {c: sum(p for (o, _, d), p in weighted.items() if o in outlooks and c == d) for c in ("no", "yes")}
    total = sum(by_class.values())
    assert conditional["distributions"]["class"] == pytest.approx({c: p / total for c, p in by_class.items()}, rel=1e-9)
    pairs = {}
    for (o, _, c), p in weighted.items():
        pairs[c, o] = pairs.get((c, o), 0.0) + p
    assert tuple(best["assignment"].values()) == max(pairs, key=pairs.get) and best["is_optimal"]


def test_the_k_best_are_those_of_the_joint(site, circuit):
    joint = joint_of(site, "sky", "outlook", "windy", "class")
    asked = {"kind": "map", "variables": ["outlook", "windy", "class"], "best": 5, "time_limit_s": 60}
    (told,) = ask(site.client, "sky", asked)
    words = [tuple(map(str, each["assignment"].values())) for each in told["best"]]
    assert [joint[tuple("(missing)" if word == "None" else word for word in own)] for own in words] == pytest.approx(
        sorted(joint.values(), reverse=True)[:5]
    )
    assert all(each["is_optimal"] for each in told["best"])
    columns = ["--of", "outlook", "--of", "windy", "--of", "class", "--set", "time_limit_s=60"]
    shown = fewpass("query", "sky", "map", *columns, "--best", "5", "--json", workspace=site.workspace).stdout
    assert json.loads(shown)["best"] == told["best"]
    table = fewpass("query", "sky", "map", *columns, "--best", "5", workspace=site.workspace).stdout
    assert table.count("yes") >= 5 and "log probability" in table


def test_an_intervention_is_asked_over_rest(site, circuit):
    told, joined = ask(
        site.client,
        "weather",
        {"kind": "conditional", "variables": ["class"], "do": {"outlook": "sunny"}},
        {"kind": "conditional", "variables": ["class"]},
    )
    assert told["distributions"]["class"] == pytest.approx(
        joined["distributions"]["class"]
    )  # no arc leads to the class
    assert {"from": "class", "to": "outlook"} in told["intervention"]["cut"]
    wrong = ask(site.client, "sky", {"kind": "marginal", "do": {"outlook": "sunny"}}, code=422)
    assert "this model is no network with arcs" in wrong["detail"]
    body = {"kind": "query", "model": "weather", "queries": [{"kind": "marginal", "do": {"outlook": "snow"}}]}
    assert "never had the value 'snow'" in problem(site.client.post("/v1/jobs", json=body), 422)["detail"]
    body["queries"] = [{"kind": "marginal", "graph": {"n": 10}}]
    assert "Only a posterior over structures" in problem(site.client.post("/v1/jobs", json=body), 422)["detail"]
    ask(site.client, "weather", {"kind": "marginal", "do": {"outlook": ["sunny"]}}, code=422)
    ask(site.client, "weather", {"kind": "marginal", "graph": "worst"}, code=422)


def test_samples_may_be_allowed_over_rest(site):
    asked = {"kind": "marginal", "evidence": {"outlook": "sunny"}}
    sampling = {"error": 0.02, "time_limit_s": 30, "seed": 4}
    (exact,) = ask(site.client, "weather", {**asked, "sampling": sampling})
    assert "sampled" not in exact
    ask(site.client, "weather", {**asked, "sampling": {"errors": 1}}, code=422)


def test_ranges_end_at_cut_points(site, circuit):
    (whole,) = ask(site.client, "sky", {"kind": "conditional", "variables": ["humidity"]})
    shares = whole["distributions"]["humidity"]
    ends = [label[1:-1].split(", ") for label in shares if label != "(missing)"]
    low, high = ends[1][0], ends[2][1]
    (told,) = ask(
        site.client, "sky", {"kind": "marginal", "evidence": {"humidity": {"low": float(low), "high": float(high)}}}
    )
    inside = [label for label in shares if label != "(missing)"][1:3]
    assert told["probability"] == pytest.approx(sum(shares[label] for label in inside), rel=1e-9)
    refused = ask(site.client, "sky", {"kind": "marginal", "evidence": {"humidity": {"low": 60.123}}}, code=422)
    assert "no range of them starts at 60.123, but at" in refused["detail"]
    asked = ["query", "sky", "marginal", "--given", f"humidity={low}..{high}", "--json"]
    assert json.loads(fewpass(*asked, workspace=site.workspace).stdout) == told


def test_the_command_line_answers_as_rest_does(site, circuit):
    given = ["--given", "outlook in {sunny,rain}", "--given", "windy != true", "--likely", "class: yes=.7,no=.1"]
    told = json.loads(fewpass("query", "weather", "conditional", *given, "--json", workspace=site.workspace).stdout)
    evidence = {"outlook": ["sunny", "rain"], "windy": {"none_of": [True]}}
    likely = {"class": {"yes": 0.7, "no": 0.1}}
    assert [told] == ask(site.client, "weather", {"kind": "conditional", "evidence": evidence, "likely": likely})
    wrong = fewpass(
        "query", "weather", "marginal", "--given", "outlook in {sunny,snow}", workspace=site.workspace, code=1
    )
    assert "Column 'outlook' never had the value 'snow'" in wrong.stderr
    wrong = fewpass("query", "weather", "marginal", "--likely", "outlook: sunny=much", workspace=site.workspace, code=2)
    assert "is no weight of" in wrong.stderr


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"evidence": {"outlook": []}}, "Column 'outlook' is given as a set without values"),
        ({"evidence": {"outlook": {"any": 1}}}, '{"low": …, "high": …} or {"none_of": […]}'),
        ({"evidence": {"humidity": {"low": 80, "high": 60}}}, "empty range, from 80 to 60"),
        ({"likely": {"outlook": {"sunny": -1}}}, "Column 'outlook' has the weight -1.0 of 'sunny'"),
        ({"likely": {"outlook": {"sunny": 0}}}, "Column 'outlook' has weight 0 for every value"),
        ({"evidence": {"outlook": "sunny"}, "likely": {"outlook": {"sunny": 1}}}, "is both given and likely"),
    ],
)
def test_what_is_no_evidence_is_told(site, query, words):
    assert words in ask(site.client, "weather", {"kind": "marginal", **query}, code=422)["detail"]
    body = {"kind": "query", "model": "weather", "queries": [{"kind": "marginal", "evidence": {"outlook": ["snow"]}}]}
    assert "never had the value 'snow'" in problem(site.client.post("/v1/jobs", json=body), 422)["detail"]


def test_what_if_answers_by_the_joint(site):
    evidence = {"outlook": ["sunny", "rain"], "humidity": None}
    told = site.client.post("/v1/models/weather/whatif", json={"evidence": evidence, "likely": LIKELY}).json()
    assert "needs one value of each column that is known, and 'outlook' has more" in told["absent"]["prediction"]
    posterior, completion = told["parts"]["posterior"], told["parts"]["completion"]
    asked = {"evidence": evidence | {"humidity": "(missing)"}, "likely": LIKELY}
    marginal, conditional, best = ask(
        site.client, "weather", *({"kind": kind, **asked} for kind in ("marginal", "conditional", "map"))
    )
    assert posterior["log_evidence"] == pytest.approx(marginal["log_probability"], abs=1e-12)
    assert posterior["distributions"] == conditional["distributions"]
    assert completion["assignment"] == best["assignment"]
    assert {each["column"] for each in posterior["ask_next"]} == {"outlook", "windy"}
    known = site.client.post("/v1/models/weather/whatif", json={"likely": {"class": {"yes": 1.0, "no": 1.0}}}).json()
    plain = site.client.post("/v1/models/weather/whatif", json={}).json()
    ours, theirs = (each["parts"]["posterior"]["ask_next"] for each in (known, plain))
    assert [each["entropy_drop"] for each in ours] == pytest.approx([each["entropy_drop"] for each in theirs])
