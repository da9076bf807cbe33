"""A model on disk: comes back bit for bit, is mapped and not copied, and damage is named."""

import errno
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from storage.errors import Conflict, CorruptFile, InvalidName, NotFound, Unstorable, Unwritable
from storage.files import atomic_files, duckdb_files
from storage.files.workspace_layout import delete_model_files
from storage.models.compiled import map_compiled, write_compiled
from storage.models.model_file import read_model_file, rebuild_compiled, verify_model_files, write_model

ROOT = Path(__file__).parents[3]
HEADER = {"kind": "lookup", "classes": ["no", "yes", "née"], "m": 0.1, "nested": {"a": [1, None, True]}}
ARRAYS = {
    "counts": np.arange(60_000, dtype=np.int64).reshape(100, 20, 30),
    "log_theta": np.log(np.arange(1, 1001)),
    "codes": np.arange(256, dtype=np.uint8),
    "is_leaf": np.array([True, False]),
    "nothing": np.zeros((0, 7), np.float32),
    "scalar": np.array(2.5),
    "names": np.array(["a", "née"]),
}
TABLES = {
    "attributes": pa.table({"name": ["age", 'x"y', None], "n_values": [3, 2, 1]}),
    'odd "name"': pa.table({"a b": [[1], []]}),
}

dtypes = st.one_of(
    *(npst.boolean_dtypes(), npst.complex_number_dtypes(), npst.datetime64_dtypes()),
    *(kinds(endianness="?") for kinds in (npst.integer_dtypes, npst.unsigned_integer_dtypes, npst.floating_dtypes)),
    *(npst.unicode_string_dtypes(min_len=1), npst.byte_string_dtypes(min_len=1)),
)
arrays = npst.arrays(dtypes, npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
named_arrays = st.dictionaries(names, arrays, max_size=4)


def assert_same(found, expected):
    """The same names in the same order, and the same dtypes, shapes and bits; read-only."""
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()
        assert not found[name].flags.writeable


def test_a_model_comes_back_from_both_files(tmp_path):
    written = write_model(tmp_path, "adult", 3, HEADER, ARRAYS, TABLES)
    assert written.duckdb_path == tmp_path / "adult" / f"3-{written.sha256[:8]}.duckdb"
    stem = written.duckdb_path.stem
    assert sorted(os.listdir(tmp_path / "adult")) == [f"{stem}.arrow", f"{stem}.duckdb", f"{stem}.sha256"]
    verify_model_files(written.duckdb_path)
    for header, found in (read_model_file(written.duckdb_path), map_compiled(written.arrow_path)):
        assert header == HEADER
        assert_same(found, ARRAYS)


@given(named_arrays)
def test_any_arrays_come_back_from_the_compiled_form(tmp_path_factory, named):
    path = tmp_path_factory.mktemp("compiled") / "m.arrow"
    write_compiled(path, {}, named)
    assert_same(map_compiled(path)[1], named)


@given(named_arrays)
@settings(max_examples=10)
def test_any_arrays_come_back_from_the_duckdb_file(tmp_path_factory, named):
    written = write_model(tmp_path_factory.mktemp("models"), "m", 1, HEADER, named, {})
    assert_same(read_model_file(written.duckdb_path)[1], named)


def test_people_can_ask_in_sql(tmp_path):
    written = write_model(tmp_path, "adult", 1, HEADER, ARRAYS, TABLES)
    with duckdb.connect(str(written.duckdb_path), read_only=True) as connection:
        assert connection.sql("SELECT name FROM attributes WHERE n_values = 2").fetchall() == [('x"y',)]
        assert connection.sql('SELECT "a b" FROM "odd ""name"""').fetchall() == [([1],), ([],)]
        counts = connection.sql("SELECT DISTINCT dtype, shape FROM arrays WHERE name = 'counts'")
        assert counts.fetchall() == [("<i8", [100, 20, 30])]


def test_mapped_arrays_are_views_of_the_file(tmp_path):
    path = tmp_path / "m.arrow"
    big = np.arange(2_000_000, dtype=np.float64)
    write_compiled(path, {}, {"big": big, "flag": np.ones(1_000_000, bool)})
    before = pa.total_allocated_bytes()
    _, mapped = map_compiled(path)
    assert pa.total_allocated_bytes() - before < 10_000
    for array in mapped.values():
        address = array.ctypes.data
        (line,) = [line for line in Path("/proc/self/maps").read_text().splitlines() if _holds(line, address)]
        assert line.endswith("m.arrow")
        assert array.flags.aligned
    with pytest.raises(ValueError, match="read-only"):
        mapped["big"][0] = 1
    path.unlink()  # a version that is deleted while it is served
    assert (mapped["big"] == big).all()


def _holds(line, address):
    start, end = (int(number, 16) for number in re.match(r"(\w+)-(\w+)", line).groups())
    return start <= address < end


READER = "import sys; from storage.models import compiled; print(compiled.map_compiled(sys.argv[1])[1]['counts'].sum())"


def test_several_processes_map_the_same_file(tmp_path):
    path = tmp_path / "m.arrow"
    write_compiled(path, HEADER, ARRAYS)
    _, mapped = map_compiled(path)
    command = [sys.executable, "-c", READER, str(path)]
    readers = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert {reader.communicate(timeout=240)[0] for reader in readers} == {f"{mapped['counts'].sum()}\n"}


def test_arrays_larger_than_the_memory_limit_are_written_and_read(tmp_path, monkeypatch):
    monkeypatch.setitem(duckdb_files._COMMON, "memory_limit", "64MiB")  # as its usual limit takes long to fill
    monkeypatch.setattr(duckdb_files, "_WRITER", duckdb_files.Instance())
    n = (64 << 20) // 8 + 12_345
    array = np.zeros(n)
    array[::1000] = np.arange(len(array[::1000]))
    written = write_model(tmp_path, "big", 1, {}, {"array": array}, {})
    assert (read_model_file(written.duckdb_path)[1]["array"] == array).all()


@pytest.mark.parametrize(
    "array", [np.array([None]), np.array(["a"], dtype=object), np.zeros(2, dtype=[("a", "i4")]), np.zeros(2, "V0")]
)
def test_arrays_of_objects_are_refused(tmp_path, array):
    for write in (write_compiled, lambda path, *rest: write_model(path, "m", 1, *rest, {})):
        with pytest.raises(Unstorable, match="Array 'x' cannot be stored: its dtype"):
            write(tmp_path / "m", {}, {"x": array})
    assert not [path for path in tmp_path.rglob("*") if path.is_file() or path.name.startswith(".")]


TABLE = pa.table({"a": [1]})


@pytest.mark.parametrize(
    ("name", "version", "header", "tables", "error", "says"),
    [
        ("m", 1, {"x": np.float64}, {}, Unstorable, "Use str, int, float"),
        ("m", 1, {}, {"arrays": TABLE}, Conflict, "is already the name of a table of the model file. Rename it"),
        ("m", 1, {}, {"Header": TABLE}, Conflict, "is already the name of a table of the model file. Rename it"),
        ("m", 1, {}, {"a": TABLE, "A": TABLE}, Conflict, "Table 'A'"),
        ("m", 1, {}, {"empty": pa.table({})}, Unstorable, "Table 'empty' cannot be stored: it has no columns"),
        ("../m", 1, {}, {}, InvalidName, "is not a valid name for"),
        ("m", "../1", {}, {}, ValueError, "invalid literal"),
    ],
)
def test_what_a_model_file_cannot_hold_is_refused_by_name(name, version, header, tables, error, says, tmp_path):
    with pytest.raises(error, match=says):
        write_model(tmp_path, name, version, header, {}, tables)


def test_a_flipped_bit_is_never_a_wrong_number(tmp_path):
    """Each of 60 flipped bits is noticed, or was in a byte that nothing is read from."""
    written = write_model(tmp_path, "m", 1, HEADER, ARRAYS, TABLES)
    rng = np.random.default_rng(1)
    for path, read in ((written.duckdb_path, read_model_file), (written.arrow_path, map_compiled)):
        good = path.read_bytes()
        path.chmod(0o644)
        for position in rng.integers(0, len(good), 30):
            # A new name each time: DuckDB may remember a file by its path.
            damaged = tmp_path / f"damaged-{position}{path.suffix}"
            damaged.write_bytes(good[:position] + bytes([good[position] ^ 1 << rng.integers(8)]) + good[position + 1 :])
            try:
                header, found = read(damaged)
            except CorruptFile as error:
                assert damaged.name in str(error)
            else:
                assert header == HEADER
                assert_same(found, ARRAYS)
            damaged.unlink()
        path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        with pytest.raises(CorruptFile, match=path.name):
            verify_model_files(written.duckdb_path)
        path.write_bytes(good)


@pytest.mark.parametrize("n_bytes", [0, 1, 8, 1000, -1000, -1])
def test_a_truncated_file_is_damaged(tmp_path, n_bytes):
    written = write_model(tmp_path, "m", 1, HEADER, ARRAYS, {})
    for path, read in (
        (written.duckdb_path, verify_model_files),
        (written.duckdb_path, read_model_file),
        (written.arrow_path, map_compiled),
    ):
        damaged = tmp_path / f"{read.__name__}{path.suffix}"
        damaged.write_bytes(path.read_bytes()[:n_bytes])
        if read is read_model_file and n_bytes == -1:
            continue  # the end of the last block is padding
        with pytest.raises(CorruptFile, match="is damaged"):
            read(damaged)


def test_other_arrow_files_are_not_compiled_models(tmp_path):
    with pa.OSFile(str(tmp_path / "x.arrow"), "wb") as file, pa.ipc.new_file(file, pa.schema({"a": pa.int64()})):
        pass
    with pytest.raises(CorruptFile, match="not a compiled model of this release"):
        map_compiled(tmp_path / "x.arrow")
    with pytest.raises(CorruptFile, match=r"absent\.arrow is damaged"):
        map_compiled(tmp_path / "absent.arrow")
    with pytest.raises(NotFound, match="There is no model file"):
        read_model_file(tmp_path / "absent.duckdb")


def test_a_log_beside_a_published_file_is_damage(tmp_path):
    written = write_model(tmp_path, "m", 1, HEADER, ARRAYS, {})
    written.duckdb_path.with_name(written.duckdb_path.name + ".wal").touch()
    with pytest.raises(
        CorruptFile, match=r"a write-ahead log exists beside it, but published files have none. Remove the log"
    ):
        read_model_file(written.duckdb_path)


def test_arrays_that_follow_from_others_are_in_the_compiled_form_only(tmp_path):
    arrays = {"given": np.arange(5), "twice": 2 * np.arange(5)}
    written = write_model(tmp_path, "m", 1, {"derived": ["twice"]}, arrays, {})
    assert list(read_model_file(written.duckdb_path)[1]) == ["given"]
    written.arrow_path.unlink()
    rebuild_compiled(written.duckdb_path, lambda _, read: read | {"twice": 2 * read["given"]})
    assert_same(map_compiled(written.arrow_path)[1], arrays)


def test_the_compiled_form_can_be_rebuilt(tmp_path):
    written = write_model(tmp_path, "m", 1, HEADER, ARRAYS, TABLES)
    _, before = map_compiled(written.arrow_path)
    for content in (None, b"scrap"):
        written.arrow_path.unlink()
        if content is not None:
            written.arrow_path.write_bytes(content)
        with pytest.raises(CorruptFile, match="is damaged"):
            verify_model_files(written.duckdb_path)
        assert rebuild_compiled(written.duckdb_path, lambda _, arrays: arrays) == written.arrow_path
        verify_model_files(written.duckdb_path)
    assert_same(map_compiled(written.arrow_path)[1], ARRAYS)
    assert_same(before, ARRAYS)
    written.duckdb_path.with_suffix(".sha256").unlink()
    rebuild_compiled(written.duckdb_path, lambda _, arrays: arrays)
    verify_model_files(written.duckdb_path)


def test_a_disk_that_refuses_to_remove_one_file_is_named_and_the_others_go(tmp_path, monkeypatch):
    written = write_model(tmp_path, "m", 1, HEADER, ARRAYS, TABLES)
    unlink = Path.unlink

    def refuse(path, missing_ok=False):
        if path.suffix == ".arrow":
            raise OSError(errno.EIO, "Input/output error")
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(
        Unwritable, match=r"\.arrow cannot be written: .* which removes it. It no longer belongs to a version"
    ):
        delete_model_files(written.duckdb_path)
    assert [Path(name).suffix for name in os.listdir(tmp_path / "m")] == [".arrow"]
    monkeypatch.undo()
    for _ in range(2):
        delete_model_files(written.duckdb_path)
    assert os.listdir(tmp_path / "m") == []


@pytest.mark.parametrize("n", range(6))
def test_when_the_nth_fsync_fails_nothing_is_left(tmp_path, monkeypatch, n):
    """Three files, and for each an fsync of the file and one of the folder."""
    (tmp_path / "m").mkdir()
    n_calls = iter(range(100))
    fsync = os.fsync

    def refuse(descriptor):
        if next(n_calls) == n:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(atomic_files.os, "fsync", refuse)
    with pytest.raises(Unwritable, match="No space left on device"):
        write_model(tmp_path, "m", 1, HEADER, ARRAYS, TABLES)
    assert list((tmp_path / "m").iterdir()) == []


KILLED = """
import sys, threading, os, time
import numpy as np
from storage.files.workspace_layout import delete_model_files
from storage.models.model_file import write_model
threading.Timer(float(sys.argv[2]), os.kill, (os.getpid(), 9)).start()
for version in range(1, 1000):
    write_model(sys.argv[1], "m", version, {"version": version}, {"x": np.full(300_000, version)}, {})
"""


def test_a_killed_writer_leaves_whole_files_and_drafts_to_sweep(tmp_path):
    with ThreadPoolExecutor(4) as pool:
        commands = [[sys.executable, "-c", KILLED, str(tmp_path / str(i)), str(0.01 + i * 0.037)] for i in range(8)]
        killed = list(pool.map(lambda command: subprocess.run(command, cwd=ROOT).returncode, commands))
    assert killed == [-9] * 8
    atomic_files.delete_abandoned_drafts(tmp_path)
    assert list(tmp_path.rglob("*.partial")) == []
    for ending, read in (("duckdb", read_model_file), ("arrow", map_compiled)):
        for header, arrays in map(read, tmp_path.rglob(f"*.{ending}")):
            assert (arrays["x"] == header["version"]).all()
    for path in tmp_path.rglob("*.sha256"):
        verify_model_files(path.with_suffix(".duckdb"))
