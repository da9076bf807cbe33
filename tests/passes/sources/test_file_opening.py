"""Files as one table: on any file system, with the columns of their folders, and of one shape where their columns differ."""

import datetime
import gzip
import pickle
import sys

import duckdb
import fsspec
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from fewpass import NB
from learners import encode, infer_schema
from learners.errors import InvalidParameter, SourceError
from learners.passes.sources.csv.types import declared_text_types
from learners.passes.sources.row_filter import select_newest_rows
from learners.passes.sources.source import Source, arrow_type_family, file_identity
from learners.schema import Schema
from tests.web import Quiet, serving

OLD = pa.table({"x": ["u", "v", "u", "v"], "y": ["a", "b", "a", "b"], "gone": [1, 2, 3, 4]})
NEW = pa.table({"y": ["a", "b"], "z": [0.5, None], "x": ["v", "u"]})
RULES = {"union": ["x", "y", "gone", "z"], "intersection": ["x", "y"], "first": ["x", "y", "gone"]}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(6)
    y = rng.integers(0, 2, 3000)
    size, count = rng.normal(y, 1.0), rng.integers(0, 5, 3000) + y
    return pa.table({"size": size, "count": count, "class": np.array(["no", "yes"])[y]})


class Server(Quiet):
    """Files with their length and ranges, redirections, and a file without ranges."""

    files: dict[str, bytes]

    def do_GET(self):
        content = self.files.get(self.path.partition("?")[0])
        if self.path == "/moved.parquet":
            self.send_response(302)
            self.send_header("Location", "/a.parquet")
            self.end_headers()
        elif content is None:
            self.send_error(404)
        elif "plain" in self.path:
            self.answer(200, content, {"Accept-Ranges": "none"})
        else:
            self.answer_with_ranges(content)

    do_HEAD = do_GET


@pytest.fixture(scope="module")
def web(table):
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=1000)
    parquet = sink.getvalue().to_pybytes()
    text = table.to_pandas().to_csv(index=False).encode()
    Server.files = dict.fromkeys(("/a.parquet", "/day=2026-01-01/b.parquet", "/plain.parquet"), parquet)
    Server.files |= {"/a.csv": text, "/plain.csv.gz": gzip.compress(text)}
    with serving(Server) as address:
        yield f"http://{address}"


@pytest.fixture
def memory(table):
    place = fsspec.filesystem("memory")
    for name in ("/set/a.parquet", "/set/deep/day=2026-01-01/b.parquet"):
        with place.open(name, "wb") as file:
            pq.write_table(table, file, row_group_size=1000)
    place.pipe("/text/a.csv", table.to_pandas().to_csv(index=False).encode())
    yield place
    for name in ("/set", "/text"):
        place.rm(name, recursive=True)


def rows_of(source):
    return pa.Table.from_batches(list(source.batches())).select(["size", "count", "class"])


@pytest.mark.parametrize(
    "uri", ["memory://set/a.parquet", "memory:///set/a.parquet", "memory://text/a.csv", "memory://set/*.parquet"]
)
def test_files_in_memory(uri, memory, table):
    source = Source.open(uri)
    assert rows_of(source)["count"].to_pylist() == table["count"].to_pylist()
    assert file_identity(source.files[0]) == file_identity(Source.open(uri).files[0])


@pytest.mark.parametrize("path", ["/a.parquet", "/a.parquet?version=3", "/a.csv", "/plain.csv.gz"])
def test_files_of_a_web_server(path, web, table):
    uri = web + path
    source = Source.open(uri)
    assert rows_of(source)["count"].to_pylist() == table["count"].to_pylist()
    expected = NB(m=1.0).fit(table, "class").predict_proba(table)
    assert np.array_equal(NB(m=1.0).fit(uri, "class").predict_proba(uri), expected)


def test_folders_of_a_web_server_and_in_memory_are_columns_too(web, memory):
    assert Source.open(f"{web}/day=2026-01-01/b.parquet").arrow_schema.names[-1] == "day"
    source = Source.open("memory://set/deep")
    assert source.n_rows == 3000 and "day" in source.arrow_schema.names


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/none.parquet", "no such file"),
        ("/plain.parquet", "cannot be read as Parquet"),
        (
            "/moved.parquet",
            "cannot be read in ranges, because its server sends no size or redirects. Use the final address, or download the file",
        ),
        ("/*.parquet", "matches no file|cannot be listed|no such file"),
    ],
)
def test_what_a_web_server_does_not_give_is_told(path, message, web):
    with pytest.raises(SourceError, match=message) as raised:
        Source.open(web + path)
    assert "\n" not in str(raised.value)


SCHEMES = r"is not a usable URI\. Give a path, or one of file://, s3://.*memory://, http://"


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        *(
            (uri, SCHEMES)
            for uri in ("local:///etc/passwd", "fsspec+file:///etc/passwd", "ftp://host/a.parquet", "://a")
        ),
        *((uri, SCHEMES) for uri in ("simplecache::memory://a", "carrier-pigeon://a/b.parquet")),
        ("file://relative/x.parquet", "is not a usable URI|no such file"),
        ([], "name at least one file, folder or glob"),
    ],
)
def test_what_names_no_file_is_refused(uri, says):
    with pytest.raises(SourceError, match=says):
        Source.open(uri)


def test_a_server_that_does_not_answer_and_a_missing_library_are_named(monkeypatch):
    with pytest.raises(SourceError, match=r"127.0.0.1:9/a.parquet"):
        Source.open("http://127.0.0.1:9/a.parquet")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(SourceError, match=r"needs more libraries .*pip install 'fewpass\[remote\]'"):
        Source.open("memory://a.parquet")


@pytest.fixture
def dated():
    rng = np.random.default_rng(9)
    y = rng.integers(0, 2, 600)
    day = [datetime.date(2026, 1, 1) + datetime.timedelta(days=int(d) % 5) for d in rng.integers(0, 3, 600) + y]
    region = np.array(["north", "south & east"])[(rng.random(600) < 0.2 + 0.6 * y).astype(int)]
    classes, size = np.array(["no", "yes"])[y], rng.normal(y, 1.0)
    return pa.table({"size": size, "class": classes, "day": day, "region": region, "number": y + 1})


def by_pyarrow(table, folder):
    schema = pa.schema([(name, table.schema.field(name).type) for name in ("day", "region")])
    pads.write_dataset(table, folder, format="parquet", partitioning=pads.partitioning(schema, flavor="hive"))


FOLDER_WRITERS = {
    "pyarrow": by_pyarrow,
    "duckdb": lambda table, folder: duckdb.sql(
        f"COPY (SELECT * FROM \"table\") TO '{folder}' (FORMAT parquet, PARTITION_BY (day, region))"
    ),
    "polars": lambda table, folder: pl.from_arrow(table).write_parquet(folder, partition_by=["day", "region"]),
}


@pytest.mark.parametrize("writer", FOLDER_WRITERS)
def test_a_partitioned_table_has_the_columns_of_its_folders(writer, dated, tmp_path):
    FOLDER_WRITERS[writer](dated, tmp_path / "set")
    for named in (tmp_path / "set", tmp_path / "set" / "*" / "*" / "*.parquet", tmp_path / "set" / "day=*" / "*" / "*"):
        source = Source.open(named)
        assert source.n_rows == 600 and source.arrow_schema.field("day").type == pa.date32()
        assert arrow_type_family(source.arrow_schema.field("region").type) == "text"
        names = ["size", "day", "region"]
        read = pa.Table.from_batches(source.batches(names))
        assert read.sort_by("size").to_pylist() == dated.select(names).sort_by("size").to_pylist()
    (batch,) = Source.open(next((tmp_path / "set" / "day=2026-01-02").rglob("*.parquet"))).batches(["day"])
    assert batch["day"].to_pylist() == [datetime.date(2026, 1, 2)] * batch.num_rows, "one file knows its folders too"
    model = NB(m=1.0).fit(tmp_path / "set", "class")
    assert {"day", "region"} & {attribute.name for attribute in model.model_.schema.attributes}
    expected = NB(m=1.0).fit(dated, "class")
    assert np.array_equal(model.predict_proba(dated), expected.predict_proba(dated))


def part_in(folder):
    """A file of two rows in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"a": [1, 2]}), folder / "part.parquet")
    return folder / "part.parquet"


@pytest.mark.parametrize(
    ("folders", "kind", "values"),
    [
        (["month=1", "month=12"], pa.int64(), [1, 12]),
        (["month=01", "month=12"], pa.string(), ["01", "12"]),
        (["month=01", "month=none"], pa.string(), ["01", "none"]),
        (["month=1", "month=__HIVE_DEFAULT_PARTITION__"], pa.int64(), [1, None]),
        (["rate=0.5", "rate=1"], pa.float64(), [0.5, 1.0]),
        (["town=S%C3%A3o%20Paulo", "town=a%2Fb"], pa.string(), ["São Paulo", "a/b"]),
        (["flag=true", "flag=false"], pa.bool_(), [True, False]),
        (["k=a=b", "k==c"], pa.string(), ["a=b", "=c"]),
        (["k=%FF", "k=%FE"], pa.string(), ["%FF", "%FE"]),  # no UTF-8: not both the same mark
        (["price$=1", "price$=2"], pa.int64(), [1, 2]),
    ],
)
def test_values_of_folders_have_one_type(folders, kind, values, tmp_path):
    for folder in folders:
        part_in(tmp_path / folder)
    source = Source.open([tmp_path / folder for folder in folders])
    name = folders[0].partition("=")[0]
    assert source.arrow_schema.field(name).type == kind
    assert [batch.column(0)[0].as_py() for batch in source.batches([name])] == values


def test_only_the_folders_right_above_the_files_are_columns_where_the_file_has_none(tmp_path):
    part = part_in(tmp_path / "run=5" / "tables" / "day=2026-01-01")
    assert Source.open(part).arrow_schema.names == ["a", "day"]
    part_in(tmp_path / "a=7")
    (batch,) = Source.open(tmp_path / "a=7").batches()
    assert batch.to_pydict() == {"a": [1, 2]}


def test_files_outside_the_folders_are_refused(tmp_path):
    for folder in (tmp_path, tmp_path / "day=2026-01-01"):
        part_in(folder)
    with pytest.raises(SourceError, match=r"part.parquet has no column 'day' and is not in a folder day="):
        Source.open(tmp_path)


def test_equal_files_of_different_days_are_different_files(tmp_path):
    """Statistics and rules of forgotten rows know files by their content, of which the folder is a part."""
    for day in ("2026-01-01", "2026-01-02"):
        part_in(tmp_path / f"day={day}")
    one, other = Source.open(tmp_path).files
    assert one.footer_sha256 != other.footer_sha256
    before = file_identity(one)
    part_in(tmp_path / "day=unknown")
    assert file_identity(Source.open(tmp_path).files[0]) != before, "the day is text now, and was a date"


def test_a_window_follows_the_folders(dated, tmp_path, monkeypatch):
    FOLDER_WRITERS["pyarrow"](dated, tmp_path)
    source = Source.open(tmp_path)
    monkeypatch.setattr(Source, "read", lambda *_: pytest.fail("the folder tells its day"))
    chosen = select_newest_rows(source, "2d", "day")
    days = {source.files[index].path.split("day=")[1][:10] for index in chosen.wanted}
    assert days == {"2026-01-03", "2026-01-04"}


def by_parquet(table, path):
    pq.write_table(table.set_column(table.column_names.index("x"), "x", table["x"].dictionary_encode()), path)


WRITERS = {
    "parquet": by_parquet,
    "csv": lambda table, path: table.to_pandas().to_csv(path, index=False),
    "jsonl": lambda table, path: table.to_pandas().to_json(path, orient="records", lines=True),
    "feather": pyarrow.feather.write_feather,
}


@pytest.fixture(params=WRITERS)
def files(request, tmp_path):
    for name, table in (("1", OLD), ("2", NEW)):
        WRITERS[request.param](table, tmp_path / f"{name}.{request.param}")
    return tmp_path / f"*.{request.param}"


def opened(files, columns=None, schema=None):
    return Source.open(files, types=declared_text_types(schema, columns))


def rows(source):
    return [row for batch in source.batches() for row in batch.to_pylist()]


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_says_which_columns_count(rule, files):
    source = opened(files, {"*": {"columns_of": rule}})
    assert source.arrow_schema.names == RULES[rule]
    expected = [{name: row.get(name) for name in RULES[rule]} for row in OLD.to_pylist() + NEW.to_pylist()]
    assert rows(source) == expected
    for name in ("x", RULES[rule][-1]):
        values = [value for batch in source.batches([name]) for value in batch[name].to_pylist()]
        assert values == [row[name] for row in expected]
    assert rows(pickle.loads(pickle.dumps(source.carved([1])))) == expected[4:]


def test_without_a_rule_the_error_names_files_and_options(files):
    with pytest.raises(SourceError) as refused:
        opened(files)
    for word in ("2.", "has no column 'gone', which", "1.", "{'*': {'columns_of': 'union'}}", "{'gone': 'drop'}"):
        assert word in str(refused.value)
    with pytest.raises(InvalidParameter, match=r"columns\['\*'\].columns_of"):
        opened(files, {"*": {"columns_of": "all"}})


@pytest.mark.parametrize("other", ["a.parquet", "./a.parquet", "below/../a.parquet", "*.parquet", ".", "file://{}"])
def test_a_file_that_is_named_in_two_ways_counts_once(other, tmp_path, monkeypatch):
    """Its rows counted twice where one name was relative and the other absolute."""
    (tmp_path / "below").mkdir()
    pq.write_table(OLD, tmp_path / "a.parquet")
    monkeypatch.chdir(tmp_path)
    place = str(tmp_path / "a.parquet")
    assert Source.open([place, other.format(place)]).n_rows == Source.open([other.format(place), place]).n_rows == 4


def test_a_link_to_a_file_is_a_file_and_two_dots_behind_a_link_lead_elsewhere(tmp_path):
    for folder in ("day=1", "other/below"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "day=2").symlink_to("day=1")
    (tmp_path / "link").symlink_to("other/below")
    pq.write_table(OLD, tmp_path / "day=1" / "a.parquet")
    days = Source.open([tmp_path / "day=1" / "a.parquet", tmp_path / "day=2" / "a.parquet"])
    assert days.n_rows == 8 and "day" in days.arrow_schema.names
    pq.write_table(OLD, tmp_path / "b.parquet")
    pq.write_table(OLD.slice(0, 3), tmp_path / "other" / "b.parquet")
    assert Source.open([tmp_path / "b.parquet", f"{tmp_path}/link/../b.parquet"]).n_rows == 7


def test_what_is_dropped_does_not_count(files):
    columns = {"z": "drop", "gone": {"drop": True}}
    schema = infer_schema(opened(files, columns), "y", columns)
    assert [attribute.name for attribute in schema.attributes] == ["x"]
    assert len(rows(opened(files, schema=schema))) == 6, "the model remembers what it dropped"
    with pytest.raises(SourceError, match="has no column 'gone'"):
        opened(files, {"z": "drop"})


@pytest.mark.parametrize("rule", RULES)
def test_a_file_of_which_other_columns_count_is_another_for_stored_statistics(rule, files):
    paths = [str(files).replace("*", name) for name in "12"]
    both = opened(paths, {"*": {"columns_of": rule}})
    for file, path in zip(both.files, paths, strict=True):
        alone = opened([path]).files[0]
        is_same = set(RULES[rule]) == set(opened([path]).arrow_schema.names)
        assert (file_identity(file) == file_identity(alone)) == is_same
        assert file.footer_sha256 == alone.footer_sha256, "rules of forgotten rows know it again"


def test_a_model_of_the_union_is_that_of_one_table_with_nulls(files):
    columns = {"*": {"columns_of": "union"}, "gone": {"cuts": [2.5]}, "z": {"cuts": [0.25]}}
    whole = pa.concat_tables([OLD, NEW], promote_options="default")
    model = NB(target="y", columns=columns).fit(str(files))
    expected = NB(target="y", columns=columns).fit(whole)
    assert model.predict_proba(whole).tolist() == expected.predict_proba(whole).tolist()
    assert model.predict_proba(str(files)).tolist() == expected.predict_proba(whole).tolist()
    assert Schema.from_json(model.model_.schema.to_json()).dialect.columns_of == "union"


def test_times_with_and_without_a_zone_are_of_one_clock(tmp_path):
    moments = pa.array([0, 90, 86_400], pa.timestamp("ms"))
    for name, times in (("1", moments), ("2", moments.cast(pa.int64()).cast(pa.timestamp("ms", "Europe/Berlin")))):
        pq.write_table(pa.table({"x": times, "y": ["a", "b", "b"]}), tmp_path / f"{name}.parquet")
    for said in ("nominal", {"cuts": [0.05, 80.0]}):
        schema = infer_schema(opened(tmp_path), "y", {"x": said})
        codes = [encode(batch, schema).x[0].tolist() for batch in opened(tmp_path).batches()]
        assert codes[0] == codes[1] and len(set(codes[0])) > 1
