"""What is reused, added and subtracted gives the model that reading everything gives, bit for bit."""

import datetime
import pickle
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from learners.counts.family_counts import Family, FamilyCounts
from learners.errors import EmptyData, InvalidParameter, SourceError, UnknownColumn
from learners.passes.column_summaries import ColumnSummaries
from learners.passes.engine import collect
from learners.passes.learner import MemoryStore, Part, drive
from learners.passes.sources.parquet import ParquetContent
from learners.passes.sources.row_filter import Selection, select_newest_rows
from learners.passes.sources.source import Source, file_identity
from learners.passes.statistic_reuse import Recall, Supply
from learners.registry import recipes
from learners.schema import Kept, discretise
from tests.support.passes import OVERRIDES, START, User, days, learned, same, write

LEARNERS = [("nb", {}), ("tan", {}), ("kdb", {"k": 2}), ("kdb", {"k": 3, "estimator": "hdp-map"}), ("skdb", {"k": 2})]


@pytest.fixture
def folder(tmp_path):
    return days(tmp_path, 6)


@pytest.mark.parametrize(("name", "parameters"), LEARNERS)
def test_a_refresh_equals_training_from_scratch(folder, name, parameters):
    """New files bring a new category, the first nulls, and a new class; all of it in sorted domains as from scratch."""
    store = MemoryStore()
    first = learned(name, parameters, Source.open(folder), store=store)
    kept = Kept(first.schema)
    for day, change in enumerate(({}, {"values": ("b", "aa", "zz")}, {"nulls": True}, {"classes": ("maybe", "no")}), 6):
        write(folder, day, **change)
        source, accounts = Source.open(folder), []
        refreshed = learned(name, parameters, source, kept, store, accounts=accounts)
        assert same(refreshed, learned(name, parameters, source, kept))
        read = {account.stage: account.n_files_read for account in accounts}
        assert read["reading the domains"] == 1
        assert read["counting pairs" if name != "nb" else "counting families"] == 1
        kept = Kept(refreshed.schema)
    assert refreshed.schema.classes == ("maybe", "no", "yes")
    assert refreshed.schema.attributes[1].values == ("a", "aa", "b", "c", "zz")
    assert refreshed.schema.attributes[2].has_missing


def test_where_all_columns_are_nominal_a_refresh_equals_a_fresh_training(folder):
    """Without cut points to keep, nothing distinguishes the two, not even the schema."""
    overrides = OVERRIDES | {"number": "drop"}
    store = MemoryStore()

    def fit(source, kept, store):
        return drive(recipes.learner("kdb", {"k": 2}, "class", kept, overrides), [Part(source, store)])

    first = fit(Source.open(folder), None, store)
    write(folder, 6, values=("b", "aa", "zz"))
    assert same(fit(Source.open(folder), Kept(first.schema), store), fit(Source.open(folder), None, None))


@pytest.mark.parametrize(("name", "parameters"), LEARNERS)
def test_a_window_subtracts_what_leaves(folder, name, parameters):
    store, kept = MemoryStore(), None
    write(folder, 0, values=("b", "gone"))  # a category that leaves with its file
    for n_days in range(6, 9):
        source, accounts = Source.open(folder), []
        chosen = select_newest_rows(source, "3d", "time")
        model = learned(name, parameters, chosen.source, kept, store, chosen, accounts)
        assert same(model, learned(name, parameters, chosen.source, kept))
        if kept is not None and name in ("kdb", "tan"):
            pairs = next(account for account in accounts if account.stage == "counting pairs")
            assert pairs.n_rows_read <= 5 * 600, "the new file, the one at the edge, and what leaves"
        kept = kept or Kept(learned(name, parameters, source).schema)
        write(folder, n_days)


def test_a_window_of_days_holds_the_newest_rows(folder):
    table = pq.read_table(folder)
    times = np.array(table["time"].to_numpy())
    chosen = select_newest_rows(Source.open(folder), "36h", "time")
    rows = pa.Table.from_batches(chosen.source.batches())
    expected = times[times > times.max() - np.timedelta64(36, "h")]
    assert sorted(rows["time"].to_numpy()) == sorted(expected)
    assert select_newest_rows(Source.open(folder), "2f", None).wanted == {4: (), 5: ()}
    assert select_newest_rows(Source.open(folder), "100w", "time").wanted == dict.fromkeys(range(6), ())


def test_a_window_reads_times_that_the_footer_does_not_tell_and_leaves_out_rows_without_one(folder):
    for path in folder.glob("*.parquet"):
        pq.write_table(pq.read_table(path), path, row_group_size=250, write_statistics=False)
    assert list(select_newest_rows(Source.open(folder), "2d", "time").wanted) == [3, 4, 5]
    table = pq.read_table(folder / "00.parquet")
    times = table["time"].to_pylist()
    times[::2] = [None] * len(times[::2])
    pq.write_table(table.set_column(7, "time", pa.array(times)), folder / "00.parquet")
    chosen = select_newest_rows(Source.open(folder / "00.parquet"), "9d", "time")
    assert sum(batch.num_rows for batch in chosen.source.batches()) == 300


def test_windows_that_make_no_sense_are_refused(folder):
    source = Source.open(folder)
    for window, column, error, says in (
        ("3 days", None, InvalidParameter, "a number and a unit"),
        ("3d", "tim", UnknownColumn, "'tim' is not in the table"),
        ("3d", "number", SourceError, "column 'number' holds double, not timestamps"),
    ):
        with pytest.raises(error, match=says):
            select_newest_rows(source, window, column)
    with pytest.raises(EmptyData, match="No file has rows in the window"):
        Selection(source, {})


def times(folder, *columns, **how):
    """A folder with one file for each column of times."""
    folder.mkdir()
    for number, column in enumerate(columns):
        pq.write_table(pa.table({"t": column, "class": ["a"] * len(column)}), folder / f"{number}.parquet", **how)
    return Source.open(folder)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ([[datetime.time(1)]], r"holds time64\[us\], not timestamps or dates"),
        ([[datetime.date(2026, 1, 1)], [datetime.time(1)]], r"1.parquet.*holds time64\[us\]"),
        ([[datetime.timedelta(1)]], r"holds duration\[us\], not timestamps or dates"),
        ([pa.array([10**7], pa.int32()).cast(pa.date32())], "beyond the years 1 to 9999"),
        ([[START], pa.array([START], pa.timestamp("us", "UTC"))], "0.parquet.*no time zone here but one"),
    ],
)
def test_times_that_cannot_be_put_in_order_are_refused_in_words(columns, words, tmp_path):
    with pytest.raises(SourceError, match=words):
        select_newest_rows(times(tmp_path / "data", *columns), "3d", "t")


@pytest.mark.parametrize("has_footer", [True, False])
def test_a_window_knows_nanoseconds(tmp_path, has_footer):
    """Python has none: what the window's edge is must not depend on whether pandas tells it, nor on the footer."""
    moments = pa.array([-1, 1, 86_400 * 10**9 + 1, 3 * 86_400 * 10**9 + 1], pa.timestamp("ns"))
    source = times(tmp_path / "data", moments[:3], moments[3:], pa.nulls(2), write_statistics=has_footer)
    chosen = select_newest_rows(source, "3d", "t")
    assert sum(batch.num_rows for batch in chosen.source.batches()) == 2
    (since,) = chosen.wanted[0]
    assert since.implies(since.text) == since, "what is stored by this window is found again"
    assert list(select_newest_rows(source, "999999999w", "t").wanted) == [0, 1]


def test_what_joins_conditions_may_occur_in_one(folder):
    source, constant = Source.open(folder), User()
    constant.text = "not (x0 = 'a & b')"  # which looks like two
    chosen = Selection(source, {0: (constant,)})
    (identity,) = Supply(chosen.source, chosen).files
    kept, rest = chosen.divide(identity)
    assert kept == [identity]
    assert sum(batch.num_rows for batch in rest.batches()) == 0
    # Two conditions that read like the one are another part of the rows.
    halves = (SimpleNamespace(text="not (x0 = 'a", columns=()), SimpleNamespace(text="b')", columns=()))
    assert Supply(Selection(source, {0: halves}).source).files != {identity}


def test_parts_written_as_they_once_were_are_unknown(folder):
    source = Source.open(folder)
    chosen = Selection(source, {0: (User(),)})
    assert chosen.divide(f"{file_identity(source.files[0])}|{User.text}") is None


@pytest.mark.parametrize(("name", "parameters"), LEARNERS)
def test_rows_are_forgotten_by_subtracting_them(folder, name, parameters):
    store, source = MemoryStore(), Source.open(folder)
    kept = Kept(learned(name, parameters, source, store=store).schema)
    chosen = Selection(source, {0: (User(),), 1: (User(),), **dict.fromkeys(range(2, 6), ())})
    accounts = []
    model = learned(name, parameters, chosen.source, kept, store, chosen, accounts)
    rest = [pq.read_table(folder / f"{day:02d}.parquet") for day in range(6)]
    rest[:2] = [table.filter(pc.not_equal(table["user"], 3)) for table in rest[:2]]
    fresh = learned(name, parameters, Source.of_table(pa.concat_tables(rest)), Kept(model.schema))
    assert same(model, fresh)
    assert accounts[0].n_files_read == 2, "only the files that hold such rows"


class FoundUser(User):
    """The same, of a file in which the rows were found before."""

    def __init__(self, path):
        file = pq.ParquetFile(path)
        users = [file.read_row_group(group)["user"].to_numpy() for group in range(file.num_row_groups)]
        self.matches = {group: n for group, own in enumerate(users) if (n := int(np.count_nonzero(own == 3)))}

    def left_out(self):
        return self.matches


@pytest.mark.parametrize("most", [1 << 22, 100])
def test_rows_that_were_found_before_are_read_alone_and_once(folder, monkeypatch, most):
    monkeypatch.setattr("learners.passes.sources.source.MOST_HELD_CELLS", most)
    path = folder / "00.parquet"
    table = pq.read_table(path)
    order = pa.array(np.argsort(table["user"].to_numpy(), kind="stable"))
    pq.write_table(table.take(order), path, row_group_size=50)
    store, source = MemoryStore(), Source.open(folder)
    kept = Kept(learned("kdb", {"k": 2}, source, store=store).schema)
    found = FoundUser(path)
    chosen = Selection(source, {0: (found,), **dict.fromkeys(range(1, 6), ())})
    reads = []
    batches = ParquetContent.batches

    def counted(content, filesystem, file, row_group, columns):
        reads.append((file.path, row_group))
        return batches(content, filesystem, file, row_group, columns)

    monkeypatch.setattr(ParquetContent, "batches", counted)
    accounts = []
    model = learned("kdb", {"k": 2}, chosen.source, kept, store, chosen, accounts)
    assert {(str(path), group) for group in found.matches} == set(reads)
    n_groups = len(found.matches)
    if most == 100:
        assert len(reads) > n_groups and {one.n_rows_read for one in accounts} == {50 * n_groups}
    else:
        assert len(reads) == n_groups and {one.n_rows_read for one in accounts} == {sum(found.matches.values())}
    whole = file_identity(source.files[0])
    rest = chosen.divide(whole)[1]
    carved = pickle.loads(pickle.dumps(rest.carved([1])))  # as a worker of a cluster gets it
    assert [batch.to_pylist() for batch in carved.batches()] == [
        batch.to_pylist() for batch in rest.read(rest.fragments[1])
    ]
    plain = Selection(source, {0: (User(),), **dict.fromkeys(range(1, 6), ())})
    assert same(model, learned("kdb", {"k": 2}, plain.source, kept))


def test_a_lost_statistic_is_counted_again(folder):
    class Leaky(MemoryStore):
        def get(self, key):
            return None

    store, source = Leaky(), Source.open(folder)
    first = learned("kdb", {"k": 2}, source, store=store)
    assert same(first, learned("kdb", {"k": 2}, source, store=store))


def test_families_are_derived_from_larger_ones(folder):
    store, source = MemoryStore(), Source.open(folder)
    learned("kdb", {"k": 3}, source, store=store)
    accounts = []
    model = learned("kdb", {"k": 2}, source, store=store, accounts=accounts)
    assert all(account.n_rows_read == 0 for account in accounts)
    assert same(model, learned("kdb", {"k": 2}, source))


def test_values_that_no_longer_fit_share_a_code(folder):
    """At max_values, the rarest lose their own code; counts that were apart are added up."""
    store, source = MemoryStore(), Source.open(folder)
    parameters = {"k": 2, "max_values": 4}
    kept = Kept(learned("kdb", parameters, source, store=store).schema)
    write(folder, 6, values=("d", "e", "f"))
    source = Source.open(folder)
    model = learned("kdb", parameters, source, kept, store)
    assert model.schema.attributes[1].n_folded == 2
    assert same(model, learned("kdb", parameters, source, kept))


def test_fresh_cut_points_are_those_of_scratch_and_what_has_not_moved_is_not_counted_again(folder):
    """Old files are read again for the families of the column whose cut points moved, which is said before."""
    store, stages, accounts = MemoryStore(), [], []
    first = learned("kdb", {"k": 1}, Source.open(folder), store=store)
    write(folder, 6, classes=("no", "yes"), seed=99)
    source = Source.open(folder)
    learner = recipes.learner("kdb", {"k": 1}, "class", Kept(first.schema, "fresh"), OVERRIDES)
    parts = [Part(source, store)]
    model = drive(learner, parts, accounts=accounts, on_progress=lambda told: stages.append(told.stage))
    assert same(model, learned("kdb", {"k": 1}, source))
    assert first.schema.attributes[0].cuts != model.schema.attributes[0].cuts
    assert {account.stage: account.n_files_read for account in accounts}["reading the schema"] == 1
    words = "cut points moved: counting 'number' again in 4,200 rows"
    assert stages.index(words) < stages.index("counting pairs")


def test_families_without_the_column_that_moved_are_read_of_new_files_only(folder):
    counts, store = [], MemoryStore()
    first = learned("nb", {}, Source.open(folder), store=store)
    cuts = (0.0, *first.schema.attributes[0].cuts[1:])
    moved = replace(
        first.schema, attributes=(replace(first.schema.attributes[0], cuts=cuts), *first.schema.attributes[1:])
    )
    supply = Supply(Source.open(folder))

    def counted(statistic, source, key):
        counts.append((statistic.families, source.n_rows))
        return collect(statistic, source, threads=1)

    recall = Recall(supply, store, counted, lambda store_it: store_it())
    wanted = FamilyCounts(moved, [Family(i) for i in range(moved.n_attributes)])
    assert recall.statistic(wanted) == collect(wanted.empty(), Source.open(folder), threads=1)
    assert counts == [((Family(0),), 3600)]


@pytest.mark.parametrize(
    ("name", "parameters"), [("kdb", {"k": 2}), ("spn", {"structure": "hclt", "states": 2, "passes": 1})]
)
def test_auto_keeps_cut_points_until_they_cost_too_much(folder, name, parameters):
    store, target = MemoryStore(), "class" if name == "kdb" else None

    def fit(source, given, kept_in=None):
        return drive(recipes.learner(name, parameters, target, given, OVERRIDES), [Part(source, kept_in)])

    first = fit(Source.open(folder), None, store)
    write(folder, 6)
    source = Source.open(folder)
    near = fit(source, Kept(first.schema, "auto"), store)
    assert [own.cuts for own in near.schema.attributes] == [own.cuts for own in first.schema.attributes]
    fresh = fit(source, None)
    assert [own.cuts for own in near.schema.attributes] != [own.cuts for own in fresh.schema.attributes]
    assert same(near, fit(source, Kept(first.schema, "auto")))
    for day in range(7, 12):  # whose numbers all lie above the last cut point
        write(folder, day)
        table = pq.read_table(folder / f"{day:02d}.parquet")
        place = table.column_names.index("number")
        pq.write_table(table.set_column(place, "number", pc.add(table["number"], 100.0)), folder / f"{day:02d}.parquet")
    source = Source.open(folder)
    assert same(fit(source, Kept(near.schema, "auto"), store), fit(source, None))


def test_auto_misses_a_column_that_the_table_has_lost(folder):
    kept = learned("nb", {}, Source.open(folder)).schema
    for path in folder.glob("*.parquet"):
        pq.write_table(pq.read_table(path).drop_columns(["x3"]), path)
    with pytest.raises(UnknownColumn, match="Column 'x3' is not in the table"):
        learned("nb", {}, Source.open(folder), Kept(kept, "auto"))
    assert same(learned("nb", {}, Source.open(folder), Kept(kept, "fresh")), learned("nb", {}, Source.open(folder)))


def test_columns_of_too_many_numbers_to_subtract_are_read_again_alone(folder, monkeypatch):
    """Without the rows the histogram may be finer: nobody knows but who counts."""
    monkeypatch.setattr(discretise, "MAX_BINS", 256)
    store, source = MemoryStore(), Source.open(folder)
    overrides = {"time": "drop"}
    whole = collect(ColumnSummaries("class", overrides), source)
    assert whole.found["number"].histogram.level > 0 == whole.found["user"].histogram.level
    chosen = Selection(source, {0: (User(),), **dict.fromkeys(range(1, 6), ())})
    read = []

    def collected(statistic, rows, key):
        read.append((statistic.columns, rows.n_rows))
        return collect(statistic, rows)

    for supply in (Supply(source), Supply(chosen.source, chosen)):
        recall = Recall(supply, store, collected, lambda store_it: store_it())
        found = recall.statistic(ColumnSummaries("class", overrides))
    assert found == collect(ColumnSummaries("class", overrides), chosen.source)
    assert read[-1] == (["number", "class"], 3600)
    tables = [pq.read_table(path) for path in sorted(folder.iterdir())]
    tables[0] = tables[0].filter(pc.not_equal(tables[0]["user"], 3))
    left = Source.of_table(pa.concat_tables(tables))
    numbers = [
        each.build_schema().attributes[0] for each in (found, collect(ColumnSummaries("class", overrides), left))
    ]
    assert numbers[0] == numbers[1] and numbers[0].quantiles == numbers[1].quantiles


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        *LEARNERS,
        ("eskdb", {"members": 2}),
        ("auto", {"members": 2}),
        ("spn", {"structure": "hclt", "states": 2, "passes": 2}),
        ("spn", {"structure": "hclt", "states": 2, "learning": "adf"}),
    ],
)
def test_no_model_depends_on_the_order_of_the_columns(folder, name, parameters):
    table = pa.concat_tables([pq.read_table(path) for path in sorted(folder.iterdir())]).slice(0, 1500)
    models = [
        learned(name, parameters, Source.of_table(table.select(names)))
        for names in (table.column_names, table.column_names[::-1], sorted(table.column_names, key=hash))
    ]
    assert same(models[0], models[1]) and same(models[0], models[2])
