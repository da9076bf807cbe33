"""Evidence of every kind as a user gives it: REST, the command line, what-if, an ensemble's joint member."""

import json
from functools import partial

import pytest

from tests.support import cli
from tests.support.cli import as_json
from tests.support.http import ask, problem

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
    query = {"kind": "map", "variables": ["outlook", "windy", "class"], "best": 5, "time_limit_s": 60}
    best = ask(site.client, "sky", query)[0]["best"]
    words = [["(missing)" if v is None else str(v) for v in each["assignment"].values()] for each in best]
    assert [joint[tuple(own)] for own in words] == pytest.approx(sorted(joint.values(), reverse=True)[:5])
    assert all(each["is_optimal"] for each in best)
    columns = ["--of", "outlook", "--of", "windy", "--of", "class", "--set", "time_limit_s=60", "--best", "5"]
    said = partial(cli.said, "query", workspace=site.workspace)
    assert json.loads(said("sky", "map", *columns, "--json"))["best"] == best
    table = said("sky", "map", *columns)
    assert table.count("yes") >= 5 and "log probability" in table


def test_an_intervention_is_asked_over_rest(site, circuit):
    of_class = {"kind": "conditional", "variables": ["class"]}
    cut, joined = ask(site.client, "weather", of_class | {"do": {"outlook": "sunny"}}, of_class)
    assert cut["distributions"]["class"] == pytest.approx(joined["distributions"]["class"])  # no arc leads to the class
    assert {"from": "class", "to": "outlook"} in cut["intervention"]["cut"]
    wrong = ask(site.client, "sky", {"kind": "marginal", "do": {"outlook": "sunny"}}, code=422)
    assert "but this model is not a network with arcs" in wrong["detail"]
    for known, words in (
        ({"do": {"outlook": "snow"}}, "never had the value 'snow'"),
        ({"graph": {"n": 10}}, "Only a posterior over structures"),
    ):
        body = {"kind": "query", "model": "weather", "queries": [{"kind": "marginal"} | known]}
        assert words in problem(site.client.post("/v1/jobs", json=body), 422)["detail"]
    for wrong in ({"do": {"outlook": ["sunny"]}}, {"graph": "worst"}, {"sampling": {"errors": 1}}):
        ask(site.client, "weather", {"kind": "marginal"} | wrong, code=422)


def test_samples_may_be_allowed_over_rest(site):
    sampling = {"error": 0.02, "time_limit_s": 30, "seed": 4}
    query = {"kind": "marginal", "evidence": {"outlook": "sunny"}, "sampling": sampling}
    assert "sampled" not in ask(site.client, "weather", query)[0]


def test_ranges_end_at_cut_points(site, circuit):
    (whole,) = ask(site.client, "sky", {"kind": "conditional", "variables": ["humidity"]})
    shares = whole["distributions"]["humidity"]
    labels = [label for label in shares if label != "(missing)"]
    ends = [label[1:-1].split(", ") for label in labels]
    low, high = ends[1][0], ends[2][1]
    humidity = {"low": float(low), "high": float(high)}
    (inside,) = ask(site.client, "sky", {"kind": "marginal", "evidence": {"humidity": humidity}})
    assert inside["probability"] == pytest.approx(sum(shares[label] for label in labels[1:3]), rel=1e-9)
    refused = ask(site.client, "sky", {"kind": "marginal", "evidence": {"humidity": {"low": 60.123}}}, code=422)
    assert "a range cannot start at 60.123, only at" in refused["detail"]
    assert as_json("query", "sky", "marginal", "--given", f"humidity={low}..{high}", workspace=site.workspace) == inside


def test_the_command_line_answers_as_rest_does(site, circuit):
    said = partial(cli.said, "query", workspace=site.workspace)
    given = ["--given", "outlook in {sunny,rain}", "--given", "windy != true", "--likely", "class: yes=.7,no=.1"]
    evidence = {"outlook": ["sunny", "rain"], "windy": {"none_of": [True]}}
    query = {"kind": "conditional", "evidence": evidence, "likely": {"class": {"yes": 0.7, "no": 0.1}}}
    assert ask(site.client, "weather", query) == [json.loads(said("weather", "conditional", *given, "--json"))]
    wrong = said("weather", "marginal", "--given", "outlook in {sunny,snow}", code=1)
    assert "Column 'outlook' never had the value 'snow'" in wrong
    assert "must be a number, not 'much'" in said("weather", "marginal", "--likely", "outlook: sunny=much", code=2)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"evidence": {"outlook": {"any": 1}}}, '{"low": …, "high": …} or {"none_of": […]}'),
        (
            {"evidence": {"outlook": "sunny"}, "likely": {"outlook": {"sunny": 1}}},
            "is in both evidence and likely: keep one of the two",
        ),
    ],
)
def test_what_is_no_evidence_is_told(site, query, words):
    """tests/circuits/queries/test_likelihoods.py has all of it."""
    assert words in ask(site.client, "weather", {"kind": "marginal", **query}, code=422)["detail"]


def test_what_if_answers_by_the_joint(site):
    def what_if(**case):
        return site.client.post("/v1/models/weather/whatif", json=case).json()

    evidence = {"outlook": ["sunny", "rain"], "humidity": None}
    parts = what_if(evidence=evidence, likely=LIKELY)
    wanted = "need a single value for each known column, and 'outlook' has several"
    assert wanted in parts["absent"]["prediction"]
    posterior, completion = parts["parts"]["posterior"], parts["parts"]["completion"]
    query = {"evidence": evidence | {"humidity": "(missing)"}, "likely": LIKELY}
    kinds = ("marginal", "conditional", "map")
    marginal, conditional, best = ask(site.client, "weather", *({"kind": kind, **query} for kind in kinds))
    assert posterior["log_evidence"] == pytest.approx(marginal["log_probability"], abs=1e-12)
    assert posterior["distributions"] == conditional["distributions"]
    assert completion["assignment"] == best["assignment"]
    assert {each["column"] for each in posterior["ask_next"]} == {"outlook", "windy"}
    known, plain = what_if(likely={"class": {"yes": 1.0, "no": 1.0}}), what_if()
    ours, theirs = (each["parts"]["posterior"]["ask_next"] for each in (known, plain))
    assert [each["entropy_drop"] for each in ours] == pytest.approx([each["entropy_drop"] for each in theirs])
