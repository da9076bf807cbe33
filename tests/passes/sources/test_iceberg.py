"""Iceberg: the rows of a snapshot and no others, as pyiceberg tells them."""

import contextlib
import datetime
import json
import shutil
import sys
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import StaticTable
from pyiceberg.types import DoubleType
from pyiceberg.utils.config import Config

from learners.errors import SourceError
from learners.passes.sources.source import Source
from tests.lake_tables import delete_by_file
from tests.support.passes import rows_of

DAYS = pa.array([datetime.date(2026, 1, 2), None, datetime.date(2026, 1, 3), datetime.date(2026, 1, 2)])
ROWS = pa.table({"day": DAYS, "x": [1, 2, 3, 4], "y": ["n", "y", "n", "y"]})


def made(folder, name):
    catalog = InMemoryCatalog("tests", warehouse=f"file://{folder}")
    catalog.create_namespace_if_not_exists("lake")
    return catalog.create_table(f"lake.{name}", schema=ROWS.schema)


def folder_of(table):
    return table.location().removeprefix("file://")


def told_by_iceberg(table, snapshot=None):
    return sorted(table.scan(snapshot_id=snapshot).to_arrow().to_pylist(), key=str)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Partitioned; with a row deleted, a column added, and another renamed after the last snapshot."""
    table = made(tmp_path_factory.mktemp("iceberg"), "grown")
    with table.update_spec() as spec:
        spec.add_identity("day")
    table.append(ROWS)
    table.append(ROWS)
    table.delete("x == 4")
    with table.update_schema() as schema:
        schema.add_column("z", DoubleType())
    table.append(ROWS.append_column("z", pa.array([1.5] * 4)))
    with table.update_schema() as schema:
        schema.rename_column("y", "w")
    return table


def test_a_snapshot_has_its_rows(table):
    newest = Source.open(folder_of(table))
    assert rows_of(newest) == told_by_iceberg(table)
    assert newest.arrow_schema.names == ["day", "x", "w", "z"]
    for snapshot in table.snapshots()[:-1]:
        found = Source.open(f"iceberg://{folder_of(table)}@{snapshot.snapshot_id}")
        assert rows_of(found) == told_by_iceberg(table, snapshot.snapshot_id)
    moment = datetime.datetime.fromtimestamp(table.snapshots()[1].timestamp_ms / 1000, datetime.UTC)
    assert Source.open(folder_of(table), at=moment.isoformat()).n_rows == 8


def test_a_metadata_file_and_another_store_have_the_same_rows(table, tmp_path):
    metadata = table.metadata_location.removeprefix("file://")
    assert rows_of(Source.open(metadata)) == told_by_iceberg(table)
    shutil.copytree(folder_of(table), tmp_path / "moved")
    (tmp_path / "moved" / "metadata" / "version-hint.text").write_text(Path(metadata).name)
    fsspec.filesystem("memory").put(str(tmp_path / "moved"), "/lake/moved", recursive=True)
    assert rows_of(Source.open(tmp_path / "moved")) == told_by_iceberg(table)
    assert rows_of(Source.open("memory://lake/moved")) == told_by_iceberg(table)


@pytest.mark.parametrize(
    ("uris", "at", "words"),
    [
        ("{}", "7", "has no snapshot 7: its newest is"),
        ("{}", "2001-01-01", "has no snapshot of 2001-01-01"),
        ("{}/data", None, "lies in the Iceberg table .*/grown, whose log decides which rows are valid"),
    ],
)
def test_what_is_no_snapshot_is_refused(table, uris, at, words):
    with pytest.raises(SourceError, match=words):
        Source.open(uris.format(folder_of(table)), at=at)


def test_without_the_library_a_table_is_refused(table, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "pyiceberg"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    with pytest.raises(SourceError, match=r"is an Iceberg table, which .*pip install 'fewpass\[lake\]'"):
        Source.open(folder_of(table))


def test_a_catalog_tells_where_a_table_is(tmp_path, monkeypatch):
    """By pyiceberg's own settings, which it reads from the environment once."""
    shop = {"TYPE": "sql", "URI": f"sqlite:///{tmp_path}/catalog.db", "WAREHOUSE": f"file://{tmp_path}"}
    for name, value in shop.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__SHOP__{name}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    catalog = load_catalog("shop")
    catalog.create_namespace("lake")
    table = catalog.create_table("lake.days", schema=ROWS.schema)
    table.append(ROWS)
    old = table.current_snapshot().snapshot_id
    table.append(ROWS)
    source = Source.open("catalog://shop/lake.days")
    assert (source.n_rows, source.snapshot.place) == (8, "catalog://shop/lake.days")
    assert rows_of(source) == told_by_iceberg(table)
    assert Source.open(f"catalog://shop/lake.days@{old}").n_rows == 4
    assert Source.open("catalog://shop/lake.days", at=str(old)).n_rows == 4
    for uri, words in {
        "catalog://shop/lake.weeks": "is not a table of the catalog 'shop'",
        "catalog://shop/days": "Write catalog://NAME/NAMESPACE.TABLE",
        "catalog://nobody/lake.days": "Set PYICEBERG_CATALOG__NOBODY__URI",
    }.items():
        with pytest.raises(SourceError, match=words):
            Source.open(uri)


def test_rows_deleted_by_position_are_left_out(tmp_path):
    table = made(tmp_path, "positions")
    table.append(pa.concat_tables([ROWS] * 50))
    table.append(ROWS)
    second, first = sorted((task.file for task in table.scan().plan_files()), key=lambda file: file.record_count)
    deleted = pa.table({"file_path": [first.file_path] * 3 + [second.file_path], "pos": [0, 7, 199, 2]})
    delete_by_file(table, f"{folder_of(table)}/data/d.parquet", DataFileContent.POSITION_DELETES, deleted)
    found = Source.open(folder_of(table))
    metadata = next(Path(folder_of(table)).glob("metadata/99999-*.metadata.json"))
    assert rows_of(found) == told_by_iceberg(StaticTable.from_metadata(str(metadata)))
    assert found.n_rows == 200


def test_rows_deleted_by_value_and_empty_tables_are_refused(tmp_path):
    table = made(tmp_path, "values")
    with pytest.raises(SourceError, match="has no rows"):
        Source.open(folder_of(table))
    table.append(ROWS)
    deleted = ROWS.select(["day"]).slice(0, 1)
    delete_by_file(table, f"{folder_of(table)}/data/d.parquet", DataFileContent.EQUALITY_DELETES, deleted)
    with pytest.raises(SourceError, match="has equality deletes, which are not read"):
        Source.open(folder_of(table))


def test_a_column_that_comes_back_is_another_one(tmp_path):
    """Files are read by the numbers of their columns: the values of a dropped one are not those of its namesake."""
    table = made(tmp_path, "again")
    table.append(ROWS)
    with table.update_schema(allow_incompatible_changes=True) as schema:
        schema.delete_column("x")
    with table.update_schema() as schema:
        schema.add_column("x", DoubleType())
    assert rows_of(Source.open(folder_of(table))) == told_by_iceberg(table)


def test_columns_that_only_folders_have(tmp_path):
    """As of files that were added to a table as they lay."""
    table = made(tmp_path, "added")
    with table.update_spec() as spec:
        spec.add_identity("day")
    for number, value in enumerate(["2026-01-02", "2026-01-05"]):
        file = Path(folder_of(table), "data", f"day={value}", "a.parquet")
        file.parent.mkdir(parents=True)
        day = pa.array([datetime.date.fromisoformat(value)] * 4)
        pq.write_table(ROWS.set_column(0, "day", day), file)
        table.add_files([f"file://{file}"])
        pq.write_table(ROWS.slice(number).drop_columns(["day"]), file)
    found = rows_of(Source.open(folder_of(table)))
    assert {(row["day"].isoformat(), row["x"]) for row in found} >= {("2026-01-02", 1), ("2026-01-05", 2)}
    assert len(found) == 7


def test_files_elsewhere_are_refused(table, tmp_path):
    shutil.copytree(folder_of(table), tmp_path / "copy")
    metadata = tmp_path / "copy" / "metadata" / Path(table.metadata_location).name
    told = json.loads(metadata.read_text())
    metadata.write_text(json.dumps(told | {"location": "file:///elsewhere"}))
    with pytest.raises(SourceError, match="has a file outside its folder"):
        Source.open(metadata)


def test_whatever_a_damaged_table_holds_is_refused_in_words(table, tmp_path):
    """The decoders of the library raise errors of all kinds: TypeError, zlib.error."""
    shutil.copytree(folder_of(table), tmp_path / "copy")
    for path in (tmp_path / "copy" / "metadata").glob("snap-*.avro"):
        content = path.read_bytes()
        for damaged in (content.replace(b'"long"', b'"hong"'), content[:-40] + b"\xff" * 24 + content[-16:]):
            path.write_bytes(damaged)
            with contextlib.suppress(SourceError):  # one of an older snapshot is not read
                Source.open(tmp_path / "copy")
        path.write_bytes(content[: len(content) // 2])
    with pytest.raises(SourceError, match="cannot be read as an Iceberg table"):
        Source.open(tmp_path / "copy")


def test_a_manifest_is_not_read_beyond_its_end(table):
    """Its text is longer than its bytes: the decoder in C read on, in the memory of the process."""
    from learners.passes.sources.lake import iceberg_files

    decoder = iceberg_files.avro_file.new_decoder(b"\x80\x01" + b"x" * 8)  # 64 bytes of text, of which 8 are there
    with pytest.raises(EOFError, match="EOF"):
        decoder.read_utf8()
