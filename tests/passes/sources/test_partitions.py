"""Columns in the names of folders."""

import datetime

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

from learners import NB
from learners.errors import SourceError
from learners.passes.sources.row_filter import window
from learners.passes.sources.source import Source, file_identity, type_family


@pytest.fixture
def table():
    rng = np.random.default_rng(9)
    y = rng.integers(0, 2, 600)
    day = [datetime.date(2026, 1, 1) + datetime.timedelta(days=int(d) % 5) for d in rng.integers(0, 3, 600) + y]
    region = np.array(["north", "south & east"])[(rng.random(600) < 0.2 + 0.6 * y).astype(int)]
    return pa.table(
        {"size": rng.normal(y, 1.0), "class": np.array(["no", "yes"])[y], "day": day, "region": region, "number": y + 1}
    )


def by_pyarrow(table, folder):
    schema = pa.schema([(name, table.schema.field(name).type) for name in ("day", "region")])
    pads.write_dataset(table, folder, format="parquet", partitioning=pads.partitioning(schema, flavor="hive"))


WRITERS = {
    "pyarrow": by_pyarrow,
    "duckdb": lambda table, folder: duckdb.sql(
        f"COPY (SELECT * FROM \"table\") TO '{folder}' (FORMAT parquet, PARTITION_BY (day, region))"
    ),
    "polars": lambda table, folder: pl.from_arrow(table).write_parquet(folder, partition_by=["day", "region"]),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_partitioned_table_has_the_columns_of_its_folders(writer, table, tmp_path):
    WRITERS[writer](table, tmp_path / "set")
    for named in (tmp_path / "set", tmp_path / "set" / "*" / "*" / "*.parquet", tmp_path / "set" / "day=*" / "*" / "*"):
        source = Source.open(named)
        assert source.n_rows == 600
        assert source.arrow_schema.field("day").type == pa.date32()
        assert type_family(source.arrow_schema.field("region").type) == "text"
        read = pa.Table.from_batches(list(source.batches(["size", "day", "region"])))
        expected = table.select(["size", "day", "region"])
        key = [("size", "ascending")]
        assert read.sort_by(key).to_pylist() == expected.sort_by(key).to_pylist()
    model = NB(m=1.0).fit(tmp_path / "set", "class")
    assert [attribute.name for attribute in model.model_.schema.attributes if attribute.name in ("day", "region")]
    expected = NB(m=1.0).fit(table, "class")
    assert np.array_equal(model.predict_proba(table), expected.predict_proba(table))


def test_one_file_knows_its_folders_too(table, tmp_path):
    WRITERS["pyarrow"](table, tmp_path)
    path = next((tmp_path / "day=2026-01-02").rglob("*.parquet"))
    (batch,) = Source.open(path).batches(["day"])
    assert batch.column(0).to_pylist() == [datetime.date(2026, 1, 2)] * batch.num_rows


@pytest.mark.parametrize(
    ("folders", "kind", "values"),
    [
        (["month=1", "month=12"], pa.int64(), [1, 12]),
        (["month=01", "month=12"], pa.string(), ["01", "12"]),
        (["month=01", "month=none"], pa.string(), ["01", "none"]),
        (["month=1", "month=__HIVE_DEFAULT_PARTITION__"], pa.int64(), [1, None]),
        (["rate=0.5", "rate=1"], pa.float64(), [0.5, 1.0]),
        (["town=S%C3%A3o%20Paulo", "town=a%2Fb"], pa.string(), ["São Paulo", "a/b"]),
        (["flag=true", "flag=false"], pa.bool_(), [True, False]),
        (["k=a=b", "k==c"], pa.string(), ["a=b", "=c"]),
        (["k=%FF", "k=%FE"], pa.string(), ["%FF", "%FE"]),  # no UTF-8: not both the same mark
        (["price$=1", "price$=2"], pa.int64(), [1, 2]),
    ],
)
def test_values_of_folders_have_one_type(folders, kind, values, tmp_path):
    for folder in folders:
        (tmp_path / folder).mkdir()
        pq.write_table(pa.table({"a": [1, 2]}), tmp_path / folder / "part.parquet")
    source = Source.open([tmp_path / folder for folder in folders])
    name = folders[0].partition("=")[0]
    assert source.arrow_schema.field(name).type == kind
    assert [batch.column(0)[0].as_py() for batch in source.batches([name])] == values


def test_only_the_folders_right_above_the_files_are_columns(tmp_path):
    folder = tmp_path / "run=5" / "tables" / "day=2026-01-01"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"a": [1, 2]}), folder / "part.parquet")
    assert Source.open(folder / "part.parquet").arrow_schema.names == ["a", "day"]


def test_a_column_of_the_file_goes_before_that_of_the_folder(tmp_path):
    (tmp_path / "a=7").mkdir()
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "a=7" / "part.parquet")
    (batch,) = Source.open(tmp_path).batches()
    assert batch.to_pydict() == {"a": [1, 2]}


def test_files_outside_the_folders_are_refused(tmp_path):
    (tmp_path / "day=2026-01-01").mkdir()
    for path in (tmp_path / "day=2026-01-01" / "part.parquet", tmp_path / "part.parquet"):
        pq.write_table(pa.table({"a": [1, 2]}), path)
    with pytest.raises(SourceError, match=r"part.parquet: has no column 'day', and lies in no folder day="):
        Source.open(tmp_path)


def test_equal_files_of_different_days_are_different_files(tmp_path):
    """Statistics and rules of forgotten rows know files by their content, of which the folder is a part."""
    for day in ("2026-01-01", "2026-01-02"):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(pa.table({"a": [1, 2]}), tmp_path / f"day={day}" / "part.parquet")
    one, other = Source.open(tmp_path).files
    assert one.footer_sha256 != other.footer_sha256
    before = file_identity(one)
    (tmp_path / "day=unknown").mkdir()
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "day=unknown" / "part.parquet")
    assert file_identity(Source.open(tmp_path).files[0]) != before, "the day is text now, and was a date"


def test_a_window_follows_the_folders(table, tmp_path, monkeypatch):
    WRITERS["pyarrow"](table, tmp_path)
    source = Source.open(tmp_path)
    monkeypatch.setattr(Source, "read", lambda *_: pytest.fail("the folder tells its day"))
    chosen = window(source, "2d", "day")
    days = {source.files[index].path.split("day=")[1][:10] for index in chosen.wanted}
    assert days == {"2026-01-03", "2026-01-04"}


def test_csv_in_folders(tmp_path):
    for day, town in (("2026-01-01", "bern"), ("2026-01-02", "kiel")):
        (tmp_path / f"day={day}").mkdir()
        (tmp_path / f"day={day}" / "part.csv").write_text(f"town,n\n{town},1\n")
    (first, second) = (batch.to_pylist()[0] for batch in Source.open(tmp_path).batches())
    assert first == {"town": "bern", "n": 1, "day": datetime.date(2026, 1, 1)}
    assert second["town"] == "kiel"
