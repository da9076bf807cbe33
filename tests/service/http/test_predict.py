"""POST predict over a real server: what it answers, and what it refuses."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient

from learners.errors import SchemaError
from service import product
from service.http.api.scoring.predict import ARROW
from service.http.app import create_app
from service.settings import Settings
from service.workspace import Workspace
from tests.service.asking import learn, run_job
from tests.support.estimators import KEEP, WORDS
from tests.support.estimators import table as dated_rows
from tests.support.http import PATH, RECORD, problem, stream_of

LIMITS = [-(2**63), 2**53, 2**53 + 1, 2**63 - 1]
WHOLE, ARROW_TO_JSON = "/v1/models/whole/predict", {"content-type": ARROW, "accept": "application/json"}


def records_of(site, n_rows):
    return site.table.slice(0, n_rows).to_pylist()


def test_one_record_gets_its_class_and_probabilities(site):
    answer = site.client.post(PATH, json={"records": [RECORD]}).json()
    assert (answer["model"], answer["version"], answer["classes"]) == ("weather", 1, ["no", "yes"])
    assert answer["predictions"] == ["yes"]
    assert sum(answer["probabilities"][0]) == pytest.approx(1)
    for reference in ("weather@1", "weather@latest", "weather@"):  # nothing after the sign is the bare name
        assert site.client.post(f"/v1/models/{reference}/predict", json={"records": [RECORD]}).json() == answer


def test_records_columns_and_arrow_say_the_same_as_the_library(site):
    table = site.table.drop_columns(["class"])
    rows = table.to_pylist()
    with Workspace(Settings(workspace=site.workspace)) as workspace:
        served = product.load_served_model(workspace, "weather")
        expected = np.array([served.classify(row) for row in rows])
    one_by_one = [site.client.post(PATH, json={"records": [row]}).json()["probabilities"][0] for row in rows[:20]]
    records = site.client.post(PATH, json={"records": rows}).json()
    columns = site.client.post(PATH, json={"columns": table.to_pydict()}).json()
    headers = {"content-type": ARROW}
    arrow = pa.ipc.open_stream(site.client.post(PATH, content=stream_of(table), headers=headers).content).read_all()
    as_json = site.client.post(PATH, content=stream_of(table), headers=headers | {"accept": "application/json"}).json()
    out = site.client.post(PATH, json={"records": rows}, headers={"accept": ARROW})
    assert out.headers["content-type"] == ARROW
    np.testing.assert_allclose(one_by_one, expected[:20], rtol=1e-12)
    for answer in (records, columns, as_json):
        np.testing.assert_allclose(answer["probabilities"], expected, rtol=1e-12)
    for answer in (arrow, pa.ipc.open_stream(out.content).read_all()):
        np.testing.assert_allclose(np.column_stack([answer["probability_no"], answer["probability_yes"]]), expected)
        assert answer["prediction"].to_pylist() == records["predictions"]
    assert arrow.column_names == ["prediction", "probability_no", "probability_yes"]


def test_missing_columns_nulls_and_unseen_values_get_answers(site):
    rows = [{}, {"outlook": None}, {"outlook": "hail"}, {"humidity": 1e300}, RECORD]
    answer = site.client.post(PATH, json={"records": rows}).json()
    probabilities = np.array(answer["probabilities"])
    assert np.isfinite(probabilities).all() and (probabilities > 0).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert site.client.post(PATH, json={"records": []}).json()["probabilities"] == []
    assert site.client.post(PATH, json={"columns": {"outlook": ["rain", None]}}).json()["predictions"][0] == "no"


@pytest.mark.parametrize("path", [PATH, PATH.replace("predict", "explain")])
def test_two_members_of_rows_are_refused(site, path):
    body = json.dumps({"records": [RECORD]})[:-1] + ', "records": []}'
    refused = site.client.post(path, content=body, headers={"content-type": "application/json"})
    assert "names 'records' twice in one object. Keep one of the two." in problem(refused, 400)["detail"]


@pytest.mark.parametrize("path", [PATH, PATH.replace("predict", "explain")])
@pytest.mark.parametrize(
    "body",
    [
        '{"records": [{"windy": "a:b"}, {"outlook": "rain", "outlook": "sunny"}]}',
        '{"records": [{"outlook" : "rain", "windy": "\\":", "outlook" :"sunny"}]}',
        '{"columns": {"outlook": ["rain"], "outlook": ["sunny"]}}',
    ],
)
def test_two_equal_columns_of_a_row_are_refused(site, path, body):
    refused = site.client.post(path, content=body, headers={"content-type": "application/json"})
    assert problem(refused, 422)["detail"] == "The body names 'outlook' twice in one object. Keep one of the two."


def test_columns_and_texts_with_colons_are_no_repeats(site):
    body = '{"records": [{"outlook": "\\":\\":"}, {"outlook": "rain"}]}'
    assert site.client.post(PATH, content=body, headers={"content-type": "application/json"}).status_code == 200


def test_a_column_may_be_called_as_a_member_of_the_request(site):
    rows = [RECORD | {"records": 1, "columns": 2}] * 2
    answer = site.client.post(PATH, params={"ignore_unknown": "true"}, json={"records": rows}).json()
    assert answer["predictions"] == ["yes", "yes"]


def test_known_columns_that_are_no_attributes_are_overlooked_and_unknown_ones_refused(site):
    plain = site.client.post(PATH, json={"records": [RECORD]}).json()
    more = site.client.post(PATH, json={"records": [RECORD | {"class": "no", "station": "south"}]}).json()
    assert more == plain
    typo = {"records": [RECORD | {"outlok": "rain"}]}
    body = problem(site.client.post(PATH, json=typo), 422)
    assert body["column"] == "outlok" and "similar: outlook" in body["detail"] and body["instance"] == PATH
    problem(site.client.post(PATH, json={"columns": {"outlok": ["rain"]}}), 422)
    table = site.table.rename_columns(["outlok", *site.table.column_names[1:]])
    problem(site.client.post(PATH, content=stream_of(table), headers={"content-type": ARROW}), 422)
    assert site.client.post(f"{PATH}?ignore_unknown=true", json=typo).json() == plain


BAD_BODIES = [
    (b"", 400, "empty"),
    (b"{", 400, "not JSON"),
    (b'{"records": [{"humidity": NaN}]}', 400, "Write null for NaN"),
    (b'{"records": [{"humidity": Infinity}]}', 400, "Write null for NaN"),
    (b'{"records": [{"outlook": "\xff"}]}', 400, "not JSON"),
    (b"[]", 422, "Expected `object`"),
    (b"{}", 422, "either 'records' or 'columns'"),
    (b'{"records": [], "columns": {}}', 422, "not both"),
    (b'{"rows": []}', 422, "unknown field `rows`"),
    (b'{"records": [{"outlook": ["sunny"]}]}', 422, r"$.records[0]"),
    (b'{"records": {"outlook": "sunny"}}', 422, "Expected `array"),
    (b'{"columns": {"outlook": ["rain"], "windy": [true, false]}}', 422, "has 2 values, but"),
]


@pytest.mark.parametrize(("body", "status", "words"), BAD_BODIES)
def test_bad_bodies_are_clear_problems(site, body, status, words):
    response = site.client.post(PATH, content=body, headers={"content-type": "application/json"})
    assert words in problem(response, status)["detail"]


def test_limits_and_types_are_enforced(site):
    def refused(content, kind=ARROW, status=400):
        return problem(site.client.post(PATH, content=content, headers={"content-type": kind}), status)

    huge = json.dumps({"records": [RECORD] * 10_000}).encode()
    assert problem(site.client.post(PATH, content=huge), 413)["max_bytes"] == 200_000
    pieces = (huge[start : start + 10_000] for start in range(0, len(huge), 10_000))
    problem(site.client.post(PATH, content=pieces), 413)  # without a Content-Length
    many = {"columns": {"windy": [True] * 2_001}}
    assert problem(site.client.post(PATH, json=many), 413)["max_rows"] == 2_000
    refused(b"outlook\nsunny", "text/csv", 415)
    assert "not an Arrow IPC stream" in refused(b"not arrow")["detail"]
    nested = pa.table({"outlook": [["sunny"], ["rain"]]})
    assert "outlook" in refused(stream_of(nested), status=422)["detail"]
    refused(stream_of(site.table)[:-200])
    for table in (site.table.slice(0, 20), site.table):  # at once, and on a thread
        refused(stream_of(table).replace(b"sunny", b"s\xffnny"))
    problem(site.client.post(f"{PATH}?explian=true", json={"records": [RECORD]}), 422)
    problem(site.client.get(PATH), 405)


@pytest.mark.parametrize(
    "reference", ["nothing", "weather@7", "weather@champ", "WEATHER", "..%2fweather", f"weather@{10**24}", "weather@²"]
)
def test_unknown_models_versions_and_aliases_are_not_found(site, reference):
    problem(site.client.post(f"/v1/models/{reference}/predict", json={"records": [RECORD]}), 404)


def test_request_ids_come_back_and_predictions_are_counted(site):
    given = site.client.post(PATH, json={"records": [RECORD]}, headers={"x-request-id": "tracing-42"})
    assert given.headers["x-request-id"] == "tracing-42"
    first, second = (site.client.post(PATH, json={"records": [RECORD]}).headers["x-request-id"] for _ in range(2))
    assert first != second
    metrics = site.client.get("/metrics").text
    assert 'fewpass_predicted_rows_total{model="weather"}' in metrics
    assert 'route="/v1/models/{name}/predict",status="200"' in metrics


def test_intervals_surround_the_probabilities_of_a_posterior_and_only_of_one(site):
    site.learn("sure", "kdb", estimator="hdp-map")
    path = "/v1/models/sure/predict?interval=0.9"
    answer = site.client.post(path, json={"records": [RECORD, {}]}).json()
    intervals, probabilities = np.array(answer["intervals"]), np.array(answer["probabilities"])
    assert intervals.shape == (2, 2, 2)
    assert np.all((intervals[..., 0] < probabilities) & (probabilities < intervals[..., 1]))
    table = site.table.drop_columns(["class"]).slice(0, 5)
    response = site.client.post(path, content=stream_of(table), headers={"content-type": ARROW})
    arrow = pa.ipc.open_stream(response.content).read_all()
    assert arrow.column_names[-4:] == ["low_no", "low_yes", "high_no", "high_yes"]
    for interval, words in (("0.9", "m-estimates"), *((wrong, "interval") for wrong in ("1.5", "0", "high", "nan"))):
        refused = site.client.post(PATH, params={"interval": interval}, json={"records": [RECORD]})
        assert words in problem(refused, 422)["detail"]


def test_trees_warn_of_columns_that_no_row_knows(site):
    site.learn("trees", "xgboost", rounds=5)
    path = "/v1/models/trees/predict"
    assert "warnings" not in site.client.post(path, json={"records": [RECORD]}).json()
    for body in ({"records": [{"windy": False}]}, {"columns": {"windy": [False], "outlook": ["hail"]}}):
        *unseen, warning = site.client.post(path, json=body).json()["warnings"]
        assert "XGBoost answers without columns 'humidity', 'outlook'" in warning
        assert len(unseen) == ("columns" in body)
    assert "warnings" not in site.client.post(PATH, json={"records": [{"windy": False}]}).json()


def test_values_that_training_never_had_are_named_where_no_row_has_another(site):
    words = "Column 'outlook' has only values that training never had, such as 'hail' (known: "
    hail = RECORD | {"outlook": "hail"}
    for body in ({"records": [hail]}, {"records": [hail, hail]}, {"columns": {"windy": [False], "outlook": ["hail"]}}):
        (warning,) = site.client.post(PATH, json=body).json()["warnings"]
        assert warning.startswith(words)
    table = pa.table({"outlook": ["hail", None]})
    answer = site.client.post(
        PATH, content=stream_of(table), headers={"content-type": ARROW, "accept": "application/json"}
    )
    assert answer.json()["warnings"][0].startswith(words)
    for body, headers in (
        (stream_of(table), {"content-type": ARROW}),
        (json.dumps({"records": [hail]}), {"accept": ARROW}),
    ):
        stream = site.client.post(PATH, content=body, headers={"content-type": "application/json"} | headers).content
        (warning,) = json.loads(pa.ipc.open_stream(stream).schema.metadata[b"warnings"])
        assert warning.startswith(words)
    known = site.client.post(PATH, content=stream_of(site.table.slice(0, 9)), headers={"content-type": ARROW}).content
    assert pa.ipc.open_stream(known).schema.metadata is None
    for body in ({"records": [RECORD, hail]}, {"records": [RECORD | {"outlook": None}]}):
        assert "warnings" not in site.client.post(PATH, json=body).json()


def train(settings, path, table):
    pq.write_table(table, path)
    with Workspace(settings) as workspace:
        learn(workspace, path, "whole", target="y", parameters={}, columns={"x": "nominal"}, holdout=0)


def predictions(client, values, columns, datatype):
    """What the model answers to the values by every way in."""
    bodies = [{"records": [{"x": value} for value in values]}, {"columns": {"x": values}}]
    answers = [
        *(client.post(WHOLE, json=body) for body in bodies),
        *(client.post(WHOLE, content=stream_of(pa.table({"x": x})), headers=ARROW_TO_JSON) for x in columns),
    ]
    tensor = {"name": "x", "shape": [len(values)], "datatype": datatype, "data": values}
    outputs = client.post("/v2/models/whole/infer", json={"inputs": [tensor]}).json()["outputs"]
    (of_tensor,) = (output["data"] for output in outputs if output["name"] == "prediction")
    return [*(answer.json()["predictions"] for answer in answers), list(map(int, of_tensor))]


def test_values_and_classes_at_the_limits_are_told_apart_by_every_way_in(tmp_path):
    whole = pa.array(LIMITS * 50)
    settings = Settings(workspace=tmp_path / "workspace", warm_up=False)
    train(settings, tmp_path / "whole.parquet", pa.table({"x": whole, "y": whole}))
    with TestClient(create_app(settings), base_url="http://127.0.0.1") as client:
        columns = [whole[:4], whole[:4].cast(pa.decimal128(38)), whole[:4].dictionary_encode()]
        assert predictions(client, LIMITS, columns, "INT64") == [LIMITS] * 6
        # 2^64 - 1 has the bits of -1: neither is known, and both get the same answer.
        beyond = client.post(WHOLE, json={"records": [{"x": 2**64 - 1}, {"x": -1}]}).json()["probabilities"]
        unsigned = stream_of(pa.table({"x": pa.array([2**64 - 1], pa.uint64())}))
        by_arrow = client.post(WHOLE, content=unsigned, headers=ARROW_TO_JSON).json()["probabilities"]
        assert beyond[0] == beyond[1] == by_arrow[0]
    table = pa.table({"x": pa.array([5, 2**64 - 1] * 50, pa.uint64()), "y": ["a", "b"] * 50})
    with pytest.raises(SchemaError, match=r"'x' holds uint64, and 18446744073709551615 is beyond"):
        train(settings, tmp_path / "beyond.parquet", table)


def test_a_nominal_moment_is_the_same_in_every_unit_and_text(tmp_path):
    moments = pa.array([0, 90, 86_400], pa.timestamp("s"))
    settings = Settings(workspace=tmp_path / "workspace", warm_up=False)
    train(settings, tmp_path / "times.parquet", pa.table({"x": pa.chunked_array([moments] * 30), "y": [0, 1, 2] * 30}))
    texts = ["1970-01-01", "1970-01-01 00:01:30.000", "1970-01-02T02:00+02:00"]
    columns = [moments.cast(pa.timestamp("ns", "UTC")), moments.cast(pa.timestamp("ms")), pa.array(texts)]
    with TestClient(create_app(settings), base_url="http://127.0.0.1") as client:
        assert predictions(client, texts, columns, "BYTES") == [[0, 1, 2]] * 6


def test_rows_later_than_training_are_said_of_one_row_and_of_many(site, tmp_path):
    pq.write_table(dated_rows(), tmp_path / "old.parquet")
    train = {"kind": "train", "uris": [str(tmp_path / "old.parquet")], "target": "y", "learner": "nb", "model": "dated"}
    assert run_job(site.client, train | {"columns": KEEP, "holdout": 0})["state"] == "succeeded"

    def warned(**body):
        return site.client.post("/v1/models/dated/predict", json=body).json().get("warnings")

    later, within = "2026-01-19T20:00:00", "2026-01-05T20:00:00"
    assert warned(records=[{"when": later, "a": "1"}]) == [WORDS]
    assert warned(records=[{"a": "1"}, {"when": "2026-02-01"}, {"when": later}]) == [WORDS]
    assert warned(columns={"when": [None, later], "a": ["1", "0"]}) == [WORDS]
    for records in ([{"when": within}], [{"when": later}, {"when": within}], [{"a": "1"}], [{"when": None}]):
        assert warned(records=records) is None
    assert warned(columns={"a": ["1", "0"]}) is None
