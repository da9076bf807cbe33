"""Evidence as it is written on the command line."""

import json

import pytest

from service.requests.problems import InvalidRequest
from service.requests.written_evidence import parse_evidence_weights, parse_written_evidence


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("age=41", "age", 41),
        ("education=Bachelors", "education", "Bachelors"),
        ("lives in town=yes", "lives in town", "yes"),
        ("age=30..40", "age", {"low": 30, "high": 40}),
        ("age=.5..", "age", {"low": 0.5}),
        ("age=..-1e3", "age", {"high": -1000.0}),
        ("sold=2026-01-31T12:00..2026-02-01", "sold", {"low": "2026-01-31T12:00", "high": "2026-02-01"}),
        ("wait=PT5M..PT1H", "wait", {"low": "PT5M", "high": "PT1H"}),
        ('code="30..40"', "code", "30..40"),
        ("path=a..b", "path", "a..b"),
        ("path=..", "path", ".."),
        ("job in {A,B}", "job", ["A", "B"]),
        ('job in { A b, "3", 4, "x, y" }', "job", ["A b", "3", 4, "x, y"]),
        ("job not in {A,B}", "job", {"none_of": ["A", "B"]}),
        ("job != A", "job", {"none_of": ["A"]}),
        ("job!=3", "job", {"none_of": [3]}),
        ("job != {A,B}", "job", {"none_of": ["A", "B"]}),
        ("formula=a!=b", "formula", "a!=b"),
        ("job in {}", "job", []),
    ],
)
def test_each_form_of_evidence(text, name, value):
    assert parse_written_evidence([text]) == {name: value}


@pytest.mark.parametrize(
    ("form", "value"),
    [
        ("e={}", "{}"),
        ("e != {}", {"none_of": ["{}"]}),
        ("e in {{{}}}", ["{}"]),
        ("e not in {{{}}}", {"none_of": ["{}"]}),
    ],
)
@pytest.mark.parametrize("word", ["null", "NaN", "Infinity", "1.50", "-0", "1e5", "true", "[1]", "1..2"])
def test_a_value_that_looks_like_json_is_the_value(form, value, word):
    expected = json.loads(json.dumps(value).replace("{}", word))
    evidence = parse_written_evidence([form.format(word), "a=1.50"], lambda name, text: (name, text) == ("e", word))
    assert evidence == {"e": expected, "a": 1.5}


@pytest.mark.parametrize(
    ("text", "name", "weights"),
    [
        ("x: a=.8,b=.2", "x", {"a": 0.8, "b": 0.2}),
        ("size: (-inf, 1]=2, (1, inf]=1e-3", "size", {"(-inf, 1]": 2.0, "(1, inf]": 0.001}),
        ('"a:b": "x=1, y"=1,z=0', "a:b", {"x=1, y": 1.0, "z": 0.0}),
        ("x:a=-1", "x", {"a": -1.0}),
    ],
)
def test_weights_of_values(text, name, weights):
    assert parse_evidence_weights([text]) == {name: weights}


@pytest.mark.parametrize(
    ("read", "texts", "message"),
    [
        (parse_written_evidence, ["age"], "'age' is not column=value"),
        (parse_written_evidence, ["age=1", "age=2"], "'age' is given twice"),
        (parse_written_evidence, ["job in {A,B"], "has a set that does not end"),
        (parse_written_evidence, ['job in {"A" B}'], "is not a list of values"),
        (parse_evidence_weights, ["x"], "'x' is not column: value=weight"),
        (parse_evidence_weights, ["x: a"], "'x: a' is not column: value=weight"),
        (parse_evidence_weights, ["x: a=.8,b"], "is not column: value=weight"),
        (parse_evidence_weights, ["x: a=much"], "The weight of 'a' must be a number, not 'much'"),
        (parse_evidence_weights, ["x: a=1,a=2"], "'a' is given twice"),
        (parse_evidence_weights, ["x: a=1", "x: b=1"], "'x' is given twice"),
    ],
)
def test_what_is_none_is_told(read, texts, message):
    with pytest.raises(InvalidRequest, match=message):
        read(texts)
