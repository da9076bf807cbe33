"""Dialects of CSV: what other programs write, what options read, and what is refused with the option that helps."""

import csv
import datetime
import io
from unittest import mock

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fewpass import NB, StructurePosterior, SumProductNetwork
from learners import Source, infer_schema
from learners.errors import InvalidParameter, SourceError, Surface, messages_for
from learners.passes.sources.csv import lines
from learners.passes.sources.csv.types import declared_text_types
from learners.schema import Schema

WORDS = ["u", "v,w", "x;y", 'say "hi"', "two\nlines"]
FRAME = pd.DataFrame({"word": WORDS * 4, "n": range(20), "class": ["a", "b"] * 10})
PLAIN = pd.DataFrame({"word": ["u", "v", "été"] * 4, "n": range(12), "class": ["a", "b", "a"] * 4})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "t.csv"


def read(path, columns=None):
    return pa.Table.from_batches(Source.open(path, types=declared_text_types(None, columns)).batches()).to_pydict()


def by_sqlite(frame):
    """As the shell of SQLite writes with .mode csv: CRLF, quotes only where they are needed."""
    file = io.StringIO(newline="")
    csv.writer(file).writerows([list(frame), *frame.itertuples(index=False)])
    return file.getvalue().encode()


def by_duckdb(frame, tmp_path, options):
    duckdb.sql(f"COPY frame TO '{tmp_path}/out' ({options})")
    return (tmp_path / "out").read_bytes()


def excel(frame, encoding, separator):
    return frame.to_csv(index=False, sep=separator, lineterminator="\r\n").encode(encoding)


WRITTEN = {  # the bytes, and what must be said of them
    "pandas, and COPY of PostgreSQL": lambda frame, _: (frame.to_csv(index=False).encode(), {}),
    "pandas, all quoted": lambda frame, _: (frame.to_csv(index=False, quoting=csv.QUOTE_ALL).encode(), {}),
    "pandas, tab": lambda frame, _: (frame.to_csv(index=False, sep="\t").encode(), {}),
    "pandas, escaped": lambda frame, _: (
        frame.to_csv(index=False, doublequote=False, escapechar="\\").encode(), {"escape": "\\"}),
    "pandas, no names": lambda frame, _: (frame.to_csv(index=False, header=False).encode(), {"header": 0}),
    "Excel, comma": lambda frame, _: (excel(frame, "utf-8-sig", ","), {}),
    "Excel, semicolon": lambda frame, _: (excel(frame, "utf-8-sig", ";"), {}),
    "Excel, sep=": lambda frame, _: (b"sep=;\r\n" + excel(frame, "utf-8", ";"), {}),
    "Excel, sep= of a rare kind": lambda frame, _: (b"sep=^\r\n" + excel(frame, "utf-8", "^"), {}),
    "Excel, Unicode text": lambda frame, _: (excel(frame, "utf-16", "\t"), {}),
    "Excel of old, Western": lambda frame, _: (excel(frame, "windows-1252", ";"), {"encoding": "windows-1252"}),
    "Excel of an old Mac": lambda frame, _: (
        frame.to_csv(index=False, sep=";", lineterminator="\r", quoting=csv.QUOTE_NONNUMERIC).encode("mac-roman"), {"encoding": "mac-roman"}),
    "R, write.csv2, and LibreOffice": lambda frame, _: (frame.to_csv(index=False, sep=";", quoting=csv.QUOTE_NONNUMERIC).encode(), {}),
    "PostgreSQL, quote and delimiter": lambda frame, _: (
        frame.to_csv(index=False, sep="|", quotechar="'").encode(), {"quote": "'"}),
    "SQLite": lambda frame, _: (by_sqlite(frame), {}),
    "DuckDB": lambda frame, tmp_path: (by_duckdb(frame, tmp_path, "FORMAT csv, HEADER, DELIMITER '|'"), {}),
    "Spark, quotes escaped": lambda frame, _: (
        frame.to_csv(index=False, doublequote=False, escapechar="\\", quoting=csv.QUOTE_NONNUMERIC).encode(), {"escape": "\\"}),
    "an instrument, with remarks": lambda frame, _: (
        b"# device 7\n# (c) 2024, all; of it\n" + frame.to_csv(index=False).replace("\nu", "\n# gap\nu").encode(), {"comment": "#"}),
    "an office, with lines above": lambda frame, _: (
        b"Table 3, of 2024\n\n" + frame.to_csv(index=False).encode(), {"header": 3}),
    "MySQL, caret": lambda frame, _: (frame.to_csv(index=False, sep="^").encode(), {"delimiter": "^"}),
    "Hive, control character": lambda frame, _: (frame.to_csv(index=False, sep="\x01").encode(), {"delimiter": "\x01"}),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_what_other_programs_write_is_read_equal_or_refused_with_the_option_that_helps(name, tmp_path):
    for frame in (FRAME, PLAIN):
        written, said = WRITTEN[name](frame, tmp_path)
        path = tmp_path / "t.csv"
        path.write_bytes(written)
        names = list(frame) if said.get("header") != 0 else ["column_1", "column_2", "column_3"]
        expected = dict(zip(names, (frame[column].tolist() for column in frame), strict=True))
        columns = read(path, {"*": said} if said else None)
        columns[names[0]] = [text.replace("\r\n", "\n") for text in columns[names[0]]]
        assert columns == expected


@pytest.mark.parametrize(
    ("written", "options"),
    [
        ("a;b\n1;é\n".encode("latin-1"), ['{"encoding": "windows-1252"}', "in line 2 (byte 0xE9)", "'é'"]),
        (b"a;b\n" + b"1;e\n" * 50_000 + b"2;caf\xe9\n", ['{"encoding": "windows-1252"}', "line 50,002", "'café'"]),
        ("é;b\n1;2\n".encode("utf-16-le"), ['{"encoding": "utf-16-le"}']),
        ("a;b\n1;2\n".encode("utf-16-be"), ['{"encoding": "utf-16-be"}']),
        (b'w,n\n"say ""hi""",1\n"say \\"hi\\", he said",1\n', ['{"escape": "\\\\"}']),
        (b"a^b\n1^2\n3^4\n", ['{"delimiter": "^"}']),
        (b'"a" "b"\n"1" 5 "x"\n"2" 6 "y"\n', ['{"delimiter": " "}']),
        (b"Table 3\na,b\n1,2\n", ['{"header": 2}', '{"comment": "#"}']),
        (b'"a","b"\n"1",5,"x"\n"2",6,"y"\n', ["col.names = NA"]),
        (b"a,a\n1,2\n", ['{"names": "unique"}']),
        (b"a,,\n1,2,3\n", ['{"names": "unique"}', "two columns without a name"]),
    ],
)  # fmt: skip
def test_an_error_names_the_option_that_reads_the_file(written, options, path):
    path.write_bytes(written)
    with messages_for(Surface.JSON), pytest.raises(SourceError) as refused:
        read(path)
    for option in options:
        assert option in str(refused.value)


def test_row_names_of_r_are_no_column_to_learn_from(path):
    rows = (f'"{row}","{"uv"[row % 2]}","{"ab"[row % 2]}"\n' for row in range(1, 61))
    path.write_text('"","colour","class"\n' + "".join(rows))
    schema = infer_schema(Source.open(path), "class")
    assert [a.name for a in schema.attributes] == ["colour"] and [entry.name for entry in schema.left_out] == [""]


@pytest.mark.parametrize(
    ("text", "said", "expected"),
    [
        ('7\t5" nail\t\\N\n\\N\t\\N\t2024-05-01\n', {"header": 0, "quote": "", "missing": ["\\N"]},
         {"column_1": [7, None], "column_2": ['5" nail', None], "column_3": [None, datetime.date(2024, 5, 1)]}),
        ("a,,a,column_2,a\n1,2,3,4,5\n", {"names": "unique"},
         {"a": [1], "column_2_2": [2], "a_2": [3], "column_2": [4], "a_3": [5]}),
        ('"a;b;c;d","x\ny",z\x85w\n1,2,"\x85"\n3,4,\u2028\n', {},
         {"a;b;c;d": [1, 3], "x\ny": [2, 4], "z\x85w": ["\x85", "\u2028"]}),
        ("a,b\né,1\n", {"encoding": "latin-1"}, {"a": ["é"], "b": [1]}),
    ],
    ids=["COPY of PostgreSQL as text", "names are told apart", "neither quotes nor marks of Unicode decide the delimiter",
         "what is UTF-8 is read so whatever is said"],
)  # fmt: skip
def test_what_is_written_so_is_read(text, said, expected, path):
    path.write_text(text, newline="")
    assert read(path, {"*": said} if said else None) == expected


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"])
def test_line_ends_of_any_machine(end, path):
    path.write_bytes(end.join(["# first", "a;b", "1;x", "# other", "2;y"]).encode())
    assert read(path, {"*": {"comment": "#"}}) == {"a": [1, 2], "b": ["x", "y"]}
    path.write_bytes(end.join(["a;b", "1;x", "2;y"]).encode())
    assert read(path) == {"a": [1, 2], "b": ["x", "y"]}


def test_a_quote_that_is_not_closed_swallows_no_rows(path):
    path.write_text('x,y\n1,a\n2,"b\n3,c\n4,d\n')
    with pytest.raises(
        SourceError,
        match=r"has an unclosed quote in its last row, 2, so all following lines would be one value. Close it, or treat quotes as characters.*'quote': ''",
    ):
        Source.open(path)
    path.write_text('x,y\n1,a\n2,"b\n\n"\n')
    assert Source.open(path).n_rows == 2


def test_a_comment_mark_within_quotes_is_text(path):
    path.write_text('a,b\n"one\n# two ""x""\n",1\n# three "\n5" nail,2\n# 3\n"y","6"\n#\n"z\n#, 7"" ",7')
    expected = {"a": ['one\n# two "x"\n', '5" nail', "y", 'z\n#, 7" '], "b": [1, 2, 6, 7]}
    for said in ({"comment": "#"}, {"comment": "#", "delimiter": ","}):
        assert read(path, {"*": said}) == expected
    path.write_text("a,b\n'one\\'\n# two',1\n# three\n'four',2\n")
    told = read(path, {"*": {"comment": "#", "quote": "'", "escape": "\\"}})
    assert told == {"a": ["one'\n# two", "four"], "b": [1, 2]}


def test_bytes_that_the_said_encoding_does_not_have_are_named(path):
    path.write_bytes(b"a,b\n" + b"x,1\n" * 9 + b"caf\x81,2\n")
    with pytest.raises(
        SourceError, match=r"is not CP1252 in line 11 \(byte 0x81\).*Remove the encoding setting, or set another"
    ):
        read(path, {"*": {"encoding": "windows-1252"}})


WRONG = {
    "delimiter": ["", ";;"],
    "quote": ["é"],
    "encoding": ["latin-99", "base64", "punycode", "unicode_escape"],
    "header": [-1, True],
    "comment": [3],
    "names": ["any"],
}
ENTRIES = [({field: value}, field) for field, values in WRONG.items() for value in values]


@pytest.mark.parametrize(("entry", "field"), [*ENTRIES, ({"delimiter": "'", "quote": "'"}, "differ")])
def test_wrong_options_are_refused_by_name(entry, field):
    with pytest.raises(InvalidParameter, match=field):
        declared_text_types(None, {"*": entry})
    with pytest.raises(InvalidParameter, match=r"set '\w+' for all columns, under '\*'"):
        declared_text_types(None, {"x": entry})


def test_the_model_reads_later_files_as_it_was_told_to(path):
    path.write_bytes(b"# x\nword^class\n" + "été^a\nhiver^b\n".encode("latin-1") * 20)
    columns = {"*": {"delimiter": "^", "encoding": "latin-1", "comment": "#"}}
    model = NB(target="class", columns=columns).fit(path)
    assert model.predict(path)[:2].tolist() == ["a", "b"]
    schema = infer_schema(Source.open(path, types=declared_text_types(None, columns)), "class", columns)
    again = Schema.from_json(schema.to_json())
    assert again.dialect == schema.dialect and again.attributes[0].values == ("hiver", "été")
    plain = infer_schema(Source.open(path, types=declared_text_types(None, columns)), "class")
    assert again.fingerprint == plain.fingerprint and "dialect" not in plain.to_json()
    kinds = (declared_text_types(None, {"*": columns["*"] | {"quote": ""}}), declared_text_types(again))
    assert len({Source.open(path, types=types).files[0].footer_sha256 for types in kinds}) == 2


def test_every_estimator_takes_the_dialect(path):
    path.write_text("# x\na^b\n" + "u^v\nw^z\nu^v\nw^v\n" * 20)
    columns = {"*": {"delimiter": "^", "comment": "#"}}
    assert StructurePosterior(columns=columns).fit(path).feature_names_in_ == ["a", "b"]
    assert np.isfinite(SumProductNetwork(passes=2, states=2, columns=columns).fit(path).score(path))


@st.composite
def dialects(draw):
    delimiter = draw(st.sampled_from(",;\t|^~:#"))
    quote = draw(st.sampled_from("\"'"))
    escape = draw(st.sampled_from(["", "\\"]))
    encoding = draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "latin-1", "windows-1252"]))
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    above = draw(st.lists(st.sampled_from(["", "a title, of 2024", "x;y;z"]), max_size=3))
    return delimiter, quote, escape, encoding, end, above


CELLS = st.text(st.sampled_from("abz,;\t|\"'\\#^~: \né"), max_size=6).map(lambda text: f"k{text}k")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    dialect=dialects(),
    block=st.sampled_from([1, 2, 7, lines.BLOCK_BYTES]),
    rows=st.lists(st.tuples(CELLS, CELLS, st.integers(-9, 9)), min_size=1, max_size=8),
)
def test_a_table_written_in_any_dialect_is_read_back_equal(dialect, block, rows, path):
    delimiter, quote, escape, encoding, end, above = dialect
    file = io.StringIO(newline="")
    writer = csv.writer(
        file, delimiter=delimiter, quotechar=quote, lineterminator=end, quoting=csv.QUOTE_ALL,
        doublequote=not escape, escapechar=escape or None,
    )  # fmt: skip
    writer.writerows([("first", "second one", "n"), *rows])
    path.write_bytes((end.join([*above, ""]) + file.getvalue()).encode(encoding))
    said = {"delimiter": delimiter, "quote": quote, "escape": escape, "encoding": encoding, "header": len(above) + 1}
    first, second, n = zip(*rows, strict=True)
    with mock.patch.object(lines, "BLOCK_BYTES", block):
        assert read(path, {"*": said}) == {"first": list(first), "second one": list(second), "n": list(n)}
