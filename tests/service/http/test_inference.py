"""The Open Inference Protocol, asked by Triton's own client, and MLflow's scoring."""

import io
import json

import numpy as np
import pyarrow.csv as pacsv
import pytest
import tritonclient.http as triton
from starlette.testclient import TestClient
from tritonclient.utils import InferenceServerException

from service.http.app import create_app
from service.settings import Settings
from tests.support.http import PATH, problem

INFER = "/v2/models/weather/infer"
ROWS = 20
GOOD = {"name": "windy", "shape": [1], "datatype": "BOOL", "data": [True]}
TWO_ROWS = {"name": "humidity", "shape": [2], "datatype": "FP64", "data": [1, 2]}


@pytest.fixture(scope="module")
def client(site):
    with triton.InferenceServerClient(site.server.url.removeprefix("http://")) as client:
        yield client


@pytest.fixture(scope="module")
def expected(site):
    """The answer of our own route for the rows that the protocol's tests send."""
    columns = site.table.slice(0, ROWS).drop_columns(["class", "station"]).to_pydict()
    return site.client.post(PATH, json={"columns": columns}).json() | {"columns": columns}


def inputs_of(columns, binary):
    """Triton's tensors know no missing values but NaN, so a missing text is one that training never saw."""
    arrays = {
        "outlook": ("BYTES", np.array([value or "unknown" for value in columns["outlook"]], dtype=object)),
        "humidity": ("FP64", np.array([np.nan if v is None else v for v in columns["humidity"]], np.float64)),
        "windy": ("BOOL", np.array(columns["windy"])),
    }
    inputs = []
    for name, (datatype, array) in arrays.items():
        tensor = triton.InferInput(name, [len(array)], datatype)
        is_binary = binary or name == "humidity"  # JSON has no NaN
        tensor.set_data_from_numpy(array, binary_data=is_binary)
        inputs.append(tensor)
    return inputs


def test_triton_s_client_finds_the_server_and_the_model(client):
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("weather") and client.is_model_ready("weather", "1")
    assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
    metadata = client.get_model_metadata("weather")
    datatypes = {tensor["name"]: tensor["datatype"] for tensor in metadata["inputs"]}
    assert datatypes == {"outlook": "BYTES", "humidity": "FP64", "windy": "BOOL"}
    assert metadata["versions"] == ["1"] and metadata["outputs"][1]["shape"] == [-1, 2]
    assert client.get_model_metadata("weather", "latest")["versions"] == ["1"]
    assert not client.is_model_ready("nothing")


@pytest.mark.parametrize("binary", [False, True])
def test_triton_s_client_gets_the_answers_of_our_own_route(client, site, expected, binary):
    inputs = inputs_of(expected["columns"], binary)
    answered = client.infer("weather", inputs, model_version="1", request_id="r1")  # binary outputs by default
    complete = [row for row in range(ROWS) if expected["columns"]["outlook"][row] is not None]
    probabilities = np.array(expected["probabilities"])[complete]
    np.testing.assert_allclose(answered.as_numpy("probabilities")[complete], probabilities, rtol=1e-12)
    texts = [text.decode() for text in answered.as_numpy("prediction")[complete]]
    assert texts == [expected["predictions"][row] for row in complete]
    head = answered.get_response()
    assert (head["model_name"], head["model_version"], head["id"]) == ("weather", "1", "r1")
    outputs = [triton.InferRequestedOutput(name, binary_data=binary) for name in ("classes", "probabilities")]
    some = client.infer("weather", inputs, outputs=outputs)
    assert some.as_numpy("prediction") is None
    assert some.as_numpy("classes").astype(str).tolist() == ["no", "yes"]


def test_triton_s_client_hears_what_is_wrong(client):
    typo = triton.InferInput("outlok", [1], "BYTES")
    typo.set_data_from_numpy(np.array(["sunny"], dtype=object))
    with pytest.raises(InferenceServerException, match=r'similar: outlook.*request parameter "ignore_unknown": true'):
        client.infer("weather", [typo])
    with pytest.raises(InferenceServerException, match="no model 'nothing'"):
        client.infer("nothing", [])
    answered = client.infer("weather", [typo], parameters={"ignore_unknown": True})
    assert answered.as_numpy("probabilities").shape == (1, 2)


def test_json_tensors_may_be_nested_null_and_few(site):
    tensor = {"name": "humidity", "shape": [2, 1], "datatype": "FP32", "data": [[52.5], [None]]}
    answer = site.client.post(INFER, json={"inputs": [tensor]}).json()
    ours = site.client.post(PATH, json={"columns": {"humidity": [52.5, None]}}).json()
    outputs = {output.pop("name"): output for output in answer["outputs"]}
    np.testing.assert_allclose(outputs["probabilities"]["data"], np.ravel(ours["probabilities"]), rtol=1e-12)
    assert outputs["prediction"] == {"shape": [2], "datatype": "BYTES", "data": ours["predictions"]}
    assert set(outputs) == {"prediction", "probabilities"} and "id" not in answer


BAD = [
    ({"inputs": [GOOD | {"shape": [2]}]}, 422, "has 1 values"),
    *(({"inputs": [GOOD | {"shape": s}]}, 422, "one input for each attribute") for s in ([1, 3], [], [-1], [1, 1, 1])),
    # Their product would take minutes.
    ({"inputs": [GOOD | {"shape": [9] * 60_000}]}, 422, "a shape of 60000 dimensions"),
    ({"inputs": [GOOD | {"datatype": "BF16"}]}, 422, "not one of BYTES"),
    ({"inputs": [GOOD | {"shape": [2001], "data": [True] * 2001}]}, 413, "the limit is 2000"),
    ({"inputs": [GOOD, GOOD]}, 422, "occurs twice"),
    ({"inputs": [GOOD, TWO_ROWS]}, 422, "different numbers"),
    ({"inputs": [GOOD | {"data": [{}]}]}, 422, "'windy'"),
    ({"inputs": [GOOD], "outputs": [{"name": "magic"}]}, 422, "Unknown output 'magic'"),
    ({"inputs": [GOOD | {"data": None, "parameters": {"binary_data_size": 9}}]}, 400, "exceeds the body"),
    ({"inputs": {}}, 422, "Expected `array`"),
    ({}, 422, "inputs"),
    ("not an object", 422, "Expected `object`"),
]


@pytest.mark.parametrize(("body", "status", "words"), BAD)
def test_bad_tensors_are_clear_problems(site, body, status, words):
    found = problem(site.client.post(INFER, json=body), status)
    assert words in found["detail"] and found["error"] == found["detail"]


@pytest.mark.parametrize(
    ("name", "datatype", "content", "words"),
    [
        ("outlook", "BYTES", b"\x09\x00\x00\x00abc", "truncated"),
        ("outlook", "BYTES", b"\x01\x00", "is not valid UTF-8 text"),
        ("outlook", "BYTES", b"\x01\x00\x00\x00\xff", "is not valid UTF-8 text"),
        ("humidity", "FP64", b"\x01\x00\x00", "do not divide into"),
    ],
)
def test_broken_binary_tensors_are_clear_problems(site, name, datatype, content, words):
    tensor = {"name": name, "shape": [1], "datatype": datatype, "parameters": {"binary_data_size": len(content)}}
    head = json.dumps({"inputs": [tensor]}).encode()
    for length, body, told in ((len(head), head + content, words), (99999, head, ""), ("x", head, "")):
        headers = {"inference-header-content-length": str(length)}
        assert told in problem(site.client.post(INFER, content=body, headers=headers), 400)["detail"]


# MLflow


@pytest.fixture(scope="module")
def mlflow(site):
    """A second application on the same workspace, with a default model and without the control plane."""
    options = {"default_model": "weather", "predict_only": True, "max_rows": 50, "warm_up": False}
    app = create_app(Settings(workspace=site.workspace, **options))
    with TestClient(app, base_url="http://localhost") as client:
        yield client


def test_all_forms_of_invocations_say_what_predict_says(mlflow, site, expected):
    table = site.table.slice(0, ROWS).drop_columns(["class"])
    columns, records = table.to_pydict(), table.to_pylist()
    split = {"columns": table.column_names, "index": list(range(ROWS)), "data": [list(row.values()) for row in records]}
    for body in (
        {"dataframe_split": split},
        {"dataframe_records": records},
        {"inputs": columns},
        {"instances": records, "params": {"anything": 1}},
    ):
        answer = mlflow.post("/invocations", json=body).json()
        assert answer["predictions"] == expected["predictions"] and answer["classes"] == ["no", "yes"]
        np.testing.assert_allclose(answer["probabilities"], expected["probabilities"], rtol=1e-12)
    sink = io.BytesIO()
    pacsv.write_csv(table, sink)
    as_csv = mlflow.post("/invocations", content=sink.getvalue(), headers={"content-type": "text/csv; charset=utf-8"})
    np.testing.assert_allclose(as_csv.json()["probabilities"], expected["probabilities"], rtol=1e-6)
    assert mlflow.post("/invocations", json={"inputs": {"windy": True}}).json()["predictions"] == ["no"]


JSON, TWICE = "application/json", b'{"dataframe_split": {"columns": ["windy", "windy"], "data": [[true, false]]}}'


@pytest.mark.parametrize(
    ("kind", "body", "status", "words"),
    [
        (JSON, b"{", 400, "not JSON"),
        (JSON, b"{}", 422, "exactly one"),
        (JSON, b'{"inputs": [[1, 2]]}', 422, "Name the columns"),
        (JSON, b'{"inputs": [{}], "instances": [{}]}', 422, "exactly one"),
        (JSON, b'{"dataframe_split": {"columns": ["windy"], "data": [[true, 1]]}}', 422, "Row 0 has 2 values"),
        (JSON, TWICE, 422, "'windy' occurs twice"),
        (JSON, b'{"dataframe_records": [{"outlok": "x"}]}', 422, "similar: outlook"),
        (JSON, b'{"inputs": {"windy": [true, false], "humidity": [1]}}', 422, "values"),
        (JSON, b'{"inputs": {"windy": [' + b"true," * 50 + b"true]}}", 413, "the limit is 50"),
        ("text/csv", b"", 400, ""),
        ("text/csv", b"windy,humidity\n1\n", 400, ""),
        ("text/csv", b"windy,windy\ntrue,false\n", 422, "'windy' occurs twice"),
        ("text/plain", b"x", 415, ""),
    ],
)
def test_bad_invocations_are_clear_problems(mlflow, kind, body, status, words):
    answer = mlflow.post("/invocations", content=body, headers={"content-type": kind})
    assert words in problem(answer, status)["detail"]


def test_ping_and_version(mlflow, site):
    assert mlflow.get("/ping").text == "\n" and mlflow.get("/version").text
    assert "FEWPASS_DEFAULT_MODEL" in problem(site.client.post("/invocations", json={}), 503)["detail"]
