"""One running DuckDB to which files are attached in turn: what goes wrong with one does no harm to the next."""

import multiprocessing
import sys

import duckdb
import pyarrow as pa
import pytest

from storage.datasets.predicates import RowPredicate
from storage.errors import CorruptFile, StorageError
from storage.files.duckdb_files import Instance, create_duckdb_table, open_duckdb_for_reading, open_duckdb_for_writing

ROWS = pa.table({"a": [1, 2]})


def write(path):
    with open_duckdb_for_writing(path) as connection:
        create_duckdb_table(connection, "t", ROWS)
    return path


def read(path, instance=None):
    with open_duckdb_for_reading(path, instance) as connection:
        return connection.table("t").to_arrow_table()


def test_after_an_error_the_next_file_is_written_and_nothing_of_the_first(tmp_path):
    lost = tmp_path / "lost.duckdb"
    with pytest.raises(KeyboardInterrupt), open_duckdb_for_writing(lost) as connection:
        create_duckdb_table(connection, "t", ROWS)
        raise KeyboardInterrupt
    assert read(write(tmp_path / "next.duckdb")) == ROWS
    with duckdb.connect(str(lost)) as connection:  # it is not held, and its transaction was rolled back
        assert not connection.sql("SELECT * FROM duckdb_tables()").fetchall()


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked")
def test_a_forked_process_writes_and_judges_rows_with_instances_of_its_own(tmp_path):
    """Those of its parent lack their threads."""

    def work(name):
        write(tmp_path / name)
        assert RowPredicate("a = 2").mask(ROWS.to_batches()[0]).tolist() == [False, True]

    work("parent.duckdb")
    child = multiprocessing.get_context("fork").Process(target=work, args=["child.duckdb"])
    child.start()
    child.join(240)
    child.kill()
    child.join()
    assert child.exitcode == 0


def test_one_transaction_writes_no_second_file(tmp_path):
    other = write(tmp_path / "other.duckdb")
    with (
        pytest.raises(StorageError, match="could not be written"),
        open_duckdb_for_writing(tmp_path / "a.duckdb") as connection,
    ):
        create_duckdb_table(connection, "t", ROWS)
        connection.execute(f"ATTACH '{other}' AS other")
        connection.execute("CREATE TABLE other.u AS SELECT 1")
    assert read(other) == ROWS


def test_who_comes_meanwhile_gets_an_instance_of_its_own(tmp_path):
    path, instance = write(tmp_path / "a.duckdb"), Instance(tmp_path)
    with open_duckdb_for_reading(path, instance) as first, open_duckdb_for_reading(path, instance) as second:
        assert first.table("t").to_arrow_table() == second.table("t").to_arrow_table() == ROWS
        with pytest.raises(CorruptFile, match="t2"), open_duckdb_for_reading(path, instance) as third:
            third.table("t2")
        assert first.table("t").to_arrow_table() == ROWS
    assert read(path, instance) == ROWS


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_file_of_somebody_else_reads_no_other(tmp_path, is_shared):
    """A view or a macro of its own stands for what is read; of a single file also that beside it is out of reach."""
    folder = tmp_path / "own"
    folder.mkdir()
    secret = (tmp_path if is_shared else folder) / "secret.txt"
    secret.write_text("secret")
    with open_duckdb_for_writing(folder / "a.duckdb") as connection:
        connection.execute(f"CREATE MACRO length(x) AS (SELECT content FROM read_text('{secret}'))")
        create_duckdb_table(connection, "t", ROWS)
    with (
        pytest.raises(CorruptFile, match="Cannot access file"),
        open_duckdb_for_reading(folder / "a.duckdb", Instance(folder) if is_shared else None) as connection,
    ):
        connection.sql("SELECT length('x') FROM t").fetchall()
