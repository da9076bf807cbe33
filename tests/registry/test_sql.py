"""Networks as SQL, run by databases, against `predict_proba`."""

import datetime
import re
import sqlite3
from dataclasses import replace
from functools import partial

import duckdb
import numpy as np
import psycopg
import pyarrow as pa
import pytest
import sqlglot
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fewpass import ESKDB, KDB, NB, SKDB, TAN, FewPassClassifier, SumProductNetwork, XGBoost
from learners.classifiers.lookup import elimination
from learners.ensembles import large
from learners.ensembles.discriminants.gaussian import PREFIX
from learners.errors import InvalidParameter, UnknownColumn
from learners.passes.column_summaries import ColumnSummaries
from learners.passes.learner import drive
from learners.passes.sources.source import Source
from learners.registry import recipes
from learners.registry.kind import NoSQL
from learners.registry.later_rows import FewerSummaries
from learners.registry.model_kinds import kind_of
from learners.registry.sql import script, sql_networks, table_rows
from learners.registry.sql.dialects import DIALECTS, UnknownDialect, UnwritableText
from learners.registry.sql.encoding import UnsupportedColumn
from learners.registry.sql.script import TooLargeForSQL, sql_script
from learners.registry.sql.sql_networks import PoolInSQL
from learners.schema.encoding.encode import encode
from learners.schema.time_parts import CYCLES
from tests.support.tables_of_numbers import numbers_of

TOLERANCE = 1e-9
ODD, NUMBER = 'a "word"\'s\n; --', "Größe.x`"
LEARNERS = (
    NB,
    TAN,
    lambda: KDB(k=2),
    lambda: SKDB(k=2),
    lambda: KDB(k=1, estimator="hdp"),
    lambda: KDB(k=3, m=0.1),
    ESKDB,
)
SQLITE_TYPES = {"string": "TEXT", "double": "REAL", "float": "REAL"}
POSTGRES_TYPES = {
    "string": "TEXT",
    "double": "DOUBLE PRECISION",
    "bool": "BOOLEAN",
    "int8": "SMALLINT",
    "int64": "BIGINT",
    "timestamp[us]": "TIMESTAMP",
}


def in_duckdb(text, rows):
    with duckdb.connect() as database:
        database.register("rows", rows)
        database.execute(text)
        return database.execute("SELECT * FROM answers ORDER BY id").fetchall()


def declared(rows, dialect, types):
    return ", ".join(
        DIALECTS[dialect].identifier(field.name) + " " + types.get(str(field.type), "") for field in rows.schema
    )


def in_sqlite(text, rows):
    database = sqlite3.connect(":memory:")
    database.execute(f"CREATE TABLE rows ({declared(rows, 'sqlite', SQLITE_TYPES)})")
    values = zip(*(as_text(column.to_pylist()) for column in rows.columns), strict=True)
    database.executemany(f"INSERT INTO rows VALUES ({', '.join('?' * rows.num_columns)})", values)
    database.executescript(text)
    found = database.execute("SELECT * FROM answers ORDER BY id").fetchall()
    database.close()
    return found


def in_postgres(url, text, rows):
    with psycopg.connect(url, autocommit=True) as database:
        database.execute("SET enable_nestloop = off; SET jit = off")  # as docs/how-to/in-and-out.md advises
        database.execute("DROP SCHEMA IF EXISTS sql CASCADE; CREATE SCHEMA sql; SET search_path TO sql")
        database.execute(f"CREATE TABLE rows ({declared(rows, 'postgres', POSTGRES_TYPES)})")
        with database.cursor().copy("COPY rows FROM STDIN") as copy:
            for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
                copy.write_row(row)
        database.execute(text)
        database.execute("ANALYZE")
        return database.execute("SELECT * FROM answers ORDER BY id").fetchall()


def as_text(values):
    return [value.isoformat(" ") if isinstance(value, datetime.datetime) else value for value in values]


ENGINES = {"duckdb": in_duckdb, "sqlite": in_sqlite}


@pytest.fixture(scope="module")
def on_postgres(postgres):
    ENGINES["postgres"] = partial(in_postgres, postgres)


@pytest.fixture(params=["duckdb", "sqlite", "postgres"])
def dialect(request):
    if request.param == "postgres":
        request.getfixturevalue("on_postgres")
    return request.param


def answers_of(model, rows, dialect="duckdb", absent=()):
    rows = rows.append_column("id", pa.array(np.arange(rows.num_rows)))
    text = sql_script(model, name="answers", table="rows", dialect=dialect, key=["id"], absent=absent)
    found = ENGINES[dialect](text, rows)
    return [row[1] for row in found], np.array([row[2:] for row in found], np.float64)


def check(model, rows, dialect="duckdb", absent=()):
    expected = model.predict_proba(encode(rows, model.schema, with_class=False))
    labels, found = answers_of(model, rows, dialect, absent)
    assert np.abs(found - expected).max() <= TOLERANCE
    is_clear = np.sort(expected)[:, -1] - np.sort(expected)[:, -2] > TOLERANCE
    named = np.array(model.schema.class_values(), object)[expected.argmax(axis=1)]
    assert all(label == name for label, name, clear in zip(labels, named, is_clear, strict=True) if clear)


def table_of(seed, n_rows, nulls=0.1, unseen=False):
    """Words with quotes and other letters, numbers at cut points, booleans, whole numbers, moments; nulls and NaN."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n_rows)

    def words(values, noise):
        drawn = np.where(rng.random(n_rows) < noise, rng.integers(0, len(values), n_rows), y % len(values))
        return np.array(values, object)[drawn]

    def with_nulls(values, kind, share=nulls):
        return pa.array([None if r < share else v for r, v in zip(rng.random(n_rows), values, strict=True)], kind)

    kinds = ["u, 'v'", 'say "w"', "x\\\nü", "", *(["never; seen"] if unseen else [])]
    size = np.round(rng.normal(y, 1.0) * 4) / 4
    level = rng.integers(0, 4, n_rows) + y
    # So that attributes have several parents.
    other = np.where(rng.random(n_rows) < 0.1, rng.integers(0, 3, n_rows), (level + 2 * (size > 0)) % 3)
    last = np.where(rng.random(n_rows) < 0.1, rng.integers(0, 3, n_rows), (other + level) % 3)
    part = rng.normal(level, 1.0) + np.where(rng.random(n_rows) < 0.03, np.nan, 0.0)
    moments = [datetime.datetime(2020, 1, 1) + datetime.timedelta(seconds=float(60.25 * v)) for v in np.round(size * 8)]
    return pa.table(
        {
            ODD: with_nulls(words(kinds, 0.4), pa.string()),
            NUMBER: pa.array(size / 10, pa.float64()),
            "flag": with_nulls((size + rng.normal(size=n_rows) > 1).tolist(), pa.bool_(), nulls / 2),
            "level": pa.array((level + 2 * unseen).astype(np.int8)),
            "select": with_nulls(part, pa.float64()),
            "when": with_nulls(moments, pa.timestamp("us")),
            "other": pa.array(np.array(["p", "q", "r"])[other]),
            "last": pa.array(np.array(["s", "t", "u"])[last]),
            "class": pa.array(np.array(["no", "it's", "später"], object)[y]),
        }
    )


def with_holes(table, seed, share):
    """Nulls everywhere, also where training saw none."""
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            name: pa.array(
                [None if r < share else v for r, v in zip(rng.random(table.num_rows), column.to_pylist(), strict=True)],
                column.type,
            )
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
    )


@pytest.fixture(scope="module", params=LEARNERS)
def model(request):
    return request.param().fit(table_of(0, 400), "class").model_


def test_the_view_answers_as_the_model(model, dialect):
    rows = table_of(1, 150, unseen=True)
    check(model, pa.concat_tables([rows, with_holes(rows, 2, 0.3), with_holes(rows.slice(0, 40), 3, 0.8)]), dialect)


@pytest.fixture(scope="module")
def pool():
    return ESKDB().fit(table_of(0, 1000), "class").model_


@pytest.mark.parametrize("cells", [(0,), (40,), (4096,)])
def test_tables_of_a_pool_answer_alike_however_they_are_merged(cells, pool, monkeypatch):
    """By the codes of attributes, of views, or of both."""
    model = pool
    monkeypatch.setattr(sql_networks, "CELLS", cells)
    families = sql_networks.merge_pool_families(model)
    columns = {*families.order, *families.parents}
    n = model.schema.n_attributes
    assert (min(columns) < n, max(columns) >= n) == {0: (False, True), 40: (True, True)}.get(cells[0], (True, False))
    rows = table_of(1, 60, unseen=True)
    check(model, pa.concat_tables([rows, with_holes(rows, 2, 0.3)]))


@pytest.fixture(scope="module")
def auto():
    """The default, with trees."""
    model = FewPassClassifier().fit(table_of(3, 300), "class").model_
    assert model.correction is not None
    return model


def test_trees_answer_too(auto, dialect):
    rows = table_of(1, 60, unseen=True)
    check(auto, pa.concat_tables([rows, rows.slice(0, 20), with_holes(rows.slice(0, 40), 2, 0.3)]), dialect)


@pytest.mark.parametrize(("most", "of_large"), [(0, 1 << 20), (20, 1 << 20), (20, 40)])
def test_wide_sums_for_the_lesser_part_of_an_answer_are_looked_up(auto, most, of_large, dialect, monkeypatch):
    rows = with_holes(table_of(2, 60, unseen=True), 3, 0.1)
    codes = encode(rows, auto.schema, with_class=False)
    summed = auto.predict_proba(codes)
    for module in (elimination, sql_networks):
        monkeypatch.setattr(module, "MOST_ENTRIES", most)
        monkeypatch.setattr(module, "MOST_OF_LARGE", of_large)
    check(auto, rows, dialect)
    changed = np.abs(auto.predict_proba(codes) - summed).max(axis=1) > 1e-6
    assert 0 < changed.sum() < rows.num_rows


def test_a_query_that_reads_a_table_too_often_for_sqlite_is_refused(auto, monkeypatch):
    monkeypatch.setitem(DIALECTS, "sqlite", replace(DIALECTS["sqlite"], most_reads=1_000))
    sql_script(auto, name="answers", table="rows", dialect="duckdb")
    with pytest.raises(TooLargeForSQL, match="more than the 1,000 of sqlite"):
        sql_script(auto, name="answers", table="rows", dialect="sqlite")


@pytest.mark.parametrize("correction", ["drawn", "none"])
def test_discriminants_answer_too(correction, dialect):
    """Whole rows, rows that lack some columns, rows that lack all of them; with trees, and without but with a bound that acts."""
    model = FewPassClassifier(members=2).fit(numbers_of(5, 250), "class").model_
    assert model.discriminant is not None and model.schema.attributes[0].has_missing
    if correction == "none":
        header, arrays = model.to_arrays()
        bound = {f"{PREFIX}bound": np.array([0.5])}
        model = type(model).from_arrays(header | {"weights": None}, arrays | bound)
    rows = numbers_of(6, 40)
    check(model, pa.concat_tables([rows, with_holes(rows, 2, 0.4), with_holes(rows.slice(0, 5), 2, 1.0)]), dialect)


def test_trees_of_many_leaves_answer_too_or_tell_their_size(dialect, monkeypatch):
    """Those of a large table, which 300 rows are here: grown leaf by leaf, deeper than trees that are complete."""
    monkeypatch.setattr(large, "LARGE_ROWS", 300)
    made = recipes.learner("auto", {"members": 2, "effort": "high"}, "class")
    model = drive(made, Source.of_table(table_of(11, 2_000, nulls=0.02)))
    assert model.facts["correction"]["leaves"] == 64 and model.correction.forest.depths.max() > 6
    check(model, table_of(12, 60), dialect)
    monkeypatch.setattr(script, "MOST_CELLS", 1_000)
    with pytest.raises(
        TooLargeForSQL, match=r"The tables of the model have \d[\d,]* numbers, more than the 1,000 that SQL"
    ):
        sql_script(model, name="scores", table="new_rows")


def test_steps_that_are_too_many_to_nest_are_refused(auto, monkeypatch):
    n_steps = len(re.findall(r" AS (?:MATERIALIZED )?\(\n", sql_script(auto, name="a", table="b")))
    monkeypatch.setattr(script, "MOST_STEPS", n_steps)
    sql_script(auto, name="a", table="b")
    monkeypatch.setattr(script, "MOST_STEPS", n_steps - 1)
    with pytest.raises(TooLargeForSQL, match=rf"need {n_steps} steps in SQL, more than .* the learner kdb or skdb"):
        sql_script(auto, name="a", table="b")


def test_trees_that_are_large_are_refused(auto, monkeypatch):
    trees = PoolInSQL(auto).trees
    n_splits = sum(node.attribute >= 0 for node in trees.nodes)
    assert 0 < n_splits <= auto.correction.forest.attributes.size
    monkeypatch.setattr(script, "MOST_CELLS", 8 * n_splits)
    with pytest.raises(TooLargeForSQL, match="that SQL export allows"):
        sql_script(auto, name="a", table="b")


@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(
    make=st.sampled_from(LEARNERS),
    seed=st.integers(0, 2**31),
    nulls=st.sampled_from((0.0, 0.05, 0.4)),
    dropped=st.sets(st.sampled_from((ODD, NUMBER, "flag", "level", "select", "when", "other", "last")), max_size=5),
    dialect=st.sampled_from(["duckdb", "postgres", "sqlite"]),
)
def test_random_models_and_rows(on_postgres, make, seed, nulls, dropped, dialect):
    """Also of tables without some of the model's columns."""
    model = make().fit(table_of(seed, 200, nulls), "class").model_
    rows = with_holes(table_of(seed + 1, 60, 0.2, unseen=True), seed, 0.1)
    absent = [attribute.name for attribute in model.schema.attributes if attribute.name in dropped]
    check(model, rows.drop_columns(sorted(dropped)), dialect, absent)


def test_columns_of_every_type():
    """As Arrow's types come into DuckDB; numbers that the model takes as nominal values have NaN, too."""
    rng = np.random.default_rng(0)
    y, n = np.arange(400) % 2, 400
    steps = (rng.integers(0, 30, n) + 10 * y).tolist()
    start = datetime.datetime(1969, 12, 20)
    days = [start.date() + datetime.timedelta(days=step) for step in steps]
    moments = [start + datetime.timedelta(days=step, microseconds=step) for step in steps]
    whole = [float("nan") if step % 7 == 0 else float(step % 5) for step in steps]
    table = pa.table(
        {
            "day": pa.array(days, pa.date32()),
            "nano": pa.array(moments, pa.timestamp("ns")),
            "second": pa.array(moments, pa.timestamp("us")).cast(pa.timestamp("s"), safe=False),
            "zone": pa.array(moments, pa.timestamp("us", tz="Asia/Tokyo")),
            "decimal": pa.array([str(step / 4) for step in steps]).cast(pa.decimal128(9, 2)),
            "single": pa.array(steps, pa.float32()),
            "large": pa.array([2**63 + 2**40 * step for step in steps], pa.uint64()),
            "state": pa.array(whole, pa.float64()),
            "named day": pa.array([days[step % 4] for step in steps], pa.date32()),
            "word": pa.array([f"w{step % 6}" for step in steps]).dictionary_encode(),
            "byte": pa.array([step % 3 for step in steps], pa.uint8()),
            "class": y,
        }
    )
    nominal = {name: {"kind": "nominal"} for name in ("state", "named day")}
    model = KDB(k=1, columns=nominal).fit(table, "class").model_
    assert len(model.network.order) == 11
    check(model, pa.concat_tables([table, with_holes(table.slice(0, 100), 1, 0.2)]))


@pytest.mark.parametrize("part", CYCLES)
def test_parts_of_moments_are_those_of_the_model(part, dialect):
    random = np.random.default_rng(0)
    seconds = np.concatenate(
        [random.integers(-(10**9), 2 * 10**9, 300) * 1_000_000 + 250_000, np.arange(200) * 3_600_000_000]
    )
    y = np.array(["no", "yes"])[random.integers(0, 2, seconds.size)]
    rows = pa.table({"when": pa.array(seconds, pa.timestamp("us")), "x": random.integers(0, 9, seconds.size), "y": y})
    summaries = ColumnSummaries("y")
    summaries.update(rows.combine_chunks().to_batches()[0])
    schema = FewerSummaries.of(summaries, {"when": part}).build_schema(lambda *_: (2.0, 5.0))
    model = drive(recipes.learner("nb", {}, "y", schema), Source.of_table(rows), threads=1)
    assert model.schema.attributes[0].part == part
    check(model, rows.drop_columns(["y"]), dialect)


def test_classes_keep_their_type():
    table = table_of(0, 200)
    for values, kind in (([False, True], pa.bool_()), ([7, -3], pa.int64())):
        classes = pa.array([values[i % 2] for i in range(200)], kind)
        model = NB().fit(table.drop_columns("class").append_column("class", classes), "class").model_
        check(model, table_of(1, 50))


def test_a_row_that_neither_reading_of_its_null_allows_gets_the_class_shares(dialect):
    columns = {"u": ["a", "a", "b", "b"], "v": ["p", "p", "q", "q"], "w": ["x", None, "x", None]}
    training = {name: values * 10 for name, values in columns.items()} | {"class": ["A", "A", "B", "B"] * 10}
    fitted = NB(m=0).fit(pa.table(training), "class")
    rows = pa.RecordBatch.from_pydict({"u": ["a", "a", "a"], "v": ["q", "p", "p"], "w": [None, None, "x"]})
    check(fitted.model_, rows, dialect)


def test_a_model_of_no_column_gives_the_prior():
    rng = np.random.default_rng(0)
    table = pa.table({"x": rng.random(500), "class": rng.integers(0, 2, 500)})
    model = SKDB(k=1).fit(table, "class").model_
    assert not model.network.order
    check(model, table.slice(0, 5))


@pytest.mark.parametrize(("dialect", "n_columns"), [("duckdb", 55), ("sqlite", 120)])
def test_many_columns(dialect, n_columns):
    """More than a database joins at a time."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    columns = {f"x{i}": pa.array([f"v{v}" for v in (rng.integers(0, 3, 300) + y) % 3]) for i in range(n_columns)}
    model = TAN().fit(pa.table(columns | {"class": y}), "class").model_
    check(model, with_holes(pa.table(columns).slice(0, 40), 1, 0.1), dialect)


@pytest.mark.parametrize("make", [TAN, lambda: ESKDB(members=2)], ids=["tan", "eskdb"])
def test_look_ups_of_wide_models_need_one_join(make):
    """Databases plan each join: beyond those of values and of sums, their number does not grow with the families."""
    rng = np.random.default_rng(0)
    y, n_columns = rng.integers(0, 2, 300), 24
    columns = {
        f"x{i}": pa.array((rng.integers(0, 3, 300) + y) % 3, mask=rng.random(300) < 0.1 * (i % 2))
        for i in range(n_columns)
    }
    named = {name: pa.array([None if v is None else f"v{v}" for v in x.to_pylist()]) for name, x in columns.items()}
    model = make().fit(pa.table(named | {"class": y}), "class").model_
    writable = kind_of(model).sql(model)
    assert len(writable.used) == n_columns
    text = sql_script(model, name="a", table="b")
    of_sums = sum(len(families.order) + len(families.parents) for families in writable.summing)
    assert text.count(" JOIN ") - len(writable.used) - of_sums < 60
    check(model, with_holes(pa.table(named).slice(0, 30), 1, 0.05))


def test_rows_that_lack_too_much_have_no_answer(monkeypatch):
    """NULL, and never another number: the bound is on the values of missing parents together."""
    model = KDB(k=2).fit(table_of(0, 400, nulls=0.0), "class").model_
    rows = with_holes(table_of(1, 200, nulls=0.0), 2, 0.4)
    expected = model.predict_proba(encode(rows, model.schema, with_class=False))
    monkeypatch.setattr(table_rows, "MOST_COMBINATIONS", 3 * 20)
    labels, found = answers_of(model, rows)
    is_null = np.isnan(found).all(axis=1)
    assert 20 < is_null.sum() < 180 and np.abs(found - expected)[~is_null].max() <= TOLERANCE
    assert [label is None for label in labels] == is_null.tolist()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_is_written_with_its_quotes(dialect):
    model = TAN().fit(table_of(0, 400), "class").model_
    text = sql_script(model, name="mart.income", table="raw.people", dialect=dialect, key=["customer"])
    quoted = {"`": "`mart`.`income`", '"': '"mart"."income"'}[DIALECTS[dialect].quote]
    assert f"CREATE VIEW {quoted} AS" in text and "None" not in text and "nan," not in text
    backslashed = dialect in ("bigquery", "snowflake", "spark")
    assert (r"'it\'s'" if backslashed else "'it''s'") in text
    assert ("x\\\\\\n" if backslashed else "x\\\n") + "ü" in text
    read = sqlglot.parse(text, read=dialect)
    # A command is text that it did not parse.
    assert not any(isinstance(statement, sqlglot.exp.Command) for statement in read)
    assert sum(isinstance(statement, sqlglot.exp.Create) for statement in read) > 3


def test_numbers_are_exact_where_a_database_reads_decimals_inexactly():
    rng = np.random.default_rng(0)
    numbers = [*rng.normal(size=2000), *(10.0 ** rng.uniform(-300, 300, 2000)), 0.1, -2.5, 3.0, 5e-324, 0.0]
    database = sqlite3.connect(":memory:")
    for x in numbers:
        (read,) = database.execute(f"SELECT {DIALECTS['sqlite'].number(float(x))}").fetchone()
        assert read == x
    database.close()


def test_what_cannot_be_written_is_refused():
    table = table_of(0, 100)
    boosted, model = (estimator.fit(table, "class").model_ for estimator in (XGBoost(rounds=1), NB()))
    circuit = SumProductNetwork(states=2).fit(table.select(["other", "last"])).model_
    noise, y = np.random.default_rng(0).normal(size=200), np.arange(200) % 2
    of_cases = NB().fit(pa.table({"x": y + noise, "X": y - noise, "class": y}), "class").model_
    took = pa.array(1000 * y + np.arange(200) % 7, pa.duration("ms"))  # which databases read differently
    of_duration = NB().fit(pa.table({"took": took, "class": y}), "class").model_
    for own, parameters, error, message in (
        (
            boosted,
            {},
            NoSQL,
            r"A model of kind 'boosted-trees' cannot be exported as SQL. Train with learner nb, tan, kdb, skdb, eskdb or auto",
        ),
        (circuit, {}, NoSQL, "A model of kind 'circuit'"),
        (model, {"dialect": "oracle"}, UnknownDialect, r"Unknown dialect 'oracle'. Choose one of duckdb, postgres"),
        (model, {"absent": ["flagg"]}, UnknownColumn, r"'flagg' is not in the table .similar: flag"),
        (
            model,
            {"table": "b\0"},
            UnwritableText,
            "contains a zero character, which SQL cannot express. Replace it and train again",
        ),
        (model, {"key": [""]}, UnwritableText, "'' is no name of a column in duckdb. Replace it and train again"),
        (of_cases, {"key": ["id"]}, InvalidParameter, "the columns 'X' and 'x' have the same name in duckdb"),
        (of_duration, {}, UnsupportedColumn, r"Column 'took' had type duration\[ms\] in training, read as numeric"),
    ):
        with pytest.raises(error, match=message):
            sql_script(own, **{"name": "a", "table": "b"} | parameters)
    assert 't."" AS k0' in sql_script(model, name="a", table="b", key=[""], dialect="sqlite")
    assert "prediction_of_model" in sql_script(model, name="a", table="b", key=["Prediction"])
    assert "CREATE VIEW" in sql_script(of_cases, name="a", table="b", key=["id"], dialect="postgres")


def test_tables_that_are_too_large_are_refused(monkeypatch):
    model = KDB(k=2).fit(table_of(0, 400), "class").model_
    monkeypatch.setattr(script, "MOST_CELLS", 100)
    with pytest.raises(
        TooLargeForSQL,
        match=r"numbers, more than the 100 that SQL export allows. For DuckDB, write the script to a file",
    ):
        sql_script(model, name="a", table="b")


@pytest.mark.parametrize("key", [(), "rid"])
def test_classes_whose_names_differ_in_capitals_are_named_as_the_reason(key):
    table = pa.table({"a": ["x", "y"] * 50, "class": ["u", "U"] * 50, "rid": [str(i) for i in range(100)]})
    model = NB(m=1.0, columns={"rid": "drop"}).fit(table, "class")
    with pytest.raises(
        InvalidParameter, match=r"dialect='duckdb' .*'probability_U' and 'probability_u' .* names of these classes"
    ):
        model.to_sql("t", key=key)
