"""Rows without a class: left out, or of a class of their own."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learners import Source, infer_schema
from learners.errors import InvalidParameter, SchemaError
from learners.estimators import NB
from learners.passes.sources.null_class import with_classes
from learners.schema import Schema

N = 120
ROWS = pa.table({"x": ["u", "v", "w"] * (N // 3), "y": ["a", "b", None] * (N // 3)})
KNOWN = ROWS.filter(pa.compute.is_valid(ROWS["y"]))


def column(instead):
    return {"y": {"null_class": instead}}


@pytest.mark.parametrize("y", [ROWS["y"], ROWS["y"].dictionary_encode()])
def test_rows_without_a_class_are_left_out_or_have_one(y):
    table = ROWS.set_column(1, "y", y)
    model = NB(target="y", columns=column("drop")).fit(table)
    assert model.predict_proba(ROWS).tolist() == NB(target="y").fit(KNOWN).predict_proba(ROWS).tolist()
    model = NB(target="y", columns=column("unknown")).fit(table)
    filled = ROWS.set_column(1, "y", ROWS["y"].fill_null("unknown"))
    assert model.classes_.tolist() == ["a", "b", "unknown"]
    assert model.predict_proba(ROWS).tolist() == NB(target="y").fit(filled).predict_proba(ROWS).tolist()


def test_files_of_any_format_and_frames(tmp_path):
    pq.write_table(ROWS, tmp_path / "t.parquet", row_group_size=50)
    ROWS.to_pandas().to_csv(tmp_path / "t.csv", index=False)
    expected = NB(target="y").fit(KNOWN).predict_proba(ROWS).tolist()
    for given in (tmp_path / "t.parquet", tmp_path / "t.csv", ROWS.to_pandas()):
        assert NB(target="y", columns=column("drop")).fit(given).predict_proba(ROWS).tolist() == expected


def test_a_missing_number_is_a_null_class_and_its_class_is_of_the_columns_type():
    frame = pd.DataFrame({"x": ["u", "v", "w"] * 40, "y": [1.0, 2.0, np.nan] * 40})
    assert NB(target="y", columns=column("drop")).fit(frame).classes_.tolist() == [1, 2]
    assert NB(target="y", columns=column(9)).fit(frame).classes_.tolist() == [1, 2, 9]
    with pytest.raises(SchemaError, match=r"'y' holds double, and null_class='none' is none of these"):
        NB(target="y", columns=column("none")).fit(frame)


def test_the_error_names_the_option_and_wrong_ones_are_refused():
    with pytest.raises(SchemaError, match=r'"y": \{"null_class": "drop"\}\} leaves them out'):
        NB(target="y").fit(ROWS)
    for wrong in (True, "", 1.5):
        with pytest.raises(InvalidParameter, match=r"columns\['y'\].null_class"):
            NB(target="y", columns=column(wrong)).fit(ROWS)


def test_statistics_of_the_rows_are_not_taken_for_others(tmp_path):
    pq.write_table(ROWS, tmp_path / "t.parquet")
    source = Source.open(tmp_path / "t.parquet")
    parts = {with_classes(source, "y", column(instead)).files[0].part for instead in ("drop", "a", "b")}
    assert len(parts) == 3 and source.files[0].part == ()
    schema = infer_schema(source, "y", column("drop"))
    assert Schema.from_json(schema.to_json()).null_class == "drop"
    assert "null_class" not in json.loads(infer_schema(Source.of_table(KNOWN), "y").to_json())
