"""Files of every format, written by other libraries: the same rows, the same models, and no silence."""

import bz2
import datetime
import gzip
import os
import pickle
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pytest

from fewpass import KDB
from learners.errors import SourceError, UnknownColumn
from learners.passes.sources.file_formats import FORMATS, FileFormat
from learners.passes.sources.source import Source, file_identity
from learners.passes.sources.tabular import BLOCK_BYTES


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(6)
    y = rng.integers(0, 2, 700)
    day = [datetime.date(2026, 1, 1) + datetime.timedelta(days=int(d)) for d in rng.integers(0, 30, 700) + y]
    words = np.array(["u", "v,w", 'say "x"'])[(rng.integers(0, 2, 700) + y) % 3]
    return pa.table(
        {
            "word": pa.array(words, mask=rng.random(700) < 0.1),
            "count": pa.array(rng.integers(0, 9, 700) + y, mask=rng.random(700) < 0.1),
            "size": pa.array(np.round(rng.normal(y, 1.0), 3), mask=rng.random(700) < 0.1),
            "flag": rng.random(700) < 0.3 + 0.4 * y,
            "day": pa.array(day, pa.date32()),
            "class": np.array(["no", "yes"])[y],
        }
    )


def by_duckdb(table, path, options):
    duckdb.sql(f"COPY \"table\" TO '{path}' ({options})")


def packed(module):
    def write(table, path):
        table.to_pandas().to_csv(str(path) + ".plain", index=False)
        with module.open(path, "wb") as file:
            file.write(Path(f"{path}.plain").read_bytes())

    return write


WRITERS = {
    "a.csv": lambda table, path: pl.from_arrow(table).write_csv(path),
    "b.csv": lambda table, path: table.to_pandas().to_csv(path, index=False),
    "c.csv": lambda table, path: by_duckdb(table, path, "FORMAT csv, HEADER"),
    "semicolon.csv": lambda table, path: table.to_pandas().to_csv(path, index=False, sep=";"),
    "e.tsv": lambda table, path: pl.from_arrow(table).write_csv(path, separator="\t"),
    "f.csv.gz": lambda table, path: table.to_pandas().to_csv(path, index=False, compression="gzip"),
    "g.csv.bz2": packed(bz2),
    "h.csv.zst": lambda table, path: by_duckdb(table, path, "FORMAT csv, HEADER, COMPRESSION zstd"),
    "i.jsonl": lambda table, path: by_duckdb(table, path, "FORMAT json"),
    "j.ndjson": lambda table, path: pl.from_arrow(table).write_ndjson(path),
    "k.json.gz": lambda table, path: by_duckdb(table, path, "FORMAT json, COMPRESSION gzip"),
    "l.json": lambda table, path: table.to_pandas().astype({"day": str}).to_json(path, orient="records", lines=True),
    "m.feather": lambda table, path: table.to_pandas().to_feather(path),
    "n.arrow": lambda table, path: pl.from_arrow(table).write_ipc(path, compression="zstd"),
    "o.orc": lambda table, path: table.to_pandas().to_orc(path),
    "p.parquet": lambda table, path: by_duckdb(table, path, "FORMAT parquet, ROW_GROUP_SIZE 200"),
}


def plain(table):
    """Its rows, with all numbers as floats."""
    numbers = {name: table[name].cast(pa.float64()).to_pylist() for name in ("count", "size")}
    return list(zip(*(table.to_pydict() | numbers).values(), strict=True))


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_that_another_library_has_written(name, table, tmp_path):
    path = tmp_path / name
    WRITERS[name](table, path)
    source = Source.open(path)
    assert source.n_rows == 700 and source.arrow_schema.names == table.column_names
    read = pa.Table.from_batches(list(source.batches()))
    days = [value.date() if isinstance(value, datetime.datetime) else value for value in read["day"].to_pylist()]
    assert plain(read.set_column(4, "day", pa.array(days, pa.date32()))) == plain(table)
    expected = KDB(k=1, m=1.0).fit(table, "class")
    model = KDB(k=1, m=1.0).fit(path, "class")
    assert np.array_equal(model.predict_proba(path), expected.predict_proba(table))
    assert np.array_equal(expected.predict_proba(path), expected.predict_proba(table))
    sent = pickle.loads(pickle.dumps(source.carved(range(len(source.fragments)))))
    assert pa.Table.from_batches(sent.batches(["class", "count"])).equals(read.select(["class", "count"]))
    with pytest.raises(UnknownColumn, match="'kount' is not in the table"):
        next(source.batches(["kount"]))


def test_types_are_found_in_all_rows_and_not_in_the_first_block(tmp_path):
    n = BLOCK_BYTES // 8
    (tmp_path / "a.csv").write_text("late,text,class\n" + "1,2,x\n" * n + "1.5,two,y\n")
    source = Source.open(tmp_path / "a.csv")
    assert source.arrow_schema.types == [pa.float64(), pa.string(), pa.string()]
    read = pa.Table.from_batches(list(source.batches()))
    assert read.num_rows == n + 1 and read["late"][n].as_py() == 1.5
    lines = '{"late": 1, "when": "2026-01-01"}\n' * (BLOCK_BYTES // 30)
    (tmp_path / "a.jsonl").write_text(lines + '{"late": 1.5, "when": "soon", "new": true}\n')
    source = Source.open(tmp_path / "a.jsonl")
    assert source.arrow_schema == pa.schema([("late", pa.float64()), ("when", pa.string()), ("new", pa.bool_())])
    last = list(source.batches())[-1]
    assert last.to_pylist()[-1] == {"late": 1.5, "when": "soon", "new": True}


TEXTS = [
    ["1", "", "007", "-3"],
    ["true", "yes"],
    ["2026-01-01T10:00:00Z", "2026-01-01"],
    ["1", "x"],
    ["2026-01-01", "1"],
]
NARROWEST = [
    *((values, pa.string()) for values in TEXTS),
    *((values, pa.float64()) for values in (["1", "2.5", "1e3", "nan"], ["9223372036854775808", "1"])),
    (["1", "", "7", "-3"], pa.int64()),
    (["true", "FALSE"], pa.bool_()),
    (["2026-01-01", "2026-02-28"], pa.date32()),
    (["2026-01-01", "2026-02-28 10:00:00"], pa.timestamp("us")),
    (["2026-01-01T10:00:00.123456789"], pa.timestamp("ns")),
    (["2026-01-01T10:00:00Z", "2026-01-01T10:00:00+02:00"], pa.timestamp("us", "UTC")),
    (["10:00:00", "11:30:00"], pa.time32("s")),
    (["", "NA"], pa.null()),
]


@pytest.mark.parametrize(("values", "kind"), NARROWEST)
def test_a_column_of_csv_has_the_narrowest_type_that_reads_all_of_it(values, kind, tmp_path):
    (tmp_path / "a.csv").write_text("\n".join(["column,other", *(f"{value},1" for value in values)]))
    source = Source.open(tmp_path / "a.csv")
    assert source.arrow_schema.field("column").type == kind
    read = pa.Table.from_batches(list(source.batches()))["column"]
    assert read.null_count == sum(value in ("", "NA", "nan") for value in values)


def test_types_that_are_told_are_not_looked_for(tmp_path):
    (tmp_path / "a.csv").write_text("zip,class\n01234,x\n99999,y\n")
    source = Source.open(tmp_path / "a.csv", types={"zip": pa.string()})
    assert next(source.batches(["zip"])).column(0).to_pylist() == ["01234", "99999"]
    with pytest.raises(SourceError, match=r"a\.csv: it cannot be read .*int64.*'x'"):
        list(Source.open(tmp_path / "a.csv", types={"class": pa.int64()}).batches())


def test_text_files_whose_columns_differ_are_text_in_all_of_them(tmp_path):
    (tmp_path / "a.csv").write_text("code,n,class\n1,1,x\n")
    (tmp_path / "b.csv").write_text("code,n,class\nA1,2.5,x\n")
    source = Source.open(tmp_path)
    assert source.arrow_schema.types == [pa.string(), pa.int64(), pa.string()]
    assert [batch.to_pylist()[0]["code"] for batch in source.batches()] == ["1", "A1"]
    alone = Source.open(tmp_path / "a.csv")
    assert file_identity(alone.files[0]) != file_identity(source.files[0]), "other values need another identity"


def test_the_identity_is_of_every_byte(table, tmp_path):
    """A change that keeps size and time of change is noticed, as Parquet's footer would tell."""
    for name in ("a.csv", "i.jsonl", "m.feather", "o.orc"):
        path = tmp_path / name
        WRITERS[name](table, path)
        before, stat = Source.open(path), path.stat()
        assert file_identity(Source.open(path).files[0]) == file_identity(before.files[0])
        content = bytearray(path.read_bytes())
        place = content.index(b"yes") if b"yes" in content else len(content) // 2
        content[place : place + 1] = b"Y"
        path.write_bytes(content)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        try:
            after = Source.open(path)
        except SourceError:
            continue
        assert (after.files[0].size, after.files[0].mtime_ns) == (before.files[0].size, before.files[0].mtime_ns)
        assert file_identity(after.files[0]) != file_identity(before.files[0]), name


BROKEN = {
    "empty.csv": (b"", "is empty"),
    "blank.csv": (b"\n\n", "is empty: it must begin with a line of names"),
    "twice.csv": (b"a,a\n1,2\n", "has two columns named 'a'"),
    "ragged.csv": (b"a,b\n1,2\n1\n", "cannot be read as CSV .*Expected 2 columns, got 1"),
    "latin.csv": ("a,b\n1,é\n".encode("latin-1"), "is not UTF-8 in line 2"),
    "cut.csv.gz": (gzip.compress(b"a,b\n" + b"1,2\n" * 5000)[:-20], "cannot be read as CSV"),
    "packed.csv": (
        b"\x1f\x8b\x08\0" + bytes(60),
        "is compressed by gzip. Rename it so that it ends in .csv.gz or .tsv.gz",
    ),
    "zip.csv": (b"PK\x03\x04\0" + bytes(60), "is a ZIP file"),
    "plain.csv.gz": (b"a,b\n1,2\n", "is not compressed, although its name says gzip"),
    "list.json": (b'[{"a": 1}, {"a": 2}]', "is a single JSON list. Write one object per line: jq"),
    "list.jsonl": (b'[{"a": 1}, {"a": 2}]', r"jq -c '\.\[\]' \S+/list\.jsonl > \S+/list\.lines\.jsonl$"),
    "pretty.json": (b'{\n "a": 1,\n', "cannot be read as JSON lines"),
    "empty.jsonl": (b"\n", "contains no JSON object"),
    "mixed.jsonl": (b'{"a": 1}\n{"a": [2]}\n', "cannot be read as JSON lines .*changed from number to array"),
    "other.feather": (b"no feather at all", "cannot be read as Feather"),
    "other.orc": (b"no ORC at all" * 9, "cannot be read as ORC"),
    "no ending": (b"a,b\n1,2\n" * 9, r"is not a Parquet file.* other formats must end in: \.parquet, \.pq, \.csv"),
    "table.parquet.gz": (gzip.compress(b"PAR1"), "is not a Parquet file"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_is_not_what_its_name_says_is_refused_by_name(name, tmp_path):
    content, message = BROKEN[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match=message) as raised:
        Source.open(tmp_path / name)
    assert name in str(raised.value) and "\n" not in str(raised.value)


def test_lines_far_apart_that_do_not_agree_are_refused_by_column(tmp_path, monkeypatch):
    monkeypatch.setattr("learners.passes.sources.json_lines.BLOCK_BYTES", 16)
    (tmp_path / "a.jsonl").write_text('{"b": null, "a": 1}\n' * 3 + '{"b": 2.5, "a": [1]}\n')
    with pytest.raises(SourceError, match=r"a\.jsonl: column 'a' is int64 in some lines and list<.* in others"):
        Source.open(tmp_path / "a.jsonl")


def test_numbers_far_from_texts_are_texts_too_and_that_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("learners.passes.sources.json_lines.BLOCK_BYTES", 16)
    (tmp_path / "a.jsonl").write_text('{"b": null, "a": 1}\n' * 3 + '{"b": 2.5, "a": "x"}\n')
    source = Source.open(tmp_path / "a.jsonl")
    assert [value for batch in source.batches(["a"]) for value in batch.column(0).to_pylist()] == ["1", "1", "1", "x"]
    assert "'a' contains numbers or booleans in some lines and text in others: all are read as text" in source.hints[0]


def test_a_folder_holds_one_format(table, tmp_path):
    WRITERS["a.csv"](table, tmp_path / "a.csv")
    WRITERS["b.csv"](table, tmp_path / "b.csv")
    (tmp_path / "readme.txt").write_text("no rows")
    assert Source.open(tmp_path).n_rows == 1400
    WRITERS["m.feather"](table, tmp_path / "m.feather")
    with pytest.raises(SourceError, match=r"is a folder with CSV and Feather files. Choose one format"):
        Source.open(tmp_path)
    assert Source.open(tmp_path / "*.csv").n_rows == 1400
    WRITERS["p.parquet"](table, tmp_path / "p.parquet")
    found = Source.open(tmp_path)
    assert found.n_rows == 700, "Parquet goes first"
    told = "reading only the Parquet files, not a.csv, b.csv, m.feather. Name all files to read them as one table."
    assert found.hints == [f"{tmp_path}: {told}"]


def test_files_of_several_formats_are_one_table(table, tmp_path):
    names = ["a.csv", "m.feather", "p.parquet"]
    for name in names:
        WRITERS[name](table, tmp_path / name)
    model = KDB(k=1, m=1.0).fit([tmp_path / name for name in names], "class")
    thrice = KDB(k=1, m=1.0).fit(pa.concat_tables([table] * 3), "class")
    assert np.array_equal(model.predict_proba(table), thrice.predict_proba(table))


def test_a_text_file_that_changes_between_two_passes_is_told(table, tmp_path):
    WRITERS["a.csv"](table, tmp_path / "a.csv")
    source = Source.open(tmp_path / "a.csv")
    with (tmp_path / "a.csv").open("a") as file:
        file.write("u,1,1.0,true,2026-01-01,no\n")
    with pytest.raises(SourceError, match="has changed since it was opened"):
        list(source.batches())


def test_lines_within_quotes_members_of_gzip_and_columns_without_a_name(tmp_path):
    (tmp_path / "a.csv").write_text('a,b\n"one\ntwo",1\n\n"three",2\n')
    assert [row["a"] for row in next(Source.open(tmp_path / "a.csv").batches()).to_pylist()] == ["one\ntwo", "three"]
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"a,b\n1,x\n") + gzip.compress(b"2,y\n"))
    assert Source.open(tmp_path / "b.csv.gz").n_rows == 2
    (tmp_path / "c.csv").write_bytes("\ufeffa,b\n1,x\n".encode())
    assert Source.open(tmp_path / "c.csv").arrow_schema.names == ["a", "b"]
    pd.DataFrame({"a": [1, 2]}).to_csv(tmp_path / "d.csv")
    assert Source.open(tmp_path / "d.csv").arrow_schema.names == ["", "a"], "pandas writes its index so"


def test_ten_thousand_columns_of_long_names_are_all_read(tmp_path):
    names = [f"{i:05d}" + "n" * 95 for i in range(10_000)]
    (tmp_path / "a.csv").write_text("\n".join([",".join(names), *(",".join(["7"] * 10_000) for _ in range(3))]))
    source = Source.open(tmp_path / "a.csv")
    assert source.arrow_schema.names == names
    (batch,) = source.batches()
    assert batch.num_columns == 10_000 and batch.num_rows == 3


def test_a_line_of_names_that_does_not_end_is_refused_before_pyarrow_reads_it(tmp_path):
    (tmp_path / "a.csv").write_text(",".join(f"{i:05d}" + "n" * 995 for i in range(9_000)))
    with pytest.raises(SourceError, match=r"a\.csv has a header line longer than 4 MiB"):
        Source.open(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('"a,b,c";d\n1;2\n', ["a,b,c", "d"]),
        ("a;b;c,d\n1,2\n3,4\n", ["a;b;c", "d"]),
        ('"one\ntwo;three;four",d\n1,2\n', ["one\ntwo;three;four", "d"]),
        ("a\u0085b,c\n1,2\n", ["a\u0085b", "c"]),
        ("x;y\n1,5;2,5\n", ["x", "y"]),
        ("a\tb,c\n1\t2\n", ["a", "b,c"]),
        ("a|b\n1|2\n", ["a", "b"]),
        ("alone\n1\n", ["alone"]),
    ],
)
def test_the_delimiter_is_the_one_that_cuts_all_rows_alike(text, names, tmp_path):
    (tmp_path / "a.csv").write_text(text)
    source = Source.open(tmp_path / "a.csv")
    assert source.arrow_schema.names == names
    assert next(source.batches()).num_columns == len(names)


def test_a_format_that_arrow_reads_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(FORMATS, "Record batches", FileFormat("Record batches", (".batches",), arrow="IpcFileFormat"))
    table = pa.table({"n": [1, 2, 3], "c": ["a", None, "b"]})
    feather.write_feather(table, tmp_path / "rows.batches", compression="uncompressed")
    source = Source.open(tmp_path / "rows.batches")
    assert [file.kind for file in source.files] == ["Record batches"]
    assert pa.Table.from_batches(source.batches()).equals(table)
