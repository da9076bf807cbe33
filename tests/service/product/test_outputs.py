"""Rows written to files by the name of the output."""

import datetime
import decimal

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from service.product.outputs import RowWriter
from service.requests.problems import InvalidRequest

BATCH = pa.record_batch(
    {
        "text": pa.array(['a "b"\n,', None, ""]).dictionary_encode(),
        "price": pa.array([decimal.Decimal("1.10"), None, decimal.Decimal("2.00")]),
        "day": pa.array([datetime.date(2026, 1, 31), None, datetime.date(1969, 1, 1)]),
        "p": [0.1, 1 / 3, 1e-300],
        "large": pa.array([2**63 - 1, -1, None]),
    }
)


@pytest.mark.parametrize("name", ["o.csv", "o.CSV", "o.parquet", "o"])
def test_rows_come_back_as_they_were_written(name, tmp_path):
    with RowWriter(tmp_path / "draft", tmp_path / name) as writer:
        writer.write(BATCH)
        writer.write(BATCH.slice(1))
    if not name.lower().endswith(".csv"):
        read = pq.read_table(tmp_path / "draft")
    else:
        types = {field.name: field.type for field in BATCH.schema} | {"text": pa.string()}
        options = pacsv.ConvertOptions(column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False)
        parsed = pacsv.ParseOptions(newlines_in_values=True)
        read = pacsv.read_csv(tmp_path / "draft", parse_options=parsed, convert_options=options)
    assert read.to_pylist() == [*BATCH.to_pylist(), *BATCH.slice(1).to_pylist()]


def test_lists_do_not_fit_in_csv(tmp_path):
    with (
        pytest.raises(InvalidRequest, match=r"CSV cannot hold these rows \(.*list.*\)\. Name the output \.parquet"),
        RowWriter(tmp_path / "draft", "o.csv") as writer,
    ):
        writer.write(pa.record_batch({"top": [["a", "b"]]}))


def test_cells_that_a_spreadsheet_would_run_are_written_as_they_are(tmp_path):
    """Programs read these files: docs/how-to/security.md says how people import them."""
    cells = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "=cmd|' /C calc'!A0"]
    with RowWriter(tmp_path / "draft", "o.csv") as writer:
        writer.write(pa.record_batch({"a": cells, "=b": cells}))
    options = pacsv.ConvertOptions(column_types={"a": pa.string(), "=b": pa.string()})
    assert pacsv.read_csv(tmp_path / "draft", convert_options=options).to_pydict() == {"a": cells, "=b": cells}
