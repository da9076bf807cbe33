"""Files that other programs write otherwise: encodings, types that differ between files, packing and lines of JSON."""

import gzip
import json

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from fewpass import NB
from learners import Source
from learners.errors import SchemaError, SourceError, UnknownColumn
from learners.passes.learner import infer_schema
from learners.passes.sources.csv.types import declared_text_types

WORDS = ["ab", "abc", None, "x"] * 30


def rows_of(source, name):
    return [value for batch in source.batches([name]) for value in batch.column(0).to_pylist()]


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_texts_that_are_stored_as_differences_are_read(tmp_path, encoding):
    """Arrow does not read them as a dictionary."""
    path = tmp_path / "t.parquet"
    table = pa.table({"s": WORDS, "n": range(120)})
    pq.write_table(table, path, use_dictionary=False, column_encoding={"s": encoding, "n": "PLAIN"})
    source = Source.open(path)
    assert rows_of(source, "s") == WORDS and rows_of(source, "n") == list(range(120))
    assert pa.types.is_dictionary(next(source.batches()).column(0).type)


def test_parquet_v2_of_duckdb_is_read(tmp_path):
    path = tmp_path / "t.parquet"
    query = "SELECT 'value ' || (i * 7919) AS s FROM range(5000) t(i)"
    duckdb.sql(f"COPY ({query}) TO '{path}' (FORMAT parquet, PARQUET_VERSION 'V2')")
    assert rows_of(Source.open(path), "s") == [row[0] for row in duckdb.sql(query).fetchall()]


def written(tmp_path, **columns):
    paths = []
    for name, column in columns.items():
        paths.append(tmp_path / f"{name}.parquet")
        pq.write_table(pa.table({"x": column, "y": pa.array(["p", "q", "p"])}), paths[-1])
    return paths


def test_numbers_of_all_types_are_one_family(tmp_path):
    kinds = {"a": pa.int8(), "b": pa.int16(), "c": pa.int64(), "d": pa.float64()}
    files = {name: pa.array([1, 2, 3], kind) for name, kind in kinds.items()}
    source = Source.open(written(tmp_path, **files, e=pa.array([True, False, None])))
    assert source.arrow_schema.field("x").type == pa.int16()
    assert rows_of(source, "x") == [1, 2, 3] * 4 + [1, 0, None]
    both = Source.open(written(tmp_path, e=pa.array([True, False, None]), a=files["a"]))
    assert both.arrow_schema.field("x").type == pa.int64() and rows_of(both, "x") == [1, 0, None, 1, 2, 3]
    alone = Source.open(written(tmp_path, a=files["a"]))
    assert alone.arrow_schema.field("x").type == pa.int8()  # whose values are nominal


def test_types_that_disagree_are_refused_with_the_flag_to_copy_and_obey_drop(tmp_path):
    paths = written(tmp_path, a=pa.array([1, 2, 3]), b=pa.array(["1", "2", "3"]))
    with pytest.raises(SourceError, match=r"""or drop the column: columns=\{'x': 'drop'\}\.$"""):
        Source.open(paths)
    source = Source.open(paths, types=declared_text_types(None, {"x": {"drop": True}}))
    assert rows_of(source, "y") == ["p", "q", "p"] * 2


@pytest.mark.parametrize("values", [["x", 1941, None, "y"], [1, 2, True, "z"], [1.5, "z", 2, False]])
def test_json_lines_may_hold_numbers_among_texts(tmp_path, values):
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps({"t": value, "n": k}) + "\n" for k, value in enumerate(values)))
    expected = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
    source = Source.open(path)
    assert rows_of(source, "t") == expected and rows_of(source, "n") == [0, 1, 2, 3]


def test_json_lines_of_objects_among_texts_are_refused(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"t": "x"}\n{"t": {"a": 1}}\n')
    with pytest.raises(SourceError, match="changed from string to object"):
        Source.open(path)


class Keys(pe.KmsClient):
    def __init__(self, _):
        super().__init__()

    def wrap_key(self, key, _):
        return key

    def unwrap_key(self, key, _):
        return key


@pytest.mark.parametrize("column", [pa.array([1, 2]), pa.array(["x", "y"])])
@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_encrypted_parquet_is_called_so(tmp_path, plaintext_footer, column):
    """Arrow ends the process where the encodings of an encrypted column are asked for."""
    config = pe.EncryptionConfiguration(footer_key="f", column_keys={"c": ["a"]}, plaintext_footer=plaintext_footer)
    factory = pe.CryptoFactory(Keys)
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), config)
    path = tmp_path / "t.parquet"
    table = pa.table({"a": column})
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    with pytest.raises(SourceError, match=r"is encrypted, which fewpass cannot read. Write it without encryption"):
        list(Source.open(path).batches())


def test_csv_that_is_not_packed_as_its_name_says_is_told(tmp_path):
    plain, other = tmp_path / "t.csv.gz", tmp_path / "t.csv.bz2"
    plain.write_text("a,b\n1,2\n")
    other.write_bytes(gzip.compress(b"a,b\n1,2\n"))
    with pytest.raises(SourceError, match="is not compressed, although its name says gzip"):
        Source.open(plain)
    with pytest.raises(SourceError, match="is compressed by gzip, although its name says bz2"):
        Source.open(other)


def test_text_aligned_by_blanks_is_refused_and_one_column_of_words_is_not(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("name    age   city\nann     12    bern\nbob     7     kiel\n")
    with pytest.raises(SourceError, match="has columns aligned by spaces, which is not CSV"):
        Source.open(path)
    path.write_text("name\nann of bern\nbob  of kiel\n")
    assert rows_of(Source.open(path), "name") == ["ann of bern", "bob  of kiel"]


def test_a_first_line_that_holds_a_value_twice_may_be_no_header(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("1,2,1\n3,4,5\n")
    with pytest.raises(
        SourceError,
        match=r"""if the first line contains values instead of names, set columns=\{'\*': \{'header': 0\}\}""",
    ):
        Source.open(path)


def test_names_in_single_quotes_are_told_with_the_flag(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("'a','b'\n'x','y'\n'z','w'\n")
    assert (
        "the column names are in single quotes, and values may be too. To read them without quotes"
        in Source.open(path).hints[0]
    )
    read = Source.open(path, types=declared_text_types(None, {"*": {"quote": "'"}}))
    assert read.arrow_schema.names == ["a", "b"] and rows_of(read, "a") == ["x", "z"]


def test_iso_dates_as_text_are_read_where_a_model_needs_times():
    days = pd.to_datetime("2026-01-01") + pd.to_timedelta(np.arange(200), unit="D")
    late = np.where(np.arange(200) + np.arange(200) % 3 > 100, "p", "q")
    frame = pd.DataFrame({"day": days, "y": late})
    model = NB().fit(frame, "y")
    texts = frame.assign(day=days.strftime("%Y-%m-%d"))
    assert np.array_equal(model.predict_proba(texts), model.predict_proba(frame))
    texts.loc[3, "day"] = None
    assert model.predict_proba(texts).shape == (200, 2)
    texts.loc[4, "day"] = "soon"
    with pytest.raises(SchemaError, match=r"Column .day. holds .soon..*expects a time such as '2026-01-31T12:00'"):
        model.predict_proba(texts)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("'a','y'\n'u','p'\n'w','q'\n", r"""The quotes of "'y'" are part of the name: .* set columns=\{'\*': \{'quote': "'"\}\}"""),
        ('"a", "y"\n"u", "p"\n"w", "q"\n', r"""The blanks or quotes of ' "y"' are part of the name: .* behind the delimiters"""),
    ],
)  # fmt: skip
def test_a_target_whose_name_the_file_has_in_quotes_is_refused_with_the_remedy(tmp_path, text, remedy):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(UnknownColumn, match=remedy):
        infer_schema(Source.open(path), "y")
