"""Large bodies are read piece by piece, as if they were read at once."""

from __future__ import annotations

import json

import msgspec
import pytest

from service.http.api.bodies.pieces import RECORDS, rows_in_pieces
from service.http.api.scoring.predict import PredictRequest
from service.requests.problems import BodyTooLarge

AT_ONCE = msgspec.json.Decoder(PredictRequest).decode
N = 2 * RECORDS + 7


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
    assert PredictRequest(*rows_in_pieces(body, 10**6)) == AT_ONCE(body)


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
        rows_in_pieces(body, 10**6)
    assert place in str(pieces.value) and str(pieces.value) == str(whole.value)


def test_too_many_records_are_refused_before_they_are_decoded():
    with pytest.raises(BodyTooLarge, match="3 rows in one request; the limit is 2"):
        rows_in_pieces(b'{"records": [{}, {}, [["no record"]]]}', 2)
