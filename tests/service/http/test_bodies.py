"""What a body will hold is known before it is decoded: bombs are refused, and what is within the limits is read; large ones piece by piece, as if at once."""

import contextlib
import json
import struct
import threading
import tracemalloc

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from service.http.api.arrow_streams import QuickStreams, read_arrow_stream
from service.http.api.bodies import RECORDS, WHOLE_BYTES, Hold, InFlight, check_csv_body_size, row_body_decoder
from service.http.api.json_bodies import check_json_size
from service.http.api.scoring.invocations import InvocationRequest
from service.http.api.scoring.open_inference import check_inference_body_size, read_infer_request
from service.http.api.scoring.predict import ARROW, PredictRequest
from service.http.api.scoring.score_impute import ImputeRequest
from service.http.app import create_app
from service.requests import first_findings
from service.requests.problems import BodyTooLarge, MalformedBody, Overloaded, UnsupportedMediaType
from service.serving import class_answers
from service.settings import Settings
from service.workspace import Workspace
from tests.service.asking import learn
from tests.support.http import stream_of

MEBIBYTE = 1 << 20
PREDICT, JSON = "/v1/models/weather/predict", {"content-type": "application/json"}
ZEROS = pa.RecordBatch.from_pydict({"a": np.zeros(MEBIBYTE)})
EMPTY = "[" + "[]," * 60_000 + "[]]"
EMPTY_RECORDS = "[" + "{}," * 100_000 + "{}]"
MANY = "{" + ",".join(f'"c{i}":[[]]' for i in range(60_000)) + "}"
TRAIN = '{"kind": "train", "model": "m", "learner": "nb", "uris": '
AT_ONCE = msgspec.json.Decoder(PredictRequest).decode
N = 2 * RECORDS + 7


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
@pytest.mark.parametrize("is_dictionary", [False, True])
@pytest.mark.parametrize("is_legacy", [False, True])
def test_a_compressed_stream_is_refused_before_anything_of_it_is_decompressed(compression, is_dictionary, is_legacy):
    batch = ZEROS
    if is_dictionary:
        batch = pa.RecordBatch.from_pydict({"a": pa.array(["x" * 1000, "y"] * 50).dictionary_encode()})
    body = stream_of(*[batch] * 8, compression=compression, use_legacy_format=is_legacy)
    before = pa.total_allocated_bytes()
    with pytest.raises(UnsupportedMediaType, match="Send it without compression"):
        read_arrow_stream(body, 1 << 30, MEBIBYTE)
    assert pa.total_allocated_bytes() == before
    plain = stream_of(*[batch] * 8, use_legacy_format=is_legacy)
    assert read_arrow_stream(plain, 1 << 30, 65 * MEBIBYTE).num_rows == 8 * batch.num_rows
    with pytest.raises(BodyTooLarge, match="rows in one request; the limit is 5"):
        read_arrow_stream(plain, 5, 65 * MEBIBYTE)


def test_bytes_that_several_columns_show_are_counted_for_each():
    numbers = pa.array(np.zeros(1000))
    batch = pa.RecordBatch.from_arrays([numbers] * 200, names=[f"c{i}" for i in range(200)])
    with pytest.raises(BodyTooLarge, match="would take 1,600,000 bytes; the limit is"):
        read_arrow_stream(stream_of(batch), 1000, MEBIBYTE)


def test_views_of_the_same_bytes_are_counted_as_often_as_they_are_shown():
    text = "x" * 100_000
    views = struct.pack("<i4sii", len(text), b"xxxx", 0, 0) * 1_000
    buffers = [None, pa.py_buffer(views), pa.py_buffer(text.encode())]
    batch = pa.RecordBatch.from_arrays([pa.Array.from_buffers(pa.string_view(), 1_000, buffers)], names=["a"])
    body = stream_of(batch)
    assert QuickStreams().read(body) is None
    with pytest.raises(BodyTooLarge, match="would take 100,000,000 bytes"):
        read_arrow_stream(body, 1_000, MEBIBYTE)


@given(st.integers(0, 2**32), st.integers(0, 255), st.sampled_from([None, "zstd"]))
def test_a_spoiled_stream_is_refused_or_holds_what_was_told(place, value, compression):
    batch = pa.RecordBatch.from_pydict({"a": ["x", None, "y"] * 9, "b": np.arange(27.0)})
    body = bytearray(stream_of(batch, compression=compression))
    body[place % len(body)] = value
    try:
        table = read_arrow_stream(bytes(body), 100, MEBIBYTE)
    except (MalformedBody, BodyTooLarge, UnsupportedMediaType):
        return
    assert table.nbytes <= MEBIBYTE


@contextlib.contextmanager
def peak_memory():
    """Bytes that were taken within at the end and at most, once it is left."""
    taken = []
    tracemalloc.start()
    try:
        yield taken
        taken += tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()


def test_json_and_csv_are_measured_by_their_punctuation():
    rows = json.dumps({"records": [{"a": 1, "b": "x"}] * 1_000}).encode()
    assert check_json_size(rows, MEBIBYTE) < MEBIBYTE
    with pytest.raises(BodyTooLarge, match="the limit is 1,048,576"):
        check_json_size(rows * 20, MEBIBYTE)
    one = json.dumps({"records": [{f"k{i}": 1 for i in range(140_000)}]}).encode()
    with pytest.raises(BodyTooLarge, match="more than 65,536 members"):
        check_json_size(one, 1 << 30)
    columns = json.dumps({"columns": {f"c{i}": [1] * 1_000 for i in range(100)}}).encode()
    with peak_memory() as taken:
        decoded = json.loads(columns)
    assert decoded and taken[0] <= check_json_size(columns, 1 << 30) <= 8 * taken[0]
    with pytest.raises(BodyTooLarge, match="the limit is 1,048,576"):
        check_csv_body_size(b"1,1\n" * 100_000, MEBIBYTE)


VALUES = """[] {} [[]] [1.5] {"a":1} {"a":12345678901} {"a":[]} [{"a":{}}] 123456789 "ab" "é" """


@pytest.mark.parametrize("value", [*VALUES.split(), f'"{"a" * 99}😀"', r'"\ud83d\ude00"'])
def test_what_json_holds_is_never_told_too_low(value):
    body = f"[{','.join([value] * 20_000)}]".encode()
    with peak_memory() as taken:
        decoded = json.loads(body)
    assert decoded and taken[0] <= check_json_size(body, 1 << 30)


def test_a_body_of_the_control_plane_has_a_number_of_values_that_is_read_at_once(tmp_path):
    body = b'{"columns": [' + b"[]," * 600_000 + b"[]]}"
    with TestClient(create_app(Settings(workspace=tmp_path, warm_up=False)), base_url="http://localhost") as client:
        for path in ("jobs", *(f"models/m/{kind}" for kind in ("whatif", "query", "labels"))):
            answer = client.post(f"/v1/{path}", content=body, headers=JSON)
            assert answer.status_code == 413, answer.text
            assert "the limit is 500,000. Send fewer at once" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("models/weather/predict", '{"columns": {"outlook": ' + EMPTY + "}}"),
        ("models/weather/predict", '{"records": ' + EMPTY_RECORDS + "}"),
        ("models/weather/score", '{"columns": {"outlook": ' + EMPTY + "}}"),
        ("models/weather/score", '{"records": ' + EMPTY_RECORDS + "}"),
        ("models/weather/impute", '{"columns": ' + MANY + "}"),
        ("models/weather/labels", '{"labels": ' + EMPTY + "}"),
        ("models/weather/whatif", '{"evidence": {"outlook": ' + EMPTY + "}}"),
        ("models/weather/whatif", '{"evidence": ' + MANY + "}"),
        ("models/weather/query", '{"queries": [{"kind": "map", "evidence": ' + MANY + "}]}"),
        ("models/weather/query", '{"queries": [{"kind": "conditional", "variables": ' + EMPTY + "}]}"),
        ("jobs", TRAIN + EMPTY + "}"),
        ("jobs", TRAIN + '["a"], "columns": ' + MANY + "}"),
        ("webhooks", '{"url": "https://example.com", "models": ' + EMPTY + "}"),
    ],
    ids=lambda text: text[:40],
)
def test_a_request_grows_its_process_by_less_than_its_limit(large, path, body):
    """Whatever is wrong with it: to tell of each wrong value took gigabytes, and half a minute in which nobody else was answered."""
    with peak_memory() as taken:
        answer = large.post(f"/v1/{path}", content=body.encode(), headers=JSON)
    assert answer.status_code in (413, 422), answer.text[:300]
    assert taken[1] < 64 * MEBIBYTE and len(answer.content) < 300_000


@pytest.mark.parametrize("rows", [{"records": [{"outlook": "rain"}] * 3}, {"columns": {"outlook": ["rain", None]}}])
def test_a_body_that_is_read_in_pieces_has_the_same_answer(large, rows):
    body = json.dumps(rows).encode()
    short, long = (large.post(PREDICT, content=each, headers=JSON) for each in (body, body + b" " * WHOLE_BYTES))
    assert short.status_code == 200 and short.content == long.content


def test_a_binary_tensor_is_read_as_far_as_its_rows_go():
    tensor = {"name": "a", "shape": [2], "datatype": "INT8", "parameters": {"binary_data_size": 2_000_000}}
    header = json.dumps({"inputs": [tensor]}).encode()
    body, length = header + bytes(2_000_000), str(len(header)).encode()
    with pytest.raises(BodyTooLarge, match="the limit is 1,048,576"):
        check_inference_body_size(body, length, MEBIBYTE)
    with peak_memory() as taken, pytest.raises(Exception, match="has 3 values, but its shape"):
        read_infer_request(body, length, 10)
    assert taken[1] < 3_000_000, "a copy of the bytes, and no list of two million numbers"


@pytest.mark.parametrize("size", [10, 100_000])
@pytest.mark.parametrize(
    "wrong", [b'{"model": "\xff', b'{"seed": 9', b'{"seed": '], ids=["not UTF-8", "digits", "not JSON"]
)
def test_a_large_body_that_cannot_be_read_is_refused_as_a_small_one(large, wrong, size):
    filling = b" " if wrong.endswith(b" ") else wrong[-1:]
    end = b'"}' if b"model" in wrong else b"}"
    answer = large.post("/v1/jobs", content=wrong + filling * size + end, headers=JSON)
    assert answer.status_code in (400, 422), answer.text


def test_a_large_body_is_checked_on_a_thread_and_a_small_one_on_the_loop(large, monkeypatch):
    """By the name of the thread in which the shape of the request looks at its members; it is of the loop where FastAPI does."""
    threads, is_deeper = [], first_findings.is_nested_deeper

    def is_nested_deeper(members):
        threads.append(threading.current_thread().name)
        return is_deeper(members)

    monkeypatch.setattr(first_findings, "is_nested_deeper", is_nested_deeper)
    for n_labels, wrong, code in (
        (3, {}, 404),
        (5000, {}, 404),
        (5000, {"label": None}, 422),
        (3, {"label": None}, 422),
    ):
        threads.clear()
        labels = [{"key": f"o{i}", "label": "no"} for i in range(n_labels)]
        labels[-1] |= wrong
        answer = large.post("/v1/models/nobody/labels", json={"labels": labels})
        assert answer.status_code == code, answer.text
        assert len(threads) > n_labels
        is_elsewhere = {"worker" in name for name in threads}
        assert is_elsewhere == {n_labels > 3}, set(threads)
        if wrong:
            assert f"labels.{n_labels - 1}.label" in answer.json()["detail"]


def test_requests_together_hold_no_more_than_they_may():
    in_flight = InFlight(100)
    with Hold(in_flight) as first:
        first.add(60)
        with Hold(in_flight) as second:
            second.add(40)
            with pytest.raises(Overloaded, match="hold 100 bytes; 1 more would exceed the limit of 100"):
                second.add(1)
        assert in_flight.n_bytes == 60
    assert in_flight.n_bytes == 0


@pytest.fixture(scope="module")
def client(tmp_path_factory, weather_files):
    yield from opened_with(tmp_path_factory.mktemp("bombs"), weather_files, 2 * MEBIBYTE)


@pytest.fixture(scope="module")
def large(tmp_path_factory, weather_files):
    yield from opened_with(tmp_path_factory.mktemp("large"), weather_files, 64 * MEBIBYTE)


def opened_with(folder, weather_files, max_decoded_bytes):
    limits = {"max_decoded_bytes": max_decoded_bytes, "max_in_flight_bytes": 2 * max_decoded_bytes}
    settings = Settings(workspace=folder / "workspace", job_workers=0, warm_up=False, **limits)
    with Workspace(settings) as workspace:
        learn(workspace, weather_files[0])
    with TestClient(create_app(settings), base_url="http://localhost") as opened:
        yield opened


@pytest.mark.parametrize("path", [PREDICT, "/v1/models/weather/explain"])
def test_a_server_answers_bombs_with_415_and_413(client, path):
    answer = client.post(path, content=stream_of(ZEROS, compression="zstd"), headers={"content-type": ARROW})
    assert answer.status_code == 415 and "Send it without compression" in answer.json()["detail"]
    tensor = {"name": "outlook", "shape": [9], "datatype": "BYTES", "data": ["x"] * 99_000}
    for other, body in (
        (path, {"records": [{"outlook": "rain"}] * 15_000}),
        ("/v2/models/weather/infer", {"inputs": [tensor]}),
        ("/v1/datasets", {"name": "x", "uris": ["x"] * 99_000}),
    ):
        answer = client.post(other, json=body)
        assert answer.status_code == 413 and answer.json()["max_decoded_bytes"] == 2 * MEBIBYTE
    assert client.post(path, json={"records": [{"outlook": "rain"}]}).status_code == 200


def test_a_server_that_holds_enough_says_so(client):
    in_flight, many = client.app.predict.in_flight, {"records": [{"outlook": "rain"}] * 4_000}
    with Hold(in_flight) as others:
        others.add(4 * MEBIBYTE)
        answer = client.post(PREDICT, json=many)
        assert answer.status_code == 503 and answer.json()["title"] == "Overloaded"
        assert answer.headers["retry-after"]
        assert client.post(PREDICT, json={"records": [{"outlook": "rain"}]}).status_code == 200
    assert in_flight.n_bytes == 0
    assert client.post(PREDICT, json=many).status_code == 200


def in_pieces(body, max_rows=10**6, kind=PredictRequest):
    return row_body_decoder(kind, max_rows)(body + b" " * WHOLE_BYTES)


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        (PredictRequest, {"records": [{"a": i, "b": 'é,"{[x'} for i in range(N)]}),
        (PredictRequest, {"records": []}),
        (PredictRequest, {"columns": {"a": [None, 1.5, True] * N, "b,": ["x"]}}),
        (PredictRequest, {"columns": {}}),
        (PredictRequest, {}),
        (InvocationRequest, {"dataframe_records": [{"a": i} for i in range(N)]}),
        (InvocationRequest, {"dataframe_split": {"columns": ["a"], "data": [[i] for i in range(N)], "index": [1]}}),
        (InvocationRequest, {"inputs": {"a": [1, None], "b": "x"}}),
        (InvocationRequest, {"instances": [{"a": 1}], "params": {"x": [1]}}),
    ],
)
def test_pieces_give_what_the_whole_does(kind, rows):
    body = json.dumps(rows).encode()
    found, whole = in_pieces(body, kind=kind), msgspec.json.decode(body, type=kind)
    if kind is InvocationRequest and whole.dataframe_split is not None:
        found.dataframe_split.index = whole.dataframe_split.index = None  # which nobody reads
    assert found == whole


@pytest.mark.parametrize(
    ("rows", "place"),
    [
        ({"records": [{"a": 1}] * (N - 1) + [{"a": [1]}]}, f"$.records[{N - 1}][...]"),
        ({"records": [{"a": 1}] * (N - 1) + [3]}, f"$.records[{N - 1}]"),
        ({"columns": {"a": [1, 2, {}]}}, "$.columns[...][2]"),
        ({"columns": {"a": 3}}, "$.columns[...]"),
        ({"records": 3}, "$.records"),
        ({"rows": 3}, "unknown field `rows`"),
    ],
)
def test_a_wrong_value_is_named_by_its_place_in_the_body(rows, place):
    body = json.dumps(rows).encode()
    with pytest.raises(msgspec.ValidationError) as whole:
        AT_ONCE(body)
    with pytest.raises(msgspec.ValidationError) as pieces:
        in_pieces(body)
    assert place in str(pieces.value) and str(pieces.value) == str(whole.value)


def test_too_many_records_are_refused_before_they_are_decoded():
    with pytest.raises(BodyTooLarge, match="3 rows in one request; the limit is 2"):
        in_pieces(b'{"records": [{}, {}, [["no record"]]]}', 2)


def test_what_a_request_asks_besides_its_rows_is_read_as_well():
    body = b'{"records": [{"a": 1}], "how": "draw", "draws": 3}'
    assert in_pieces(body, 9, ImputeRequest) == ImputeRequest(records=[{"a": 1}], how="draw", draws=3)
    with pytest.raises(msgspec.ValidationError, match="draws"):
        in_pieces(body.replace(b'"draws": 3', b'"draws": 0'), 9, ImputeRequest)


@pytest.mark.parametrize("rows", [np.arange(24.0).reshape(12, 2), np.empty((0, 2)), [{"a": None}] * 5, []])
def test_an_answer_in_pieces_is_the_answer(monkeypatch, rows):
    monkeypatch.setattr(class_answers, "ROWS_AT_A_TIME", 5)
    answer = json.loads(msgspec.json.encode(class_answers.encode_json_rows(rows)))
    assert answer == (rows if isinstance(rows, list) else rows.tolist())
