"""Passes: the same on any number of threads, stopped by an exception, and telling how far they are."""

import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learners import Source, encode, infer_schema
from learners.counts.pairwise import PairwiseCounts
from learners.errors import Cancelled, EmptyData, SchemaError, UnknownColumn
from learners.passes import engine
from learners.passes.engine import Progress, collect
from learners.passes.learner import MemoryStore, Part, drive
from learners.registry import recipes
from tests.processes import wait_for
from tests.support.passes import same

LEARNERS = [
    ("nb", {}),
    ("tan", {}),
    ("kdb", {"k": 2}),
    ("kdb", {"k": 3, "estimator": "m"}),
    ("kdb", {"k": 3, "m": 0.5}),
]
LEARNERS.append(("skdb", {"k": 2}))


def table_of(n_rows, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n_rows)
    number = np.where(rng.random(n_rows) < 0.1, np.nan, y + rng.normal(0, 0.7, n_rows))
    shares = rng.random(n_rows).tolist()
    return pa.table(
        {
            "number": pa.array(number, from_pandas=True),
            "word": [None if r < 0.05 else f"w{int(20 * r) % (3 + k)}" for r, k in zip(shares, y, strict=True)],
            "small": pa.array((y * rng.integers(0, 3, n_rows)).astype(np.uint8)),
            "flag": pa.array(rng.random(n_rows) < 0.2 + 0.2 * y),
            "many": pa.array([f"m{v}" for v in rng.zipf(1.4, n_rows) % 300]),
            "class": pa.array(["c", "a", "b"]).take(pa.array(y)),
        }
    )


@pytest.fixture
def folder(tmp_path):
    """Three files with several row groups each; the second has its columns in another order."""
    for i, n_rows in enumerate((3000, 1000, 2500)):
        table = table_of(n_rows, i)
        table = table.select(table.column_names[::-1]) if i == 1 else table
        pq.write_table(table, tmp_path / f"{i}.parquet", row_group_size=400)
    return tmp_path


class Store(MemoryStore):
    """What `drive` needs of a store; nothing is stored twice."""

    def put(self, key, table, **about):
        assert self.get(key) is None
        super().put(key, table, **about)

    def __len__(self):
        return len(self.entries())


def fit(source, name="nb", parameters=None, schema=None, overrides=None, **how):
    """What a learner makes of a source, or of parts."""
    return drive(recipes.learner(name, parameters or {}, "class", schema, overrides), source, **how)


@pytest.mark.parametrize(("name", "parameters"), LEARNERS)
def test_the_model_does_not_depend_on_the_number_of_threads(folder, name, parameters):
    one, *others = (fit(Source.open(folder), name, parameters, threads=threads) for threads in (1, 2, 5))
    assert one.facts["n_rows"] == 6500 and all(same(one, other) for other in others)


@pytest.mark.parametrize(("name", "parameters"), LEARNERS)
def test_the_model_of_parts_is_that_of_all_their_rows(folder, name, parameters):
    paths = sorted(str(path) for path in folder.glob("*.parquet"))
    whole = fit(Source.open(paths), name, parameters)
    assert same(whole, fit([Part(Source.open(paths[:1])), Part(Source.open(paths[1:]))], name, parameters))
    tables = [Part(Source.of_table(pq.read_table(path))) for path in paths]
    in_memory, rows = fit(tables, name, parameters), pq.read_table(paths[0])
    assert same(fit(tables, name, parameters, whole.schema), whole)
    expected = whole.predict_proba(encode(rows, whole.schema))
    assert np.array_equal(in_memory.predict_proba(encode(rows, in_memory.schema)), expected)


@pytest.mark.parametrize(("name", "parameters"), LEARNERS)
def test_a_store_gives_the_same_model_without_a_pass(folder, name, parameters):
    reports, store, source = [], Store(), Source.open(folder)
    plain = fit(source, name, parameters)
    first = fit(source, name, parameters, store=store, on_progress=reports.append)
    n_passes = recipes.learner(name, parameters, "class").n_passes
    assert {(report.pass_number, report.n_passes) for report in reports} == {(n + 1, n_passes) for n in range(n_passes)}
    assert len(store) == n_passes + 1, "the hold-out, drawn in a pass with others, is stored apart"
    reports.clear()
    again = fit(Source.open(folder), name, parameters, store=store, on_progress=reports.append)
    stages = {report.stage for report in reports}
    assert stages <= {"growing trees", "solving", "choosing m"}, "every statistic was found"
    assert same(plain, first) and same(plain, again)


def test_learners_share_passes(folder):
    store, source = Store(), Source.open(folder)
    fit(source, "kdb", {"k": 2}, store=store)
    n_stored = len(store)
    fit(source, "kdb", {"k": 3}, store=store)
    assert len(store) == n_stored + 1, "only the families differ"
    fit(source, "kdb", {"k": 3, "m": 1.0}, store=store)
    assert len(store) == n_stored + 1


def test_a_stored_statistic_is_not_used_for_other_questions(folder):
    """Other files, targets, kinds and dropped columns: other keys."""
    store, source, few = Store(), Source.open(folder), Source.open(folder / "0.parquet")
    for override in ({}, {"many": "drop"}, {"small": "numeric"}, {"many": {"kind": "nominal"}}):
        assert same(fit(source, overrides=override, store=store), fit(source, overrides=override))
    assert drive(recipes.learner("nb", {}, "flag"), source, store=store).schema.target == "flag"
    assert same(fit(few, store=store), fit(few))


def test_a_table_in_memory_is_not_stored():
    store = Store()
    fit(Source.of_table(table_of(500)), store=store)
    assert not store


def test_progress_grows_to_the_number_of_rows(folder, monkeypatch):
    monkeypatch.setattr("learners.passes.threads.REPORT_EVERY_S", 0.001)
    reports, read = [], Source.read_weighted

    def late_read(self, *where):
        """Nothing of a pass is read before its first report."""
        wait_for(lambda: reports and reports[-1].rows_done < reports[-1].rows_total)
        return read(self, *where)

    monkeypatch.setattr(Source, "read_weighted", late_read)
    fit(Source.open(folder), "kdb", {"k": 2}, threads=2, on_progress=reports.append)
    stages = list(dict.fromkeys(report.stage for report in reports))
    passes = ["reading the schema", "counting pairs", "counting families"]
    assert stages == [*passes, "growing trees", "solving"]
    for number, stage in enumerate(passes, 1):
        of_pass = [report for report in reports if report.stage == stage]
        assert {report.pass_number for report in of_pass} == {number}
        done, seconds = ([getattr(report, of) for report in of_pass] for of in ("rows_done", "seconds"))
        assert done == sorted(done) and seconds == sorted(seconds)
        assert done[0] < done[-1] == of_pass[-1].rows_total == 6500
    assert of_pass[-1].rows_per_s > 0 and of_pass[-1].eta_s == 0
    assert Progress("x", 1, None, 0, 10, 0.0).eta_s is None
    assert Progress("x", 1, None, 5, 10, 2.0).eta_s == 2.0


def passing_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("pass")]


class Slow(PairwiseCounts):
    """Counts, but from the third chunk on each takes until the pass is stopped."""

    n_updates = 0
    stopped: threading.Event

    def empty(self):
        return Slow(self.schema)

    def update(self, rows):
        Slow.n_updates += 1
        if Slow.n_updates > 2:
            Slow.stopped.wait(120)
        super().update(rows)


class Walk(engine._Walk):
    """One of which `Slow` knows when it is stopped."""

    def __init__(self, *of):
        super().__init__(*of)
        Slow.stopped, Slow.n_updates = self.stopped, 0


@pytest.mark.parametrize("error", [Cancelled("enough"), KeyboardInterrupt(), RuntimeError("no more disk")])
def test_raising_in_a_report_stops_all_threads_and_comes_out(folder, error, monkeypatch):
    monkeypatch.setattr("learners.passes.threads.REPORT_EVERY_S", 0.005)
    source = Source.open(folder)
    schema = infer_schema(source, "class")
    assert len(source.fragments) >= 17
    monkeypatch.setattr(engine, "_Walk", Walk)

    def cancel(progress):
        if progress.rows_done:
            raise error

    with pytest.raises(type(error)) as raised:
        collect(Slow(schema), source, threads=2, on_progress=cancel)
    assert raised.value is error and not passing_threads()
    assert Slow.n_updates <= 4, "each thread stopped after the chunk it was at"


def test_cancelling_a_learner_stores_only_whole_passes(folder):
    store = Store()

    def cancel(progress):
        if progress.pass_number == 2:
            raise Cancelled("enough")

    with pytest.raises(Cancelled, match="enough"):
        fit(Source.open(folder), "kdb", {"k": 2}, on_progress=cancel, store=store)
    assert len(store) == 1 and not passing_threads()
    assert same(*(fit(Source.open(folder), "kdb", {"k": 2}, store=of) for of in (store, None)))


def test_an_error_in_one_thread_stops_the_others(folder, monkeypatch):
    schema = infer_schema(Source.open(folder), "class")
    monkeypatch.setattr(engine, "_Walk", Walk)

    class Broken(Slow):
        def empty(self):
            return Broken(self.schema)

        def update(self, rows):
            super().update(rows)
            raise ZeroDivisionError("of one thread")

    with pytest.raises(ZeroDivisionError, match="of one thread"):
        collect(Broken(schema), Source.open(folder), threads=3)
    assert Slow.n_updates <= 3
    assert not passing_threads()


def test_a_null_class_in_a_later_file_is_named_with_the_file(folder):
    table = table_of(50).set_column(5, "class", pa.array([None] + ["a"] * 49))
    pq.write_table(table, folder / "3.parquet")
    with pytest.raises(SchemaError, match=r"3.parquet: The target 'class' is null in at least 1 row"):
        fit(Source.open(folder))


def test_a_given_schema_must_know_every_value(folder):
    schema = infer_schema(Source.open(folder), "class")
    strange = table_of(100).set_column(1, "word", pa.array(["strange"] * 100))
    pq.write_table(strange, folder / "4.parquet")
    with pytest.raises(SchemaError, match=r"4.parquet: column 'word' holds 'strange', which the given schema does not"):
        fit(Source.open(folder), schema=schema)
    other = table_of(100).set_column(5, "class", pa.array(["z"] * 100))
    with pytest.raises(SchemaError, match=r"class 'class' of a row is 'z'"):
        fit(Source.of_table(other), schema=schema)
    with pytest.raises(UnknownColumn, match="'word' is not in the table"):
        fit(Source.of_table(table_of(9).drop_columns(["word"])), schema=schema)


def test_no_rows(tmp_path):
    pq.write_table(table_of(5).slice(0, 0), tmp_path / "a.parquet")
    with pytest.raises(EmptyData, match=r"a.parquet: there are no rows to learn from"):
        fit(Source.open(tmp_path), "tan")
    pq.write_table(table_of(300), tmp_path / "b.parquet")
    assert fit(Source.open(tmp_path), "tan").facts["n_rows"] == 300


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_the_schema_does_not_depend_on_which_file_is_read_first(tmp_path, order):
    """int32 in one file and double in the other, nulls without a type in a third."""
    rng = np.random.default_rng(0)
    tables = {
        "a": pa.table({"x": pa.array(rng.integers(0, 9, 900), pa.int32()), "class": ["u", "v", "v"] * 300}),
        "b": pa.table({"class": ["v", "u"] * 450, "x": rng.normal(0, 1, 900).round(1)}),
    }
    for i, name in enumerate(order):
        pq.write_table(tables[name], tmp_path / f"{i}.parquet", row_group_size=100)
    pq.write_table(pa.table({"x": pa.nulls(9), "class": ["u"] * 9}), tmp_path / "2.parquet")
    texts = {infer_schema(Source.open(tmp_path), "class", threads=threads).to_json() for threads in (1, 2, 3) * 4}
    assert len(texts) == 1
