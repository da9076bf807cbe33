"""A case from every side: each part equals what its own verb answers, and what cannot be answered says why."""

import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners.schema import Attribute, Schema
from learners.schema.encoding.json_records import encode_json_records
from learners.schema.value_choices import attribute_value_choices
from service import product
from service.console.screens.explorer_screens import initial_explorer_state
from service.product.inference.what_if_answers import WhatIfRequest, numbers_in_intervals, unseen_value_warnings
from service.product.inference.what_if_answers import answer_what_if as answer_case
from service.serving.predictor import map_model_version
from service.settings import Settings
from service.workspace import Workspace
from tests.service.asking import learn, learned
from tests.service.conftest import weather
from tests.support.http import ask, problem

EVIDENCE = [{}, {"outlook": "sunny"}, {"humidity": 60.5, "windy": True}, {"outlook": None, "humidity": 80.0}]
TOLERANCE = 1e-12


def what_if(site, model="weather", **case):
    answer = site.client.post(f"/v1/models/{model}/whatif", json=case)
    assert answer.status_code == 200, answer.text
    return answer.json()


def query(site, *queries):
    return ask(site.client, "weather", *queries)


def test_a_column_that_is_set_is_answered_as_by_query(site):
    """Each part equals its query with `do`; a prediction takes no such thing."""
    known = {"evidence": {"windy": True}, "do": {"outlook": "sunny"}}
    told = what_if(site, **known)
    marginal, conditional, best = query(site, *({"kind": kind, **known} for kind in ("marginal", "conditional", "map")))
    posterior = told["parts"]["posterior"]
    assert posterior["log_evidence"] == pytest.approx(marginal["log_probability"], abs=TOLERANCE)
    assert posterior["distributions"] == conditional["distributions"]
    assert posterior["intervention"]["cut"] and posterior["given"]["outlook"] == "sunny"
    assert told["parts"]["completion"]["log_probability"] == pytest.approx(best["log_probability"], abs=TOLERANCE)
    supposed = [{"windy": True, "class": label} for label in ("no", "yes")]
    each = query(site, *({**known, "kind": "conditional", "evidence": evidence} for evidence in supposed))
    share = [posterior["question"][label] for label in ("no", "yes")]
    gain = {drop["column"]: drop["entropy_drop"] for drop in posterior["ask_next"]}["humidity"]
    tables = np.array([list(answer["distributions"]["humidity"].values()) for answer in each])
    mean = np.array(share) @ tables
    assert gain == pytest.approx(sum(w * (p * np.log(p / mean)).sum() for w, p in zip(share, tables, strict=True)))
    assert all("'outlook' is set by do" in told["absent"][part] for part in ("prediction", "interval"))


def test_the_label_of_an_interval_stands_for_every_number_in_it(site):
    """Every part is that of any number of the interval, which has its code; without it, or with others, queries answer."""
    with Workspace(Settings(workspace=site.workspace)) as workspace:
        schema = map_model_version(product.find_version(workspace, "weather")).schema
    (humidity,) = [each for each in schema.attributes if each.name == "humidity"]
    labels = humidity.unique_labels()[humidity.first_code :]
    for label, cut in zip(labels, humidity.cuts, strict=False):
        of_label, of_number = (what_if(site, evidence={"humidity": value, "windy": True}) for value in (label, cut))
        assert of_label["parts"]["posterior"].pop("given") == {"humidity": label, "windy": "True"}
        of_number["parts"]["posterior"].pop("given")
        best = [answer["parts"].pop("completion") for answer in (of_label, of_number)]
        assert of_label == of_number
        assert best[0]["log_probability"] == best[1]["log_probability"]
        assert best[0]["assignment"] == best[1]["assignment"] and best[1]["stands_for"] == {"humidity": label}
    for several in ({"none_of": [labels[0]]}, labels[:2]):
        assert "has several" in what_if(site, evidence={"humidity": several})["absent"]["prediction"]
    assert what_if(site, do={"humidity": labels[-1]})["parts"]["posterior"]["given"] == {"humidity": labels[-1]}


def test_an_ensemble_names_the_number_at_which_it_predicts_an_interval(tmp_path, site):
    """Its other members have other cuts: the prediction is that of a number in the interval, and says which."""
    with Workspace(Settings(workspace=tmp_path / "workspace")) as workspace:
        served = map_model_version(learn(workspace, site.train, "auto", learner="auto", parameters={}))
        (humidity,) = [each for each in served.model.joint.schema.attributes if each.name == "humidity"]
        label = humidity.unique_labels()[-1]
        prediction = answer_case(served, WhatIfRequest(evidence={"humidity": label}))["parts"]["prediction"]
        number = prediction.pop("predicted_at")["humidity"]
        assert number > humidity.cuts[-1]
        assert prediction == answer_case(served, WhatIfRequest(evidence={"humidity": number}))["parts"]["prediction"]


@pytest.mark.parametrize(
    "case", [{"evidence": {"outlook": "sunny"}}, {"evidence": {"windy": True}, "do": {"outlook": "sunny"}}]
)
def test_a_network_whose_circuit_is_not_small_answers_the_same(site, case, monkeypatch):
    by_circuit = what_if(site, **case)
    monkeypatch.setattr("learners.registry.networks.model.MOST_QUERIED_EDGES", -1)
    summed = what_if(site, **case)
    assert summed["parts"].keys() == by_circuit["parts"].keys() and summed["absent"] == by_circuit["absent"]
    ours, theirs = (told["parts"]["posterior"] for told in (summed, by_circuit))
    assert ours["log_evidence"] == pytest.approx(theirs["log_evidence"], abs=TOLERANCE)
    for name, shares in theirs["distributions"].items():
        assert ours["distributions"][name] == pytest.approx(shares, abs=TOLERANCE)
    ours, theirs = (told["parts"]["completion"] for told in (summed, by_circuit))
    assert ours["assignment"] == theirs["assignment"] and ours["is_optimal"]
    assert ours["log_probability"] == pytest.approx(theirs["log_probability"], abs=TOLERANCE)


@pytest.mark.parametrize("evidence", EVIDENCE)
def test_it_equals_predict_explain_and_query(site, evidence):
    told = what_if(site, evidence=evidence)
    parts, rows = told["parts"], {"records": [evidence]}
    predicted = site.client.post("/v1/models/weather/predict", json=rows).json()
    assert parts["prediction"]["probabilities"] == pytest.approx(predicted["probabilities"][0], abs=TOLERANCE)
    assert parts["prediction"]["prediction"] == predicted["predictions"][0]
    explained = site.client.post("/v1/models/weather/explain", json=rows).json()["explanations"][0]
    given = {each["column"]: each["log_odds"] for each in parts["contributions"]["contributions"]}
    assert given == pytest.approx({name: value for name, value in explained["contributions"].items() if value})
    assert parts["contributions"]["log_odds"] == pytest.approx(explained["log_odds"], abs=TOLERANCE)
    # In a query null says nothing; a missing value is asked for by its label.
    asked = {name: "(missing)" if value is None else value for name, value in evidence.items()}
    kinds = ("marginal", "conditional", "map")
    marginal, conditional, most_probable = query(site, *({"kind": kind, "evidence": asked} for kind in kinds))
    assert parts["posterior"]["log_evidence"] == pytest.approx(marginal["log_probability"], abs=TOLERANCE)
    for name, own in conditional["distributions"].items():
        assert parts["posterior"]["distributions"][name] == pytest.approx(own, abs=TOLERANCE), name
    assert parts["completion"]["assignment"] == most_probable["assignment"]


def test_what_to_ask_next_is_the_expected_drop_of_entropy(site):
    """From its definition: H(class | e) - sum_v P(x = v | e) H(class | e, x = v), each by queries of its own."""
    evidence = {"outlook": "sunny"}

    def ask_with(more):
        (answer,) = query(site, {"kind": "conditional", "evidence": evidence | more})
        return math.exp(answer["log_evidence"]), answer["distributions"]

    def entropy(distribution):
        return -sum(p * math.log(p) for p in distribution.values() if p > 0)

    total, free = ask_with({})
    next_ = what_if(site, evidence=evidence)["parts"]["posterior"]["ask_next"]
    told = {each["column"]: each["entropy_drop"] for each in next_}
    assert told.keys() == free.keys() - {"class"}
    for name in told:
        after = 0.0
        for label in free[name]:
            weight, distributions = ask_with({name: label})
            after += weight / total * entropy(distributions["class"])
        assert told[name] == pytest.approx(entropy(free["class"]) - after, abs=1e-9), name


def test_a_part_that_does_not_exist_says_why_and_the_others_go_on(site, circuit):
    told = what_if(site, evidence={})
    assert set(told["parts"]) == {"prediction", "contributions", "posterior", "completion"}
    assert "m-estimates" in told["absent"]["interval"] and "learner orders" in told["absent"]["edges"]
    told = what_if(site, circuit.name, evidence={"outlook": "sunny"}, target="windy")
    assert {"posterior", "completion"} <= set(told["parts"])
    assert "prediction" in told["absent"] and "contributions" in told["absent"]
    assert sum(told["parts"]["posterior"]["question"].values()) == pytest.approx(1.0)
    other = what_if(site, evidence={"class": "yes"}, target="outlook")
    assert "this view answers for 'outlook'" in other["absent"]["prediction"]
    everything = {"outlook": "sunny", "humidity": 60.5, "windy": True, "class": "yes"}
    whole = what_if(site, evidence=everything)
    assert whole["parts"]["posterior"]["surprise"] > 0 and "is given" in whole["parts"]["posterior"]["why_no_question"]


def test_only_the_parts_and_columns_that_are_asked_for_are_told(site):
    told = what_if(site, evidence={}, parts=["posterior"], columns=["windy"])
    assert set(told["parts"]) == {"posterior"} and not told["absent"]
    assert set(told["parts"]["posterior"]["distributions"]) == {"windy", "class"}


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ({"evidence": {"outlok": "sunny"}}, ("outlok", "outlook")),
        ({"target": "nothing"}, ("'nothing'",)),
        ({"parts": ["magic"]}, ("parts",)),
        ({"evidence": {"humidity": "wet"}}, ("humidity",)),
    ],
)
def test_wrong_cases_are_refused_in_words(site, case, words):
    detail = problem(site.client.post("/v1/models/weather/whatif", json={"evidence": {}, **case}), 422)["detail"]
    assert all(word in detail for word in words), detail


@given(st.lists(st.floats(-1e6, 1e6), min_size=0, max_size=12, unique=True), st.booleans())
def test_a_click_on_an_interval_supposes_a_number_in_it(cuts, has_missing):
    attribute = Attribute("x", "numeric", cuts=tuple(sorted(cuts)), has_missing=has_missing, arrow_type="double")
    schema = Schema((attribute,), None, ("",))
    found = attribute_value_choices(attribute)
    codes = encode_json_records([{"x": value} for _, value in found], schema).x[0]
    assert codes.tolist() == list(range(attribute.n_values))


@pytest.fixture(scope="module", params=["auto", "eskdb", "xgboost", "kdb", "spn"])
def served(request, tmp_path_factory):
    """A model of each kind that has finer cuts than its joint distribution, or none; a network, and a circuit."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    pq.write_table(weather(600, 1), folder / "train.parquet")
    parameters = {"auto": {"members": 2}, "eskdb": {"members": 2}, "spn": {"passes": 2, "states": 2}}
    with Workspace(Settings(workspace=folder / "workspace")) as workspace:
        asked = {"parameters": parameters.get(request.param, {}), "holdout": 0}
        return map_model_version(learned(workspace, folder / "train.parquet", "all", request.param, **asked))


def answer(served, **case):
    return answer_case(served, WhatIfRequest(**case))


def explored(served):
    """The columns of the explorer by their names."""
    return {column["name"]: column for column in initial_explorer_state(served, "all")["columns"]}


def test_each_value_that_the_explorer_lists_has_its_probability(served):
    """Free columns by their distribution; given ones by the label of their value, also of a number between two listed ones."""
    columns, evidence = explored(served), {"humidity": 60.51}
    told = answer(served, evidence=evidence)["parts"].get("posterior")
    if told is None:
        assert served.learner == "xgboost"
        return
    free = {name: own for name, own in told["distributions"].items() if name in columns}
    assert free.keys() == columns.keys() - evidence.keys()
    for name, own in free.items():
        assert {each["label"] for each in columns[name]["values"]} == own.keys(), name
    assert told["given"]["humidity"] in {each["label"] for each in columns["humidity"]["values"]}


def test_the_completion_can_be_supposed(served):
    """Words of the answer are labels of the explorer, whose values are evidence."""
    told = answer(served, evidence={"outlook": "sunny"}, time_limit_s=5)["parts"].get("completion")
    if told is None:
        assert served.learner == "xgboost"
        return
    columns, supposed = explored(served), {"outlook": "sunny"}
    for name, value in told["assignment"].items():
        if name != "class":
            (supposed[name],) = (e["value"] for e in columns[name]["values"] if value in (e["label"], e["value"]))
    told = answer(served, evidence=supposed)
    assert told["parts"]["posterior"]["log_evidence"] is not None, told["absent"]


@pytest.mark.parametrize("evidence", [{}, {"outlook": "sunny"}, {"windy": True, "humidity": 70.0}])
def test_only_what_is_supposed_explains(served, evidence):
    told = answer(served, evidence=evidence)["parts"]["contributions"]
    assert {each["column"] for each in told["contributions"]} <= evidence.keys()
    total = told["prior"] + sum(each["log_odds"] for each in told["contributions"])
    assert total == pytest.approx(told["log_odds"], abs=1e-5)


def test_values_that_training_never_saw_are_told(served):
    told = answer(served, evidence={"humidity": 999_999, "outlook": "hail"})["warnings"]
    assert len(told) == 2 and "humidity = 999999 is outside the range of training" in " ".join(told)
    assert "outlook = hail: training never saw this value." in told
    assert not answer(served, evidence={"humidity": 70.0, "outlook": "sunny"})["warnings"]
    for name, column in explored(served).items():  # no click supposes what training never saw
        for each in column["values"]:
            evidence = {name: each["value"]}
            evidence |= numbers_in_intervals(served.model.joint.schema, evidence)
            assert not unseen_value_warnings(served.schema, evidence), (name, each)


def test_where_a_missing_value_has_two_answers_a_sentence_says_why(served):
    told = answer(served, evidence={"outlook": None})
    prediction, posterior = told["parts"]["prediction"], told["parts"].get("posterior")
    if posterior is None:
        assert served.learner == "xgboost"
    elif served.learner == "spn":
        by_joint = [posterior["distributions"]["class"][label] for label in prediction["classes"]]
        assert by_joint == pytest.approx(prediction["probabilities"], abs=1e-9) and not told["warnings"]
        assert "outlook" in posterior["distributions"] and not posterior["given"]
    else:
        (sentence,) = told["warnings"]
        assert sentence.startswith("outlook is missing: the posterior treats this as a value")
        assert not answer(served, evidence={"outlook": None}, parts=["posterior"])["warnings"]


def test_times_out_of_range_are_told_as_times():
    attribute = Attribute("at", "numeric", arrow_type="timestamp[us]", quantiles=(0.0, 86_400.0))
    schema = Schema((attribute,), None, ("",))
    (told,) = unseen_value_warnings(schema, {"at": "2026-01-01T00:00"})
    assert told == "at = 2026-01-01T00:00 is outside the range of training, 1970-01-01 to 1970-01-02."
    for known in ("1970-01-01T12:00", None):
        assert not unseen_value_warnings(schema, {"at": known})
