"""Where rows come from: paths, folders, globs and file systems; and files that are not as they should be."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from learners.errors import SourceError, UnknownColumn
from learners.passes.sources import parquet
from learners.passes.sources import source as source_module
from learners.passes.sources.source import Source
from storage.files.workspace_layout import Layout


def table_of(n_rows, start=0):
    rows = range(start, start + n_rows)
    words = [None if row % 7 == 0 else f"w{row % 5}" for row in rows]
    return pa.table({"row": pa.array(rows), "word": words, "class": [f"c{row % 2}" for row in rows]})


def written(path, table, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)
    return str(path)


def rows_of(source, columns=None):
    table = pa.Table.from_batches(source.batches(columns))
    return table.cast(pa.schema([(f.name, pa.string() if f.name != "row" else f.type) for f in table.schema]))


@pytest.fixture
def folder(tmp_path):
    """Three files of 10, 20 and 30 rows, one of them deeper; and files that are to be passed over."""
    written(tmp_path / "set" / "a.parquet", table_of(10))
    written(tmp_path / "set" / "b.parquet", table_of(20, 10), row_group_size=7)
    written(tmp_path / "set" / "deep" / "c.pq", table_of(30, 30))
    (tmp_path / "set" / "_SUCCESS").touch()
    (tmp_path / "set" / ".hidden.parquet").touch()
    (tmp_path / "set" / "readme.txt").write_text("no rows")
    return tmp_path / "set"


@pytest.mark.parametrize(
    ("named", "n_rows"),
    [
        ("a.parquet", 10),
        *(
            (named, 30)
            for named in ("*.parquet", "[ab].parquet", "?.parquet", "*/*.pq", "**/*.pq", ["b.parquet", "a.parquet"])
        ),
        (["a.parquet", "a.parquet", "*.parquet"], 30),
        *((named, 60) for named in ("", ["*.parquet", "deep"])),
    ],
)
def test_files_folders_globs_and_lists(folder, named, n_rows):
    names = [named] if isinstance(named, str) else named
    wanted = [os.path.join(folder, name) for name in names]
    source = Source.open(wanted if isinstance(named, list) else wanted[0])
    of_parts = {sum(part.n_rows for part in parts) for parts in (source.files, source.fragments)}
    assert {source.n_rows, rows_of(source).num_rows} | of_parts == {n_rows}
    assert len({file.path for file in source.files}) == len(source.files)


@pytest.mark.parametrize(
    ("pattern", "n_rows"),
    [
        ("**/*.p*", 60),
        ("**/**/*.p*", 60),
        ("**", 60),
        ("**/deep/*.pq", 30),
        ("deep/**/*.pq", 30),
        ("**/a.parquet", 10),
        ("**/deep/**/c.pq", 30),
    ],
)
def test_two_stars_stand_for_any_number_of_folders_and_for_none(folder, pattern, n_rows):
    """On disk and in stores; files right below the folder were missed."""
    other = pafs.SubTreeFileSystem(str(folder.parent), pafs.LocalFileSystem())
    (folder / "readme.txt").unlink()
    assert Source.open(f"{folder}/{pattern}").n_rows == n_rows
    assert Source.open(f"set/{pattern}", other).n_rows == n_rows
    with pytest.raises(SourceError, match="matches no file"):
        Source.open(f"{folder}/**/deep/*.parquet")


def test_a_workspace_below_a_folder_is_no_data(folder):
    """What a crash leaves in scratch is not read, whether a folder or a glob is named; rows below it are, by their own path."""
    Layout(folder / "work").create()
    scratch = folder / "work" / "scratch" / "job-1"
    scratch.mkdir()
    written(scratch / "drawn.parquet", table_of(7))
    for path in (folder, f"{folder}/**/*.p*q*"):
        assert Source.open(path).n_rows == 60
    assert Source.open(scratch).n_rows == 7


def test_paths_and_uris_name_the_same_files(folder):
    for uri in (f"file://{folder}", f"file://{folder}/**.p*q*"):
        assert Source.open(uri).files == Source.open(folder).files
    other = pafs.SubTreeFileSystem(str(folder.parent), pafs.LocalFileSystem())
    for named in ("set", "set/**.p*q*", ["set/a.parquet", "set/b.parquet", "set/deep/c.pq"]):
        assert rows_of(Source.open(named, other)).equals(rows_of(Source.open(folder)))
    with pytest.raises(SourceError, match="set/none: no such file or folder"):
        Source.open("set/none", other)


def test_rows_come_in_file_order_and_only_the_columns_asked_for(folder):
    source = Source.open(folder)
    assert rows_of(source)["row"].to_pylist() == list(range(60))
    assert rows_of(source).equals(table_of(60))
    assert rows_of(source, ["class", "row"]).column_names == ["class", "row"]
    assert rows_of(source, ["row"]).num_columns == 1
    with pytest.raises(UnknownColumn, match=r"'raw' is not in the table \(similar: row\)"):
        next(source.batches(["raw"]))


@pytest.mark.parametrize("is_short", [True, False])
def test_many_columns_are_read_some_at_a_time(tmp_path, monkeypatch, is_short):
    monkeypatch.setattr(parquet, "GROUP_COLUMNS", 3)
    monkeypatch.setattr(parquet, "BATCH_ROWS", 40)
    if not is_short:
        monkeypatch.setattr(parquet, "READER_BYTES", 1)
    rng = np.random.default_rng(0)
    row = np.arange(200)
    words = {f"word{i}": pa.array([f"{i}-{r % (3 + i)}" if r % 7 else None for r in row.tolist()]) for i in range(4)}
    others = {"is": row % 3 == 0, "none": pa.nulls(200), "class": row % 2}
    table = pa.table({"a": row, "a.b": rng.random(200), **words, **others})
    path = written(tmp_path / "wide.parquet", table, row_group_size=100)
    asked = []
    whole = pq.ParquetFile.iter_batches

    def heard(self, *args, **options):
        asked.append(options["columns"])
        return whole(self, *args, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", heard)
    source = Source.open(path)
    for columns in (None, ["class", "word2", "a", "a.b", "none"]):
        batches = list(source.batches(columns))
        assert max(batch.num_rows for batch in batches) <= 40
        read = pa.Table.from_batches(batches)
        wanted = table if columns is None else table.select(columns)
        assert read.cast(wanted.schema).equals(wanted)
    assert (max(map(len, filter(None, asked)), default=0) <= 3) == is_short
    assert (None in asked) != is_short


def test_columns_whose_names_have_dots_or_are_empty(tmp_path):
    table = pa.table({"a": [1], "a.b": [2], "": [3], "a b": [4]})
    source = Source.open(written(tmp_path / "x.parquet", table))
    for name in table.column_names:
        (batch,) = source.batches([name])
        assert batch.schema.names == [name]
        assert batch.column(0).to_pylist() == table[name].to_pylist()


def test_files_with_columns_in_another_order_are_read_in_the_first_one(tmp_path):
    table = table_of(10)
    written(tmp_path / "a.parquet", table)
    written(tmp_path / "b.parquet", table.select(["class", "row", "word"]))
    batches = list(Source.open(tmp_path).batches())
    assert [batch.schema.names for batch in batches] == [table.column_names] * 2
    path = written(tmp_path / "part[1]*.parquet", table_of(3))
    assert Source.open(path).n_rows == 3, "a path with marks of a glob that exists is that file"


def test_a_table_is_cut_into_fragments(monkeypatch):
    monkeypatch.setattr(source_module, "BATCH_ROWS", 16)
    table = pa.concat_tables([table_of(10), table_of(40, 10)])
    source = Source.of_table(table)
    assert [fragment.n_rows for fragment in source.fragments] == [16, 16, 16, 2]
    assert rows_of(source).equals(table.combine_chunks())
    assert not source.is_identified
    assert Source.of_table(table.slice(0, 0)).fragments == ()


def test_what_identifies_a_file(folder):
    path = folder / "a.parquet"
    before = Source.open(path).files[0]
    assert Source.open(path).files[0] == before
    assert (before.size, before.mtime_ns) == (path.stat().st_size, path.stat().st_mtime_ns)
    written(path, table_of(10).set_column(0, "row", pa.array(range(10, 20))))
    assert Source.open(path).files[0].footer_sha256 != before.footer_sha256


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("none.parquet", "none.parquet: no such file or folder"),
        *((glob, "matches no file") for glob in ("none/*.parquet", "*.csv", "[")),
        ("readme.txt", "readme.txt is empty or too short"),
        ("long.txt", "long.txt is not a Parquet file"),
        ("_SUCCESS", "_SUCCESS is empty or too short"),
        ("empty folder", "empty folder is a folder without files of a known format"),
        ("cut.parquet", "cut.parquet is not a Parquet file, or is truncated"),
        ("footer.parquet", "footer.parquet cannot be read as Parquet"),
        ("names.parquet", "names.parquet cannot be read as Parquet"),
    ],
)
def test_what_is_not_there_or_not_parquet_is_named(folder, named, says):
    (folder / "empty folder").mkdir()
    (folder / "long.txt").write_text("no rows at all\n" * 9)
    whole = (folder / "a.parquet").read_bytes()
    (folder / "cut.parquet").write_bytes(whole[:-20])
    length = int.from_bytes(whole[-8:-4], "little")
    (folder / "footer.parquet").write_bytes(whole[: -8 - length] + b"\xff" * length + whole[-8:])
    (folder / "names.parquet").write_bytes(whole.replace(b"word", b"wo\xff\xfe"))  # no text
    with pytest.raises(SourceError, match=says) as raised:
        Source.open(os.path.join(folder, named))
    assert named in raised.value.path


def test_two_columns_of_one_name_are_refused(tmp_path):
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])
    with pytest.raises(SourceError, match=r"x.parquet has two columns named 'x'\. Rename one"):
        Source.open(written(tmp_path / "x.parquet", table))
    with pytest.raises(SourceError, match="two columns named 'x'"):
        Source.of_table(table)


def test_files_that_disagree_are_named(tmp_path):
    written(tmp_path / "a.parquet", pa.table({"x": [1], "y": ["a"]}))
    for other, says in (
        (pa.table({"x": ["1"], "y": ["a"]}), r"b.parquet: column 'x' is string here but int64 in .*a.parquet"),
        (pa.table({"x": pa.array([1], pa.timestamp("us")), "y": ["a"]}), "column 'x' is timestamp"),
        (pa.table({"x": [[1]], "y": ["a"]}), "column 'x' is list<"),
        (pa.table({"x": [1]}), "b.parquet has no column 'y'"),
        (pa.table({"x": [1], "y": ["a"], "z": [0]}), "a.parquet has no column 'z'"),
    ):
        written(tmp_path / "b.parquet", other)
        with pytest.raises(SourceError, match=says):
            Source.open(tmp_path)


def test_types_of_one_family_may_differ(tmp_path):
    written(tmp_path / "a.parquet", pa.table({"x": [1], "y": ["a"]}))
    for x in (pa.array([1], pa.int16()), [1.5], pa.nulls(1), [1]):
        for y in (["a"], pa.nulls(1), pa.array(["a"]).dictionary_encode(), pa.array(["a"], pa.large_string())):
            written(tmp_path / "b.parquet", pa.table({"x": x, "y": y}))
            assert Source.open(tmp_path).n_rows == 2


def test_a_file_that_changes_or_vanishes_while_it_is_read_is_named(folder):
    source = Source.open(folder)
    written(folder / "a.parquet", table_of(11))
    with pytest.raises(SourceError, match=r"a.parquet has changed since it was opened\. Run the command again"):
        list(source.batches())
    os.remove(folder / "a.parquet")
    with pytest.raises(SourceError, match=r"a.parquet was removed"):
        list(source.batches())


@pytest.mark.parametrize(("compression", "seed"), [("none", 0), ("none", 1), ("zstd", 2), ("zstd", 3)])
def test_damage_in_the_middle_of_a_file_with_checksums_is_found(tmp_path, compression, seed):
    """Never a wrong number: a byte that was flipped in the pages is reported with the file and its row group."""
    path = tmp_path / "x.parquet"
    written(path, table_of(3000), compression=compression, row_group_size=1000, write_page_checksum=True)
    raw = bytearray(path.read_bytes())
    expected = rows_of(Source.open(path))
    end_of_pages = len(raw) - 8 - int.from_bytes(raw[-8:-4], "little")
    rng = np.random.default_rng(seed)
    errors = []
    for _ in range(12):
        damaged = bytearray(raw)
        damaged[int(rng.integers(4, end_of_pages))] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        try:
            assert rows_of(Source.open(path)).equals(expected), "a byte that nothing reads"
        except SourceError as error:
            errors.append(error)
    assert len(errors) > 6
    assert all(error.path == str(path) and "Restore the file from its source" in str(error) for error in errors)


def test_indices_beyond_their_dictionary_are_found(tmp_path):
    """Pages without checksums may be damaged so that only this gives it away."""
    path = tmp_path / "x.parquet"
    table = pa.table({"x": pa.array(["a", "b", "c"] * 500)})
    written(path, table, compression="none", write_statistics=False)
    raw = path.read_bytes()
    end_of_pages = len(raw) - 8 - int.from_bytes(raw[-8:-4], "little")
    n_damaged = 0
    for place in range(4, end_of_pages):
        path.write_bytes(raw[:place] + bytes([raw[place] ^ 0xFF]) + raw[place + 1 :])
        try:
            for batch in Source.open(path).batches():
                indices = batch.column(0).indices.drop_null().to_numpy()
                assert indices.max(initial=0) < len(batch.column(0).dictionary)
        except SourceError as error:
            n_damaged += "column 'x' is damaged" in str(error)
    assert n_damaged > 0


def test_a_file_whose_rows_are_lost_is_named(folder):
    """Before it was opened its footer still reads; afterwards it is another file, whatever its size and time say."""
    path = folder / "b.parquet"
    whole, times = path.read_bytes(), path.stat()
    source = Source.open(path)
    path.write_bytes(whole[:40] + b"\0" * (len(whole) - 40))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(SourceError, match=r"b.parquet has changed since it was opened\. Run the command again"):
        list(source.batches())
    footer = int.from_bytes(whole[-8:-4], "little") + 8
    path.write_bytes(whole[:40] + b"\0" * (len(whole) - 40 - footer) + whole[-footer:])
    with pytest.raises(SourceError, match=r"b.parquet: row group \d cannot be read .*Restore the file"):
        list(Source.open(path).batches())


@pytest.mark.parametrize("which", ["footer", "row groups"])
def test_a_footer_whose_row_groups_have_other_rows_is_refused(tmp_path, which):
    """It promised 2^60 rows, was registered with them, and trained from a hundred."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": ["u", "v"] * 50}), path, store_schema=False)
    content = path.read_bytes()
    length = int.from_bytes(content[-8:-4], "little")
    body, footer = content[: -8 - length], content[-8 - length : -8]
    many = bytes([0x16, *[0x80] * 8, 0x20])  # 2^60 as thrift writes it; b"\x16\xc8\x01" is 100
    assert footer.count(b"\x16\xc8\x01") >= 2
    if which == "footer":
        footer = footer.replace(b"\x16\xc8\x01", many, 1)
    else:
        begin, _, end = footer.rpartition(b"\x16\xc8\x01")
        footer = begin + many + end
    path.write_bytes(body + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(SourceError, match=r"has [\d,]+ rows by its footer, and its row groups have [\d,]+\. Restore"):
        Source.open(path)
