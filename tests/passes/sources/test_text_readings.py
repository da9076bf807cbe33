"""Dirty columns of CSV: what is said of them, and the options that read them."""

import re
from datetime import UTC, date, datetime, time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fewpass import NB, SumProductNetwork
from learners import Source, encode, infer_schema
from learners.errors import ColumnWarning, InvalidParameter, SourceError
from learners.passes.sources.csv.types import NULLS, declared_text_types, missing_value_hints, unused_csv_options
from learners.schema import Schema

MARKS = ["?", "-", ".", "None", "unknown", "(null)", "\\N", "NIL", "#DIV/0!"]


def written(path, values, other="y"):
    lines = [f"x;{other}", *(f"{value};{'ab'[2 * row // len(values)]}" for row, value in enumerate(values))]
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize("mark", MARKS)
def test_one_mark_among_numbers_is_told_with_its_row_and_the_option_reads_it(mark, tmp_path):
    values = [str(row) for row in range(400)]
    values[7] = mark
    path = written(tmp_path / "t.csv", values)
    source = Source.open(path)
    assert source.arrow_schema.field("x").type == pa.string(), "no option is taken silently"
    (hint,) = source.hints
    assert hint.startswith(f"{path}: 399 of 400 values of 'x' are numbers; row 8 holds {mark!r}.")
    for name in ("x", "*"):
        columns = {name: {"missing": [mark]}}
        source = Source.open(path, types=declared_text_types(None, columns))
        assert source.arrow_schema.field("x").type == pa.int64() and not source.hints
        assert next(source.batches())["x"].to_pylist() == [*range(7), None, *range(8, 400)]


@pytest.mark.parametrize(
    ("texts", "option", "numbers"),
    [
        (["1,5", "2,25", "-3,0"], {"decimal": ","}, [1.5, 2.25, -3.0]),
        (["1,234", "12", "1,234,567"], {"thousands": ","}, [1234, 12, 1234567]),
        (["1.234,5", "7,5", "1.000.000"], {"decimal": ",", "thousands": "."}, [1234.5, 7.5, 1e6]),
        (["1 234", "5", "12 000"], {"thousands": " "}, [1234, 5, 12000]),
        (["1\u00a0234,5", "5", "12\u202f000"], {"decimal": ",", "thousands": " "}, [1234.5, 5, 12000]),
        (["1'234.5", "1\u2019234'000"], {"thousands": "'"}, [1234.5, 1234000]),
        (["1_000", "7"], {"thousands": "_"}, [1000, 7]),
        (["12%", "7.5 %", "3"], {"unit": "%"}, [12, 7.5, 3]),
        (["-1.234,50 €", "5 €"], {"unit": "€", "decimal": ",", "thousands": "."}, [-1234.5, 5]),
        (["$1,234.50", "($5)", "-$7", "$-8"], {"unit": "$", "thousands": ",", "negative": "()"}, [1234.5, -5, -7, -8]),
        (["(12.5)", "3"], {"negative": "()"}, [-12.5, 3]),
        (["\u221212", "3"], {"negative": "\u2212"}, [-12, 3]),
    ],
)
def test_separators_are_told_and_read(texts, option, numbers, tmp_path):
    path = written(tmp_path / "t.csv", texts * 20)
    (hint,) = Source.open(path).hints
    assert all(f"{name!r}: {mark!r}" in hint for name, mark in option.items())
    source = Source.open(path, types=declared_text_types(None, {"x": option}))
    assert next(source.batches())["x"].to_pylist() == numbers * 20


def test_a_point_is_no_decimal_point_where_it_separates_thousands(tmp_path):
    path = written(tmp_path / "t.csv", ["1.234", "1.5"] * 10)
    source = Source.open(path, types=declared_text_types(None, {"x": {"decimal": ",", "thousands": "."}}))
    assert source.arrow_schema.field("x").type == pa.string()
    assert next(source.batches())["x"].to_pylist() == ["1.234", "1.5"] * 10, "texts stay as they are"


@pytest.mark.parametrize(
    "values", [["red", "blue"] * 9, ["A1", "7"] * 9, ["10.0.0.1", "10.0.0.2"] * 9, ["2024-01-01"] * 9]
)
def test_words_codes_and_dates_are_not_told(values, tmp_path):
    assert Source.open(written(tmp_path / "t.csv", values)).hints == []


@pytest.mark.parametrize(
    ("texts", "date_format", "first"),
    [
        (["01/31/2024", "12/1/2023"], "%m/%d/%Y", date(2024, 1, 31)),
        (["31.01.2024", "1.2.2024"], "%d.%m.%Y", date(2024, 1, 31)),
        (["2024/01/31", "2024/02/01"], "%Y/%m/%d", date(2024, 1, 31)),
        (["05-Jan-2024", "31-DEC-2023"], "%d-%b-%Y", date(2024, 1, 5)),
        (["5/10/18 4:01", "5/31/18 16:00"], "%m/%d/%y %H:%M", datetime(2018, 5, 10, 4, 1)),
        (["01:30 PM", "12:05 am"], "%I:%M %p", time(13, 30)),
        (
            ["2024-01-31T10:00:00Z", "2024-01-31", "2024-01-31 12:00+02:00"],
            "iso",
            datetime(2024, 1, 31, 10, tzinfo=UTC),
        ),
    ],
)
def test_forms_of_dates_are_told_and_read(texts, date_format, first, tmp_path):
    path = written(tmp_path / "t.csv", texts * 20)
    (hint,) = Source.open(path).hints
    assert str({"x": {"date_format": date_format}}) in hint
    for name in ("x", "*"):
        source = Source.open(path, types=declared_text_types(None, {name: {"date_format": date_format}}))
        assert next(source.batches())["x"][0].as_py() == first and not source.hints


def test_no_hint_counts_zero_values(tmp_path):
    (hint,) = Source.open(written(tmp_path / "t.csv", ["31.12.2024", "30.11.2024"] * 10)).hints
    assert "'x' holds texts such as '31.12.2024' (row 1), not dates or times. To read them all as dates" in hint


def test_words_that_may_mean_missing_are_named_and_the_option_reads_them(tmp_path):
    path = written(tmp_path / "t.csv", ["None", "ok", "NULL", "-"] * 10)
    schema = infer_schema(Source.open(path), "y")
    (hint,) = missing_value_hints(schema.attributes, [str(path)])
    assert hint.startswith("'None', '-' in column 'x': this counts as a value, not as missing. If it means missing: ")
    columns = {"x": {"missing": ["None", "-"]}}
    assert hint.endswith(f"columns={columns}.")
    read = infer_schema(Source.open(path, types=declared_text_types(None, columns)), "y", columns)
    assert not missing_value_hints(read.attributes, [str(path)])
    assert not missing_value_hints(schema.attributes, ["t.parquet"]), "where the option has no effect"


def test_the_page_on_text_files_lists_the_words_for_missing():
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "text-files.md").read_text()
    (listed,) = re.findall(r"Missing are empty values and (.*?)\. Other", page)
    assert {"", *re.findall("`(.*?)`", listed)} == set(NULLS)


def test_either_order_of_day_and_month_is_offered_and_no_day_is_moved(tmp_path):
    path = written(tmp_path / "t.csv", ["01/02/2024", "03/04/2024"] * 10)
    (hint,) = Source.open(path).hints
    first, second = ({"x": {"date_format": form}} for form in ("%m/%d/%Y", "%d/%m/%Y"))
    assert f"columns={first} or columns={second}" in hint
    wrong = written(tmp_path / "wrong.csv", ["01/31/2024"] * 9 + ["02/30/2024"])
    source = Source.open(wrong, types=declared_text_types(None, {"x": {"date_format": "%m/%d/%Y"}}))
    assert source.arrow_schema.field("x").type == pa.string(), "there is no such day"
    assert "9 of 10 values of 'x' are dates or times; row 10 holds '02/30/2024'." in source.hints[0]


def test_a_prediction_names_the_row_and_the_value_that_is_no_time_or_no_number(tmp_path):
    days = [f"{1 + row % 28}.{1 + row // 10}.2024" for row in range(100)]
    model = NB(target="y", columns={"x": {"date_format": "%d.%m.%Y"}}).fit(written(tmp_path / "t.csv", days))
    iso = written(tmp_path / "iso.csv", ["2024-01-31", "2024-02-01"])
    assert model.predict(iso).shape == (2,)
    says = r"needs times in column 'x'\. 4 of 5 values .*; row 2 holds '\?'.*'missing': "
    with pytest.raises(SourceError, match=says):
        model.predict(written(tmp_path / "later.csv", ["1.1.2024", "?", "3.1.2024", "4.1.2024", "5.1.2024"]))
    model = NB(target="y").fit(written(tmp_path / "t.csv", [str(row) for row in range(100)]))
    says = r"later\.csv: the model needs numbers in column 'x'\. 5 of 6 .*; row 3 holds '\?'"
    with pytest.raises(SourceError, match=says):
        model.predict(written(tmp_path / "later.csv", ["1", "2", "?", "4", "5", "6"]))


def test_options_of_all_columns_leave_dates_and_times_alone(tmp_path):
    (tmp_path / "t.csv").write_text("d;t;x\n" + "2024-01-31;10:30;1,5\n2024-02-01;11:30:10;?\n" * 5)
    source = Source.open(tmp_path / "t.csv", types=declared_text_types(None, {"*": {"decimal": ",", "missing": ["?"]}}))
    assert source.arrow_schema.types == [pa.date32(), pa.time32("s"), pa.float64()]
    plain = Source.open(tmp_path / "t.csv")
    told, found = next(source.batches()), next(plain.batches())
    assert told["d"].equals(found["d"]) and told["t"].equals(found["t"])
    assert told["x"].to_pylist() == [1.5, None] * 5


def test_the_model_reads_later_files_as_it_was_told_to(tmp_path):
    texts = ["1,5", "2,5", "?", "7,5"] * 30
    path = written(tmp_path / "t.csv", texts)
    columns = {"x": {"decimal": ",", "missing": ["?"]}}
    schema = infer_schema(Source.open(path, types=declared_text_types(None, columns)), None, columns)
    again = Schema.from_json(schema.to_json())
    assert again == schema and again.attributes[0].reading == schema.attributes[0].reading
    source = Source.open(path, types=declared_text_types(again))
    codes = encode(pa.Table.from_batches(source.batches()), again).x[0]
    assert codes[:4].tolist() == [1, 2, 0, schema.attributes[0].n_values - 1]
    assert source.files[0].footer_sha256 != Source.open(path).files[0].footer_sha256


def test_the_estimator_warns_and_takes_the_option(tmp_path):
    path = written(tmp_path / "t.csv", [*(str(row // 4) for row in range(99)), "?"])
    with pytest.warns(ColumnWarning, match="99 of 100 values of 'x' are numbers; row 100 holds"):
        NB(target="y").fit(path)
    model = NB(target="y", columns={"x": {"missing": ["?"]}}).fit(path)
    assert model.predict_proba(path).shape == (100, 2)


@pytest.mark.parametrize(
    "entry",
    [
        *({"missing": 3}, {"decimal": ";"}, {"thousands": "."}, {"decimal": ",", "thousands": ","}, {"unit": "5"}),
        *({"negative": "-"}, *({"date_format": wrong} for wrong in ("%d/%m", "%H", "%Q", 3))),
    ],
)
def test_wrong_options_are_refused_by_name(entry, tmp_path):
    with pytest.raises(InvalidParameter, match=rf"columns\['x'\]\.({'|'.join(entry)})"):
        declared_text_types(None, {"x": entry})


@pytest.mark.parametrize("value", ["01234", "007", "00.5", "0012"])
def test_digits_behind_a_leading_zero_are_text(value, tmp_path):
    source = Source.open(written(tmp_path / "t.csv", ["1234", value, "12"]))
    assert source.arrow_schema.field("x").type == pa.string()
    assert next(source.batches())["x"].to_pylist() == ["1234", value, "12"]
    assert not source.hints, "nothing is wrong with them"
    for values in (["0", "10"], ["0.5", "0"], ["-0.5", "0e3"]):
        lone = Source.open(written(tmp_path / "lone.csv", values))
        assert lone.arrow_schema.field("x").type in (pa.int64(), pa.float64()), "a lone zero is a number"


def test_folders_with_padded_names_are_text(tmp_path):
    for name in ("01234", "1234"):
        (tmp_path / f"zip={name}").mkdir()
        written(tmp_path / f"zip={name}" / "t.csv", ["1", "2"])
    source = Source.open(tmp_path)
    assert {value for batch in source.batches() for value in batch["zip"].to_pylist()} == {"01234", "1234"}


@pytest.mark.parametrize("kind", ["numeric", "nominal"])
def test_a_model_of_earlier_that_learned_padded_digits_as_numbers_reads_them_so(kind, tmp_path):
    (tmp_path / "month=01").mkdir()
    path = written(tmp_path / "month=01" / "t.csv", ["01", "02", "11"] * 10, other="class")
    table = pa.table({"x": [1, 2, 11] * 10, "month": [1, 2] * 15, "class": [1, 2, 1] * 10})
    x = {"cuts": [1.5]} if kind == "numeric" else kind
    schema = infer_schema(Source.of_table(table), "class", {"x": x, "month": "nominal"})
    batch = next(Source.open(path, types=declared_text_types(schema)).batches())
    assert batch["x"].to_pylist() == [1, 2, 11] * 10 and batch["month"].to_pylist() == [1] * 30
    assert encode(batch.select(["x"]), schema).x[0].tolist() == encode(table.select(["x"]), schema).x[0].tolist()


def test_na_in_quotes_is_text_in_a_column_of_text_and_missing_among_numbers(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('c,n,m\n"NA",1,"1"\nNA,"NA",""\n"",,"3"\n"DE",4,"4"\n')
    (batch,) = Source.open(path).batches()
    assert batch.to_pydict() == {"c": ["NA", None, None, "DE"], "n": [1, None, None, 4], "m": [1, None, 3, 4]}


@pytest.mark.parametrize("quote", ["", '"'])
def test_a_reader_follows_the_values_that_the_model_has_learned(quote, tmp_path):
    columns = {"c": ["NA", "DE", "FR"], "d": ["u", "v", None], "n": [1.5, 2.5, None], "y": ["NULL", "b", "b"]}
    table = pa.table({name: values * 9 for name, values in columns.items()})
    schema = infer_schema(Source.of_table(table), "y", {"n": {"cuts": [2]}})
    assert "NA" in schema.attributes[0].values and "NULL" in schema.classes
    path = tmp_path / "t.csv"
    text = "c,d,n,y\n'NA',u,1.5,'NULL'\nDE,v,NULL,b\nFR,'NA','NA',b\n,NULL,,b\n"
    path.write_text(text.replace("'", quote))
    (batch,) = Source.open(path, types=declared_text_types(schema)).batches()
    expected = {"c": ["NA", "DE", "FR", None], "d": ["u", "v", None, None]}
    assert batch.to_pydict() == expected | {"n": [1.5, None, None, None], "y": ["NULL", "b", "b", "b"]}
    first = table.slice(0, 3).set_column(2, "n", [[1.5, None, None]])
    assert encode(batch.slice(0, 3), schema).x.tolist() == encode(first, schema).x.tolist()


def test_options_that_do_nothing_are_named(tmp_path):
    table = pa.table({"x": [1.0, 2.0] * 20, "y": ["a", "b"] * 20})
    said = {"x": {"missing": ["?"]}, "*": {"decimal": ",", "columns_of": "union"}}
    message = "'missing' of column 'x', 'decimal' of all columns: no file is CSV"
    pq.write_table(table, tmp_path / "t.parquet")
    for data in (table, tmp_path / "t.parquet"):
        with pytest.warns(ColumnWarning, match=message):
            NB(columns=said).fit(data, "y")
    with pytest.warns(ColumnWarning, match="'missing' of column 'x'"):
        SumProductNetwork(columns=said, structure="chow-liu", passes=1).fit(table)
    path = written(tmp_path / "t.csv", ["1,5", "?"] * 20)
    assert unused_csv_options(said, [str(path), "t.parquet"]) == unused_csv_options({"x": "nominal"}, []) == []
