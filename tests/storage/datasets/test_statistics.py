"""Statistics on disk: any table comes back equal, and a damaged file is named and never believed."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.datasets.statistics import StatisticStore
from storage.errors import CorruptFile, InvalidName
from storage.files.atomic_files import sha256_of_file

ROOT = Path(__file__).parents[3]
KEY, OTHER = (hashlib.sha256(word).hexdigest() for word in (b"key", b"other"))
TABLE = pa.table(
    {
        "attribute": ["age", "née", "", None],
        "count": pa.array([1, 2**62, 0, -1], pa.int64()),
        "tensor": pa.array([[1, 2], [], None, [3]], pa.large_list(pa.int64())),
    }
).replace_schema_metadata({"spec": "x"})

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
COLUMNS = {
    **{pa.type_for_alias(f"int{n}"): st.integers(-(2 ** (n - 1)), 2 ** (n - 1) - 1) for n in (8, 16, 32, 64)},
    **{pa.type_for_alias(f"uint{n}"): st.integers(0, 2**n - 1) for n in (8, 16, 32, 64)},
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.bool_(): st.booleans(),
    pa.string(): text,
    pa.large_string(): text,
    pa.binary(): st.binary(max_size=9),
    pa.large_binary(): st.binary(max_size=9),
    pa.null(): st.none(),
    pa.date32(): st.dates(),
    pa.timestamp("ns", "UTC"): st.integers(-(2**62), 2**62),
    pa.decimal128(20, 3): st.decimals(-1000, 1000, places=3),
    pa.list_(pa.float64()): st.lists(st.floats(), max_size=3),
    pa.large_list(pa.int64()): st.lists(st.integers(0, 9), max_size=3),
    pa.list_(pa.int32(), 2): st.lists(st.integers(0, 9), min_size=2, max_size=2),
    pa.struct({"a": pa.int64(), "b": pa.string()}): st.fixed_dictionaries({"a": st.integers(0, 9), "b": text}),
    pa.dictionary(pa.int32(), pa.string()): text,
}


@st.composite
def tables(draw):
    """Tables of all types, with nulls, metadata, several chunks, and names that SQL cannot tell apart."""
    n_rows = draw(st.integers(0, 5))
    kinds = draw(st.lists(st.sampled_from(list(COLUMNS)), min_size=1, max_size=5))
    fields = [pa.field(draw(st.one_of(text, st.sampled_from(["a", "A", "rowid"]))), kind) for kind in kinds]
    values = [draw(st.lists(st.none() | COLUMNS[kind], min_size=n_rows, max_size=n_rows)) for kind in kinds]
    schema = pa.schema(fields, metadata=draw(st.none() | st.just({"k": "v"})))
    table = pa.table([pa.array(column, kind) for column, kind in zip(values, kinds, strict=True)], schema=schema)
    cut = draw(st.integers(0, n_rows))
    return pa.concat_tables([table.slice(0, cut), table.slice(cut)])


def assert_same(found, expected):
    """Equal schemas and values; floats bit for bit, so that NaN equals NaN and 0.0 is not -0.0."""
    assert found.schema.equals(expected.schema, check_metadata=True)
    for a, b in zip(found.columns, expected.columns, strict=True):
        assert repr(a.to_pylist()) == repr(b.to_pylist())


def test_any_table_comes_back_equal(tmp_path):
    store = StatisticStore(tmp_path)

    @given(tables())
    @settings(max_examples=50)
    def comes_back(table):
        store.put(KEY, table)
        assert_same(store.get(KEY), table)
        store.discard(KEY)

    comes_back()


def path_in(store):
    return next(store.directory.glob("*.duckdb"))


def test_a_key_has_one_table_or_none(tmp_path):
    store = StatisticStore(tmp_path / "statistics")
    assert store.get(KEY) is None
    store.put(KEY, TABLE, {"statistic": "pairs"})
    store.put(KEY, TABLE.slice(1), {"statistic": "pairs"})
    assert_same(store.get(KEY), TABLE)
    assert store.get(OTHER) is None
    (path,) = store.directory.iterdir()
    assert path.name == f"{KEY}-{sha256_of_file(path)}.duckdb"
    assert path.stat().st_mode & 0o777 == 0o444
    store.discard(KEY)
    store.discard(KEY)
    assert store.get(KEY) is None


@pytest.mark.parametrize("key", ["", "a", KEY.upper(), KEY + "0", "*" * 64, "../" + KEY[3:], KEY + "\n"])
def test_other_keys_are_refused(tmp_path, key):
    store = StatisticStore(tmp_path)
    for function in (store.get, store.discard, lambda key: store.put(key, TABLE)):
        with pytest.raises(InvalidName, match="64 lower-case hexadecimal digits"):
            function(key)


def test_people_can_ask_in_sql(tmp_path):
    store = StatisticStore(tmp_path)
    store.put(KEY, TABLE, {"statistic": "pairs"})
    with duckdb.connect(str(path_in(store)), read_only=True) as connection:
        assert connection.sql("SELECT \"count\" FROM statistic WHERE attribute = 'née'").fetchall() == [(2**62,)]
        assert connection.sql("SELECT spec, n_rows FROM about").fetchall() == [('{"statistic": "pairs"}', 4)]


def test_a_large_table_comes_back_in_its_order(tmp_path):
    rng = np.random.default_rng(0)
    n = 300_000
    blobs = pa.array([rng.bytes(300_000) for _ in range(3)] + [None] * (n - 3), pa.large_binary())
    table = pa.table({"i": rng.permutation(n), "x": rng.random(n), "blob": blobs})
    store = StatisticStore(tmp_path)
    store.put(KEY, table)
    assert store.get(KEY).equals(table)


def test_a_flipped_byte_anywhere_is_damage(tmp_path):
    store = StatisticStore(tmp_path)
    store.put(KEY, TABLE)
    path = path_in(store)
    good = path.read_bytes()
    path.chmod(0o644)
    for position in np.random.default_rng(0).integers(0, len(good), 100).tolist():
        path.write_bytes(good[:position] + bytes([good[position] ^ 0xFF]) + good[position + 1 :])
        with pytest.raises(CorruptFile, match="its SHA-256 is"):
            store.get(KEY)
    path.write_bytes(good[:-100])
    with pytest.raises(CorruptFile, match="is damaged"):
        store.get(KEY)
    store.discard(KEY)
    store.put(KEY, TABLE)
    assert_same(store.get(KEY), TABLE)


DAMAGES = ["DELETE FROM statistic WHERE rowid = 0", "DELETE FROM arrays", "DELETE FROM about", "DROP TABLE statistic"]


@pytest.mark.parametrize("damage", [*DAMAGES, f"UPDATE about SET key = '{OTHER}'", "UPDATE arrays SET data = 'x'"])
def test_a_file_that_lost_rows_is_damage_although_its_name_fits(tmp_path, damage):
    store = StatisticStore(tmp_path / "statistics")
    store.put(KEY, TABLE)
    shutil.copy(path_in(store), tmp_path / "copy.duckdb")
    (tmp_path / "copy.duckdb").chmod(0o644)
    with duckdb.connect(str(tmp_path / "copy.duckdb")) as connection:
        connection.execute(damage)
    store.discard(KEY)
    shutil.move(tmp_path / "copy.duckdb", store.directory / f"{KEY}-{sha256_of_file(tmp_path / 'copy.duckdb')}.duckdb")
    with pytest.raises(CorruptFile, match=KEY):
        store.get(KEY)


def test_pruning_removes_the_oldest(tmp_path):
    store = StatisticStore(tmp_path)
    keys = [hashlib.sha256(bytes([i])).hexdigest() for i in range(4)]
    for i, key in enumerate(keys):
        store.put(key, TABLE)
        os.utime(next(store.directory.glob(f"{key}-*")), (i, i))
    store.prune(2 * path_in(store).stat().st_size)
    assert {path.name[:64] for path in tmp_path.iterdir()} == {keys[3], keys[2]}
    store.prune(0)
    assert list(tmp_path.iterdir()) == []


WRITER = """
import sys
import pyarrow as pa
from storage.datasets.statistics import StatisticStore
store = StatisticStore(sys.argv[1])
for i in range(5):
    store.put(f"{i:064x}", pa.table({"i": [i] * 1000}))
    assert store.get(f"{i:064x}")["i"].to_pylist() == [i] * 1000
"""


def test_two_processes_store_the_same_keys_at_once(tmp_path):
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [writer.communicate(timeout=240)[1] for writer in writers] == ["", ""]
    store = StatisticStore(tmp_path)
    assert {path.name[:64] for path in tmp_path.glob("*.duckdb")} == {f"{i:064x}" for i in range(5)}
    assert store.get(f"{3:064x}")["i"].to_pylist() == [3] * 1000
