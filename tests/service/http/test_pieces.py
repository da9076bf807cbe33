"""Large bodies are read piece by piece, as if they were read at once."""

import json

import msgspec
import numpy as np
import pytest

from service.http.api.bodies import RECORDS, WHOLE_BYTES, row_reader
from service.http.api.scoring.invocations import InvocationRequest
from service.http.api.scoring.predict import PredictRequest
from service.http.api.scoring.score_impute import ImputeRequest
from service.requests.problems import BodyTooLarge
from service.serving import class_answers

AT_ONCE = msgspec.json.Decoder(PredictRequest).decode
N = 2 * RECORDS + 7


def in_pieces(body, max_rows=10**6):
    return row_reader(PredictRequest, max_rows)(body + b" " * WHOLE_BYTES)


@pytest.mark.parametrize(
    "told",
    [
        {"records": [{"a": i, "b": 'é,"{[x'} for i in range(N)]},
        {"records": []},
        {"columns": {"a": [None, 1.5, True] * N, "b,": ["x"]}},
        {"columns": {}},
        {},
    ],
)
def test_pieces_give_what_the_whole_does(told):
    body = json.dumps(told).encode()
    assert in_pieces(body) == AT_ONCE(body)


@pytest.mark.parametrize(
    ("told", "place"),
    [
        ({"records": [{"a": 1}] * (N - 1) + [{"a": [1]}]}, f"$.records[{N - 1}][...]"),
        ({"records": [{"a": 1}] * (N - 1) + [3]}, f"$.records[{N - 1}]"),
        ({"columns": {"a": [1, 2, {}]}}, "$.columns[...][2]"),
        ({"columns": {"a": 3}}, "$.columns[...]"),
        ({"records": 3}, "$.records"),
        ({"rows": 3}, "unknown field `rows`"),
    ],
)
def test_a_wrong_value_is_named_by_its_place_in_the_body(told, place):
    body = json.dumps(told).encode()
    with pytest.raises(msgspec.ValidationError) as whole:
        AT_ONCE(body)
    with pytest.raises(msgspec.ValidationError) as pieces:
        in_pieces(body)
    assert place in str(pieces.value) and str(pieces.value) == str(whole.value)


def test_too_many_records_are_refused_before_they_are_decoded():
    with pytest.raises(BodyTooLarge, match="3 rows in one request; the limit is 2"):
        in_pieces(b'{"records": [{}, {}, [["no record"]]]}', 2)


@pytest.mark.parametrize(
    "told",
    [
        {"dataframe_records": [{"a": i} for i in range(N)]},
        {"dataframe_split": {"columns": ["a", "b"], "data": [[i, "x"] for i in range(N)], "index": [1]}},
        {"inputs": {"a": [1, None], "b": "x"}},
        {"instances": [{"a": 1}], "params": {"x": [1]}},
    ],
)
def test_so_are_the_forms_of_mlflow(told):
    body = json.dumps(told).encode()
    long = row_reader(InvocationRequest, 10**6)(body + b" " * WHOLE_BYTES)
    short = row_reader(InvocationRequest, 10**6)(body)
    if short.dataframe_split is not None:
        short.dataframe_split.index = long.dataframe_split.index = None  # which nobody reads
    assert long == short


def test_what_a_request_asks_besides_its_rows_is_read_as_well():
    body = b'{"records": [{"a": 1}], "how": "draw", "draws": 3}' + b" " * WHOLE_BYTES
    assert row_reader(ImputeRequest, 9)(body) == ImputeRequest(records=[{"a": 1}], how="draw", draws=3)
    with pytest.raises(msgspec.ValidationError, match="draws"):
        row_reader(ImputeRequest, 9)(body.replace(b'"draws": 3', b'"draws": 0'))


@pytest.mark.parametrize("rows", [np.arange(24.0).reshape(12, 2), np.empty((0, 2)), [{"a": None}] * 5, []])
def test_an_answer_in_pieces_is_the_answer(monkeypatch, rows):
    monkeypatch.setattr(class_answers, "ROWS_AT_A_TIME", 5)
    assert json.loads(msgspec.json.encode(class_answers.rows_in_json(rows))) == (
        rows if isinstance(rows, list) else rows.tolist()
    )
