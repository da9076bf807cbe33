"""Delta Lake: the rows of a snapshot and no others, as delta-rs tells them."""

import datetime
import json
import shutil
import sys
from dataclasses import replace
from urllib.parse import unquote

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from learners.errors import SourceError
from learners.passes.sources.guarded_files import LOCAL
from learners.passes.sources.lake.delta import delta_file_rewrites, read_delta_snapshot
from learners.passes.sources.source import Source
from tests.lake_tables import WrittenTable
from tests.support.passes import rows_of

ROWS = pa.table({"day": ["a b", "c%d", None, "a b"], "x": [1, 2, 3, 4], "y": ["n", "y", "n", "y"]})


def told_by_delta(path, version=None):
    found = QueryBuilder().register("t", DeltaTable(path, version=version)).execute("SELECT * FROM t")
    return sorted(pa.table(found).to_pylist(), key=str)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Versions: 0 four rows, 1 eight, 2 without two of them, 3 with one more column, 4 compacted."""
    path = str(tmp_path_factory.mktemp("delta") / "table")
    write_deltalake(path, ROWS, partition_by=["day"])
    write_deltalake(path, ROWS, mode="append")
    DeltaTable(path).delete("x = 4")
    write_deltalake(path, ROWS.append_column("z", pa.array([1.5] * 4)), mode="append", schema_mode="merge")
    DeltaTable(path).optimize.compact()
    return path


@pytest.mark.parametrize("version", range(5))
def test_a_version_has_its_rows(table, version):
    found = Source.open(f"delta://{table}@{version}")
    assert rows_of(found) == told_by_delta(table, version)
    assert found.arrow_schema.names == pa.schema(DeltaTable(table, version=version).schema().to_arrow()).names
    assert found.snapshot.version == str(version)
    assert sum(batch.num_rows for batch in found.batches([])) == found.n_rows, "rows without columns are counted"


def test_a_folder_with_a_log_is_its_newest_version_in_any_store(table):
    assert rows_of(Source.open(table)) == told_by_delta(table)
    assert rows_of(Source.open(table, at="2")) == told_by_delta(table, 2)
    now = datetime.datetime.now(datetime.UTC)
    assert Source.open(table, at=now.isoformat()).snapshot.version == "4"
    fsspec.filesystem("memory").put(table, "/lake/table", recursive=True)
    assert rows_of(Source.open("memory://lake/table", at="2")) == told_by_delta(table, 2)
    assert rows_of(Source.open("delta://memory://lake/table@3")) == told_by_delta(table, 3)


@pytest.mark.parametrize(
    ("uris", "at", "words"),
    [
        ("{}", "9", "has no version 9: its newest is 4"),
        ("{}", "2001-01-01", "has no version of 2001-01-01T00:00:00.* the first that its log holds is 0"),
        ("{}", "soon", "has no version 'soon'. Give a number, or a time"),
        ("delta://{}@2", "3", "names version 2, but version 3 was requested"),
        ("{}/day=*/*.parquet", None, "lies in the Delta Lake table .*/table, whose log decides which rows are valid"),
        ("{}/day=a%20b", None, "lies in the Delta Lake table .*/table, whose log decides which rows are valid"),
        ("{}/..", None, "holds the Delta Lake table .*/table. Name only that table"),
        ("delta://{}/_delta_log", None, "is not a Delta Lake table"),
        ("iceberg://{}", None, "is not an Iceberg table"),
    ],
)
def test_what_is_no_snapshot_is_refused(table, uris, at, words):
    with pytest.raises(SourceError, match=words):
        Source.open(uris.format(table), at=at)


def test_a_table_is_named_by_itself(table, tmp_path):
    pq.write_table(ROWS, tmp_path / "more.parquet")
    more = str(tmp_path / "more.parquet")
    for uris, at, words in (
        ([more, f"delta://{table}@1"], None, "name only the lake table, without other paths"),
        ([more, table], None, "Name only that table"),
        (DeltaTable(table).file_uris(), None, "lies in the Delta Lake table"),  # as a shell expands table/*.parquet
        (more, "3", "is not a Delta Lake or Iceberg table, so it has no version 3"),
    ):
        with pytest.raises(SourceError, match=words):
            Source.open(uris, at=at)


def test_versions_and_files_that_are_no_longer_there_are_named(tmp_path):
    for _ in range(3):
        write_deltalake(tmp_path, ROWS, mode="append")
    DeltaTable(tmp_path).create_checkpoint()
    for number in range(2):
        (tmp_path / "_delta_log" / f"{number:020}.json").unlink()
    assert Source.open(tmp_path).n_rows == 12
    with pytest.raises(SourceError, match=r"no longer has version 1: its log begins with version 2\."):
        Source.open(tmp_path, at="1")
    next(tmp_path.glob("*.parquet")).unlink()
    with pytest.raises(SourceError, match=r"\.parquet does not exist\. If it was deleted"):
        Source.open(tmp_path)


def test_without_the_library_a_table_is_refused(table, monkeypatch):
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(SourceError, match=r"is a Delta Lake table, which .*pip install 'fewpass\[lake\]'"):
        Source.open(table)


@pytest.fixture
def written(tmp_path):
    """Renamed columns and a partition that only the log has; a file whose name is percent-encoded."""
    schema = pa.schema([("x y", pa.int64()), ("y", pa.string()), ("day", pa.date32())])
    table = WrittenTable(tmp_path / "table", schema, "day")
    rows = pa.table({"x y": pa.array(range(200)), "y": ["n", "y"] * 100})
    table.append("a%20b.parquet", rows, "2026-01-02")
    table.append("c.parquet", rows.slice(0, 70), None)
    pq.write_table(rows, table.root / "stray.parquet")
    return table


@pytest.mark.parametrize("deleted", [[0], [63, 64, 199], list(range(128)), list(range(1, 200))])
def test_deleted_rows_are_left_out(written, deleted):
    written.delete("a%20b.parquet", deleted)
    found = Source.open(written.root)
    assert rows_of(found) == told_by_delta(written.root)
    assert found.n_rows == 270 - len(deleted) == sum(batch.num_rows for batch in found.batches(["day"]))
    before = Source.open(written.root, at="2")
    assert before.n_rows == 270
    assert {file.footer_sha256 for file in before.files} != {file.footer_sha256 for file in found.files}
    assert found.files[0].content.bounds("x y") is None


@pytest.mark.parametrize("named", ["{}", "./{}", "sub/./{}", "with space/{}", "f\u00fcr/{}", "f%C3%BCr/{}"])
def test_deleted_rows_are_left_out_however_the_log_writes_the_file(written, named):
    """Some writers do not percent-encode names; the library returns them as URLs."""
    written.delete("c.parquet", [3, 5])
    folder = written.root / unquote(named.format(""))
    folder.mkdir(exist_ok=True)
    if folder.resolve() != written.root.resolve():
        shutil.copy(written.root / "c.parquet", folder)
    for log in (written.root / "_delta_log").iterdir():
        log.write_text(
            log.read_text().replace('"c.parquet"', json.dumps(named.format("c.parquet"), ensure_ascii=False))
        )
    assert Source.open(written.root).n_rows == 268


def test_deleted_rows_of_an_unknown_file_are_refused(written):
    written.delete("c.parquet", [3, 5])
    for log in (written.root / "_delta_log").iterdir():
        log.write_text(log.read_text().replace('"c.parquet"', '"b\\\\c.parquet"'))
    with pytest.raises(SourceError, match=r"has deleted rows of a file that its log does not name \(b/c\.parquet\)"):
        Source.open(written.root)


def test_a_log_nested_without_end_is_refused(written):
    log = written.root / "_delta_log" / f"{written.version + 1:020}.json"
    log.write_text('{"add": {"deletionVector": ' + "[" * 100_000)
    with pytest.raises(SourceError, match="cannot be read as a Delta Lake table"):
        Source.open(written.root)


@pytest.mark.parametrize(
    "line", ['{"x": ' + '{"a": ' * 50_000 + "1" + "}" * 50_001, '{"add": null}', '{"add": {}}', "[]", "{"]
)
def test_a_commit_that_is_not_understood_tells_no_rewrites(written, line):
    """Rows are counted again then; `add: null` is how some writers leave it out."""
    old = read_delta_snapshot(LOCAL, str(written.root), str(written.root), None)
    log = written.root / "_delta_log" / f"{written.version + 1:020}.json"
    log.write_text(line)
    new = replace(old, version=str(written.version + 1))
    assert delta_file_rewrites(LOCAL, str(written.root), old, new) == []


def test_a_vector_in_another_store_is_found(written):
    written.delete("c.parquet", [3, 5])
    fsspec.filesystem("memory").put(str(written.root), "/lake/vectors", recursive=True)
    assert rows_of(Source.open("memory://lake/vectors")) == told_by_delta(written.root)


def test_what_cannot_be_read_is_refused_by_name(tmp_path):
    schema = pa.schema([("x", pa.int64())])
    table = WrittenTable(tmp_path / "empty", schema)
    with pytest.raises(SourceError, match="has no rows in version 0"):
        Source.open(table.root)
    table.append("a.parquet", pa.table({"x": [1]}))
    for place in ("../b.parquet", "/etc/b.parquet", "file:///etc/b.parquet", "a%00.parquet"):
        table.commit({"add": table.adds["a.parquet"] | {"path": place}})
        with pytest.raises(SourceError, match="outside its folder"):
            Source.open(table.root)
    table = WrittenTable(tmp_path / "table", schema, features=("columnMapping", "newThing"))
    table.append("a.parquet", pa.table({"x": [1]}))
    with pytest.raises(SourceError, match="newThing"):
        Source.open(table.root)
