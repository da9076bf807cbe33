"""Circuits of models, looked at and taken elsewhere: REST and command line."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest

from learners.circuits.structures.text import from_json, parse_text
from service import product
from service.product.inference.queries import queryable_circuit
from service.product.views.circuit_export import MEDIA_TYPES
from service.settings import Settings
from service.workspace import Workspace
from tests.support.cli import fewpass
from tests.support.http import problem


@pytest.mark.parametrize("model", ["sky", "weather"])
def test_a_circuit_is_read_back_as_it_is_served(site, circuit, model):
    """A circuit, and naive Bayes compiled to one."""
    told = {form: site.client.get(f"/v1/models/{model}/circuit", params={"format": form}) for form in MEDIA_TYPES}
    for form, response in told.items():
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].partition(";")[0] == MEDIA_TYPES[form]
    with Workspace(Settings(workspace=site.workspace)) as workspace:
        served = queryable_circuit(product.load_served_model(workspace, model).model).circuit
    np.testing.assert_equal(from_json(told["json"].text).to_arrays(), served.to_arrays())
    assert parse_text(told["text"].text.splitlines()).summary() == served.summary()
    assert ElementTree.fromstring(told["svg"].text).tag.endswith("svg")
    if model == "sky":
        assert ">outlook</text>" in told["svg"].text
        assert told["svg"].text == site.client.get("/v1/models/sky/structure.svg").text
    assert told["dot"].text.startswith("digraph")
    columns = {column["name"]: column["values"] for column in told["json"].json()["columns"]}
    assert {"rain", "sunny"} <= set(columns["outlook"])
    assert f'"outlook" {json.dumps(columns["outlook"])}' in told["text"].text


def test_what_has_no_circuit_says_so(site):
    site.learn("forest", "xgboost", rounds=2)
    refused = problem(site.client.get("/v1/models/forest/circuit"), 422)
    assert "no joint distribution" in refused["detail"]
    assert "<svg" in site.client.get("/v1/models/forest/structure.svg").text
    problem(site.client.get("/v1/models/nothing/circuit"), 404)
    assert "format" in problem(site.client.get("/v1/models/weather/circuit?format=png"), 422)["detail"]


def test_the_command_line_writes_circuits(site, circuit, tmp_path):
    written = tmp_path / "sky.txt"
    given = ["models", "circuit", "sky", "--out", str(written)]
    fewpass(*given, workspace=site.workspace)
    assert fewpass(*given[:3], workspace=site.workspace).stdout.rstrip() == written.read_text().rstrip()
    assert "log10_induced_trees" in fewpass("models", "structure", "sky", workspace=site.workspace).stdout
    before = written.read_bytes()
    assert "already exists" in fewpass(*given, "--format", "dot", workspace=site.workspace, code=1).stderr
    assert written.read_bytes() == before
    fewpass(*given, "--format", "dot", "--force", workspace=site.workspace)
    assert written.read_text().startswith("digraph")
