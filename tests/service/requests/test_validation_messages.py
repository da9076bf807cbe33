"""What is wrong with a request, in words that name what is allowed: on the command line and over REST alike."""

import re

import pytest

from tests.support.cli import fewpass

RAW = re.compile(
    r"Input should|Input tag|String should|Value error|Extra inputs|Unexpected keyword|discriminator|function-|literal\["
)
NAMES = "1 to 64 of a-z"


def flat(text):
    """What a box of rich says, on one line."""
    return " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        ("marginal", "evidence, likely, do, graph, sampling"),
        ("conditional", "variables, evidence, joint, likely, do, graph, sampling"),
        ("moments", "variables, evidence, likely, do, graph, sampling"),
        ("sample", "n, evidence, variables, seed, likely, do, graph, sampling"),
        ("map", "variables, evidence, solver, time_limit_s, k, seed, best, likely, do, graph, sampling"),
    ],
)
def test_a_query_refuses_members_that_it_does_not_have(site, kind, known):
    failed = fewpass("query", "weather", kind, "--set", "nn=1", workspace=site.workspace, code=1)
    assert f"{kind}.nn is not known" in failed.stderr and failed.stderr.endswith(f" {known}.\n")
    asked = {"queries": [{"kind": kind, "nn": 1}]}
    answer = site.client.post("/v1/models/weather/query", json=asked)
    assert answer.status_code == 422 and answer.json()["detail"].endswith(f" {known}")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["train", "x.parquet", "-t", "y", "-n", "My Model"], 1, ["'My Model' is not a valid name for", NAMES]),
        (["train", "x.parquet", "-t", "y", "-n", "m", "--alias", "7"], 1, ["'7' is not a valid name for an alias"]),
        (["train", "x.parquet", "-t", "y", "-n", "m", "--holdout", "3"], 2, ["--holdout", "at most 0.99"]),
        (["train", "x.csv", "-t", "y", "-n", "m", "--k", "2", "--set", "k=3"], 2, ["'k' is given twice"]),
        (["train", "x.csv", "-t", "y", "-n", "m", "--test", "t.csv", "--holdout", "0.3"], 2, ["not on both"]),
        (
            ["train", "x.csv", "-t", "y", "-n", "m", "--columns", '{"a": "nominl"}'],
            1,
            ["columns.a: 'nominl' ", "'drop',"],
        ),
        (["query", "weather", "foo"], 1, ["'foo'", "'marginal', 'conditional', 'moments', 'sample', 'map'"]),
        (["query", "weather", "sample", "--set", "n=x"], 1, ["sample.n: 'x' must be a whole number"]),
        (["query", "weather", "marginal", "--given", "outlook=[[1]]"], 1, ["[[1]] must be text, a number, true"]),
        (["keys", "create", "x", "--role", "boss"], 2, ["'boss'", "'read', 'predict', 'train', 'admin'"]),
        (["models", "alias", "weather@1", "7"], 1, ["'7' is not a valid name for an alias"]),
        (["jobs", "submit", '{"kind": "trin"}'], 2, ["'trin'", "'train', 'evaluate'"]),
        (["jobs", "submit", '{"kind": "schema", "datset": "x"}'], 2, ["job.schema.datset", "similar: dataset"]),
        (
            ["forget", "weather", "--name-of", "model", "--where", "user_id ="],
            1,
            ["'user_id =' cannot be used", "ends too early"],
        ),
        (["jobs", "--limit", "x"], 2, ["--limit", "must be a whole number"]),
    ],
)
def test_the_command_line_says_what_is_allowed(site, arguments, code, words):
    told = flat(fewpass(*arguments, workspace=site.workspace, code=code).stderr)
    assert all(word in told for word in words), told
    assert not RAW.search(told), told


@pytest.mark.parametrize(
    ("method", "path", "body", "words"),
    [
        (
            "POST",
            "/v1/datasets",
            {"name": "My Data", "uris": ["x"]},
            ["body.name: 'My Data' is not a valid name for", NAMES],
        ),
        ("POST", "/v1/datasets", {"name": "d", "uri": "x"}, ["body.uri is not known (similar: uris)"]),
        ("POST", "/v1/datasets", {"name": "d", "uris": "x"}, ["body.uris: 'x' must be a list"]),
        ("POST", "/v1/jobs", {"kind": "foo"}, ["'foo'", "'train', 'evaluate'"]),
        ("POST", "/v1/jobs", {"kind": "schema"}, ["body.schema.dataset is missing"]),
        ("POST", "/v1/keys", {"name": "x", "role": "boss"}, ["body.role: 'boss'", "'read', 'predict'"]),
        ("POST", "/v1/models/weather/query", {"queries": [{"kind": "foo"}]}, ["'foo'", "'marginal'"]),
        ("PUT", "/v1/models/weather/aliases/7", {"version": 1}, ["'7' is not a valid name for an alias"]),
        ("POST", "/v1/models/weather/predict?interval=2", {}, ["interval='2' is not allowed", "above 0 and below 1"]),
        ("POST", "/v1/models/weather/predict", {"records": [{"zz": 1}]}, ["knows no column 'zz'. Rename it"]),
        (
            "POST",
            "/v1/models/weather/predict",
            {"records": [{}, {"windy": True, "outlook": [1]}]},
            ["records[1]['outlook']"],
        ),
        ("POST", "/v1/models/weather/whatif", {"columns": ["outlok"]}, ["Column 'outlok' is not", "outlook"]),
        ("GET", "/v1/jobs?limit=x", None, ["query.limit: 'x' must be a whole number"]),
    ],
)
def test_rest_says_what_is_allowed(site, method, path, body, words):
    answer = site.client.request(method, path, json=body)
    problem = answer.json()
    assert answer.status_code == 422 and all(word in problem["detail"] for word in words), problem
    assert not RAW.search(answer.text), problem


@pytest.mark.parametrize(
    ("path", "similar"),
    [
        ("/v1/model", "/v1/models"),
        ("/v1/models/weather/predcit", "/v1/models/weather/predict"),
        ("/v1/models/weather/alias", "/v1/models/weather/aliases"),
        ("/v2/models/weather/inferr", "/v2/models/weather/infer"),
        ("/nothing/of/the/kind", None),
    ],
)
def test_an_unknown_path_names_a_similar_one_and_the_docs(site, path, similar):
    answer = site.client.get(path)
    detail = answer.json()["detail"]
    assert answer.status_code == 404 and path in detail and "/docs" in detail
    assert f"(similar: {similar})" in detail if similar else "similar" not in detail, detail


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/v1/models", "GET"),
        ("DELETE", "/v1/datasets", "GET, POST"),
        ("GET", "/v1/models/weather/predict", "POST"),
        ("PATCH", "/v1/models/weather/aliases/best", "DELETE, PUT"),
    ],
)
def test_a_wrong_method_names_those_that_are_right(site, method, path, allowed):
    answer = site.client.request(method, path)
    assert answer.status_code == 405 and answer.headers["allow"] == allowed
    assert allowed.replace(", ", " and ") in answer.json()["detail"]


@pytest.mark.parametrize("headers", [{}, {"content-type": "application/x-www-form-urlencoded"}])
def test_json_without_its_content_type_is_told_of_it(site, headers):
    body = b'{"name": "d", "uris": ["x"]}'
    for path in ("/v1/datasets", "/v1/models/weather/query"):
        answer = site.client.post(path, content=body, headers=headers)
        assert answer.status_code == 415 and "Content-Type: application/json" in answer.json()["detail"], answer.text
    assert site.client.post("/v1/datasets", headers=headers).json()["detail"] == "body is missing"
