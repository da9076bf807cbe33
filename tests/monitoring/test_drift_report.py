"""Drifts of known cause are found, and named first."""

import re

import numpy as np
import pyarrow as pa
import pytest

from learners import Source, collect, drive
from learners.errors import EmptyData
from learners.monitoring.count_layout import Watched
from learners.monitoring.drift_report import drift_report
from learners.monitoring.reference import (
    estimated_class_shares,
    reference_class_shares,
    served_reference,
    training_reference,
)
from learners.monitoring.served_counts import ServedCounts
from learners.registry import recipes
from tests.monitoring import problems

N_ROWS = 12_000


@pytest.fixture(scope="module")
def watched():
    return Watched(problems.model())


@pytest.fixture(scope="module")
def scored(watched):
    return collect(ServedCounts(watched), Source.of_table(problems.rows(N_ROWS, 8)))


def replaced(table, name, values):
    return table.set_column(table.column_names.index(name), name, values)


def masked(table, name, share):
    rng = np.random.default_rng(0)
    return replaced(table, name, pa.array(table[name].to_pylist(), mask=rng.random(len(table)) < share))


def report(watched, scored, table):
    counts = collect(ServedCounts(watched, present=table.column_names), Source.of_table(table))
    return drift_report(counts, training_reference(watched, scored))


def unseen(table):
    rng = np.random.default_rng(0)
    towns = np.where(rng.random(len(table)) < 0.03, "oslo", table["town"].to_numpy(False))
    return replaced(table, "town", pa.array(towns))


DRIFTS = {
    "prior": (lambda t: problems.rows(N_ROWS, 9, 0.6), "class_mix", ()),
    "mechanism": (lambda t: replaced(t, "road", pa.array([*t["road"].to_pylist()[1:], "none"])), "mechanism", ("road",)),
    "missing": (lambda t: masked(t, "town", 0.05), "missing", ("town",)),
    "absent": (lambda t: t.drop_columns(["other"]), "absent", ("other",)),
    "unseen": (unseen, "unseen", ("town",)),
    "unit": (lambda t: replaced(t, "size", pa.array(t["size"].to_numpy() * 100)), "out_of_range", ("size",)),
    "clipped": (lambda t: replaced(t, "size", pa.array(np.minimum(t["size"].to_numpy(), 0.9))), "clipped", ("size",)),
}  # fmt: skip


@pytest.mark.parametrize("name", DRIFTS)
def test_the_cause_is_named_first(name, watched, scored):
    change, kind, columns = DRIFTS[name]
    found = report(watched, scored, change(problems.rows(N_ROWS, 9)))
    first = found["causes"][0]
    assert (found["is_drifting"], first["kind"], tuple(first["columns"])) == (True, kind, columns), found["causes"]


def test_a_date_at_which_a_column_is_cut_off_is_a_date():
    def timed(table):
        hours = np.round(table["size"].to_numpy() * 1000).astype(np.int64)
        return replaced(table, "size", pa.array(np.datetime64("2026-01-01", "s") + hours.astype("timedelta64[h]")))

    model = drive(recipes.learner("nb", {}, "class"), Source.of_table(timed(problems.rows(N_ROWS, 1))))
    watched = Watched(model)
    scored = collect(ServedCounts(watched), Source.of_table(timed(problems.rows(N_ROWS, 8))))
    late = problems.rows(N_ROWS, 9)
    found = report(watched, scored, timed(replaced(late, "size", pa.array(np.minimum(late["size"].to_numpy(), 0.9)))))
    words = [cause["words"] for cause in found["causes"] if cause["kind"] == "clipped"]
    assert len(words) == 1 and re.match(r"size never goes above 2026-0[12]-\d\d(T[\d:.]+)? any more", words[0]), found[
        "causes"
    ]
    found = report(watched, scored, timed(replaced(late, "size", pa.array(late["size"].to_numpy() + 100))))
    words = [cause["words"] for cause in found["causes"] if cause["kind"] == "out_of_range"]
    assert len(words) == 1 and words[0].startswith("size has times outside the range of training in more rows (+")
    assert words[0].endswith(": these are other days than those of training, or wrong times")
    found = report(watched, scored, timed(replaced(late, "size", pa.array(np.maximum(late["size"].to_numpy(), 0.9)))))
    first = found["causes"][0]
    assert (first["kind"], first["columns"]) != ("clipped", ["size"]) and "size" in first["words"], (
        "later rows begin later"
    )


def test_a_column_that_only_goes_on_is_no_broken_sensor(watched, scored):
    def words_of(shift):
        late = problems.rows(N_ROWS, 9)
        sizes = late["size"].to_numpy()
        return report(watched, scored, replaced(late, "size", pa.array(np.where(shift(sizes), sizes + 1000, sizes))))[
            "causes"
        ][0]["words"]

    assert words_of(lambda sizes: sizes > -np.inf).endswith(": the number grows with time, or has another unit")
    assert words_of(lambda sizes: sizes > 0).endswith(": another unit, or a broken sensor")


def test_nothing_alarms_where_nothing_has_changed(watched, scored):
    for seed in range(20, 26):
        found = report(watched, scored, problems.rows(3000, seed))
        assert (found["is_drifting"], found["causes"]) == (False, [])


def test_repeated_rows_are_told_and_do_not_pass_for_drift(watched, scored):
    table = problems.rows(6000, 30)
    burst = pa.concat_tables([table, *[table.slice(5, 1)] * 1500])
    found = report(watched, scored, burst)
    assert found["repeats_per_row"] > 100
    assert {one["kind"] for one in found["alarms"]} == {"repeats"}, found["alarms"]


def weak_rows(n_rows, seed, yes=0.5):
    """Columns that tell little of the class, so that its shares are hard to estimate from them."""
    rng = np.random.default_rng(seed)
    y = rng.random(n_rows) < yes
    columns = {name: rng.normal(0.25 * y, 1.0) for name in ("size", "age")}
    columns["town"] = np.where(rng.random(n_rows) < 0.3 + 0.06 * y, "bern", rng.choice(["kiel", "rome"], n_rows))
    return pa.table(columns | {"class": np.where(y, "yes", "no")})


@pytest.mark.parametrize("n_rows", [20, 50, 200, 1000])
@pytest.mark.parametrize("yes", [0.5, 0.05])
def test_estimated_class_shares_alarm_no_more_than_counted_ones(n_rows, yes):
    """They varied so much that up to half of such windows alarmed, without a cause."""
    few = Watched(drive(recipes.learner("nb", {}, "class"), Source.of_table(weak_rows(20_000, 1, yes))))
    reference = training_reference(few, collect(ServedCounts(few), Source.of_table(weak_rows(5000, 2, yes))))
    alarms = 0
    for seed in range(40):
        found = drift_report(collect(ServedCounts(few), Source.of_table(weak_rows(n_rows, 100 + seed, yes))), reference)
        assert found["is_drifting"] == bool(found["causes"])
        alarms += found["is_drifting"]
    assert alarms <= 2  # of 40: a rate of one in a hundred gives three or more in one of 130 trials


def test_one_row_is_too_few_to_drift_whatever_it_lacks():
    """The share of equal pairs divided by the number of pairs, which is 0."""
    table = weak_rows(2000, 1, 0.3)
    few = Watched(drive(recipes.learner("nb", {}, "class"), Source.of_table(table)))
    row = pa.table({"town": ["atlantis"], "size": pa.nulls(1, pa.float64()), "age": pa.nulls(1, pa.float64())})
    counts = collect(ServedCounts(few), Source.of_table(row))
    for reference in (training_reference(few), training_reference(few, counts)):
        assert not drift_report(counts, reference)["is_drifting"]


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_rows_without_a_value_say_nothing_of_the_class_shares():
    """The estimate divided by zero, since no value had any weight."""
    table = weak_rows(2000, 1, 0.3)
    few = Watched(drive(recipes.learner("nb", {}, "class"), Source.of_table(table)))
    empty = pa.table({name: pa.nulls(30, table[name].type) for name in table.column_names})
    reference = training_reference(few, collect(ServedCounts(few), Source.of_table(table)))
    shares = estimated_class_shares(collect(ServedCounts(few), Source.of_table(empty)), reference)
    np.testing.assert_allclose(shares, reference_class_shares(reference))


@pytest.mark.parametrize("n_distinct, n_copies", [(200, 10), (20, 10), (500, 10)])
def test_copies_of_all_rows_are_named_as_repeats_and_blame_no_column(n_distinct, n_copies, watched, scored):
    """The number of copies is an estimate that varies by up to a seventh from window to window, so the mean of eight is compared."""
    first, *others = (
        report(watched, scored, pa.concat_tables([problems.rows(n_distinct, seed)] * n_copies))
        for seed in range(40, 48)
    )
    assert [(one["kind"], one["columns"]) for one in first["causes"]] == [("repeats", ())]
    assert not any(column["is_alarming"] for column in first["columns"])
    assert np.mean([one["repeats_per_row"] for one in (first, *others)]) == pytest.approx(n_copies - 1, rel=0.1)


def customers_of(n_rows, seed):
    """Rows of customers with one to nine rows each, alike but not equal; each row by itself is drawn as training was."""
    rng = np.random.default_rng(seed)
    own = rng.permutation(np.repeat(np.arange(n_rows), rng.integers(1, 10, n_rows))[:n_rows])
    y = (rng.random(n_rows) < 0.5)[own]
    size = 1.5 * y + (rng.normal(size=n_rows)[own] + rng.normal(size=n_rows)) / np.sqrt(2)
    town, road = (rng.choice(["bern", "kiel", "rome"], n_rows)[own] for _ in range(2))
    return pa.table({"size": size, "town": town, "road": road, "class": np.where(y, "yes", "no")})


def independent(n_rows, seed):
    rng = np.random.default_rng(seed)
    y = rng.random(n_rows) < 0.5
    columns = {name: rng.choice(["bern", "kiel", "rome"], n_rows) for name in ("town", "road")}
    return pa.table({"size": 1.5 * y + rng.normal(size=n_rows), **columns, "class": np.where(y, "yes", "no")})


def test_an_alarm_says_how_many_rows_that_belong_together_would_explain_it():
    few = Watched(drive(recipes.learner("kdb", {"k": 1}, "class"), Source.of_table(independent(20_000, 1))))
    reference = training_reference(few, collect(ServedCounts(few), Source.of_table(independent(5000, 2))))

    def found(table):
        return drift_report(collect(ServedCounts(few), Source.of_table(table)), reference)

    windows = [found(customers_of(200, 100 + seed)) for seed in range(40)]
    alarms = [one for one in windows if any(cause["kind"] != "repeats" for cause in one["causes"])]
    assert len(alarms) >= 5  # rows of customers are taken for drift
    assert {one["rows_alike"] for one in alarms} <= {2, 3, 5, 10}
    assert all(f"if {one['rows_alike']} rows or more belong together" in one["note"] for one in alarms)
    table = independent(3000, 3)
    moved = found(table.set_column(0, "size", pa.array(table["size"].to_numpy() + 1.0)))
    assert (moved["is_drifting"], moved["rows_alike"]) == (True, None)  # no customers of ten rows explain that
    assert "note" not in moved
    assert found(independent(3000, 4))["rows_alike"] is None


def test_a_window_of_few_rows_does_not_alarm_and_says_why(watched, scored):
    broken = replaced(problems.rows(N_ROWS, 9), "size", pa.array(np.full(N_ROWS, 1e6)))
    for n_rows in (2, 19):
        found = report(watched, scored, broken.slice(0, n_rows))
        assert (found["is_drifting"], found["causes"], found["alarms"]) == (None, [], [])
        assert found["why"] == f"{n_rows} rows are too few: a test needs 20"
    assert report(watched, scored, broken.slice(0, 20))["is_drifting"] is True


@pytest.mark.parametrize("n_rows", [600, N_ROWS])
@pytest.mark.parametrize("name", ["beyond", "missing", "unseen"])
def test_of_few_columns_too_the_cause_is_named_first(name, n_rows):
    """Rows of three columns agree often, and more often once one has lost its variety: that is not a repetition."""
    columns = ["size", "town", "road", "class"]
    source = Source.of_table(problems.rows(N_ROWS, 1).select(columns))
    few = Watched(drive(recipes.learner("nb", {}, "class"), source))
    kept = collect(ServedCounts(few), Source.of_table(problems.rows(400, 8).select(columns)))
    beyond = (lambda t: replaced(t, "size", pa.array(t["size"].to_numpy() + 1000)), "out_of_range", ("size",))
    change, kind, blamed = {**DRIFTS, "beyond": beyond}[name]
    counts = collect(ServedCounts(few), Source.of_table(change(problems.rows(n_rows, 9).select(columns))))
    if name == "beyond":
        counts.block("statuses")[:] //= 32  # as of busy hours, in which the numbers of few rows are compared
    found = drift_report(counts, training_reference(few, kept))
    first = found["causes"][0]
    assert (first["kind"], tuple(first["columns"])) == (kind, blamed), found["causes"]
    same = report(few, kept, problems.rows(n_rows, 10).select(columns))
    assert not same["is_drifting"], same["causes"]


def test_families_of_drift_add_up(watched, scored):
    found = report(watched, scored, problems.rows(N_ROWS, 9, 0.6))
    assert found["drift_nats"] == pytest.approx(sum(column["family_nats"] for column in found["columns"]))
    assert sum(found["class_mix"]["estimate"]) == pytest.approx(1)
    assert found["class_mix"]["estimate"][1] == pytest.approx(0.6, abs=0.03)


def test_another_window_may_be_the_reference(watched, scored):
    counts = collect(ServedCounts(watched), Source.of_table(problems.rows(3000, 31)))
    found = drift_report(counts, served_reference("last week", scored))
    assert found["reference"] == {"name": "last week", "rows": N_ROWS}
    assert not found["is_drifting"]


def test_rows_whose_columns_no_longer_depend_on_each_other_are_rarer(watched, scored):
    rng, table = np.random.default_rng(0), problems.rows(N_ROWS, 9)
    shuffled = pa.table({name: table[name].take(pa.array(rng.permutation(N_ROWS))) for name in table.column_names})
    last = collect(ServedCounts(watched), Source.of_table(shuffled))
    for window, reference, words in ((last, scored, "rarer"), (scored, last, "more common")):
        causes = drift_report(window, served_reference("last week", reference))["causes"]
        (found,) = (cause["words"] for cause in causes if cause["kind"] == "surprise")
        assert re.match(rf"the model finds whole rows {words}: surprise [\d.]+ nats per row, [\d.]+ in the", found)


def test_no_rows_are_refused(watched, scored):
    with pytest.raises(EmptyData, match="no rows to compare"):
        drift_report(ServedCounts(watched), training_reference(watched, scored))
    with pytest.raises(EmptyData, match="The reference 'empty' has no rows"):
        drift_report(scored, served_reference("empty", ServedCounts(watched)))


def few_kinds(n_rows, seed, shift=0.0):
    """Five columns of which there are fewer than 500 different rows."""
    rng = np.random.default_rng(seed)
    y = rng.random(n_rows) < 0.3
    columns = {name: rng.choice(list("pqrs"), n_rows) for name in ("a", "b", "c")}
    columns["d"] = np.where(rng.random(n_rows) < 0.5 + 0.1 * y, "x", "z")
    columns["e"] = np.where(rng.random(n_rows) < shift, "u", rng.choice(list("uvw"), n_rows))
    return pa.table(columns | {"class": np.where(y, "yes", "no")})


def test_rows_of_few_kinds_that_repeat_are_no_drift_and_a_shift_of_one_column_is():
    model = Watched(drive(recipes.learner("nb", {"m": 1.0}, "class"), Source.of_table(few_kinds(20_000, 1))))
    kept = collect(ServedCounts(model), Source.of_table(few_kinds(5000, 2)))
    blamed = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        places = np.repeat(np.arange(1000), rng.integers(1, 10, 1000))[:2000]
        found = report(model, kept, few_kinds(1000, 100 + seed).take(pa.array(places)))
        blamed += [cause["kind"] for cause in found["causes"] if cause["kind"] != "repeats"]
        shifted = report(model, kept, few_kinds(2000, 100 + seed, shift=0.3))
        assert shifted["causes"] and shifted["causes"][0]["columns"] == ("e",), shifted["causes"]
    assert len(blamed) <= 1, blamed


@pytest.mark.parametrize("has_rows_kept_back", [True, False])
def test_a_column_of_more_values_than_are_kept_does_not_drift_by_itself(has_rows_kept_back):
    """Training keeps the values that were frequent in its own rows, which are less frequent in others."""
    random = np.random.default_rng(0)

    def rows(n, n_values=3000):
        code = random.integers(0, n_values, n).astype(str)
        return pa.table({"code": code, "y": np.where(random.random(n) < 0.3, "p", "q")})

    watched = Watched(drive(recipes.learner("kdb", {}, "y"), Source.of_table(rows(8000))))
    assert watched.codes.attributes[0].n_folded
    kept = collect(ServedCounts(watched), Source.of_table(rows(2000))) if has_rows_kept_back else None
    same = report(watched, kept, rows(5000).drop_columns(["y"]))
    assert not same["causes"]
    other = report(watched, kept, rows(5000, 300).drop_columns(["y"]))
    assert bool(other["causes"]) == has_rows_kept_back


@pytest.mark.parametrize("shift", [-50, 50])
def test_a_column_that_has_left_its_intervals_is_not_cut_off(watched, scored, shift):
    """As a running number, whose new values all lie in the outermost interval."""
    table = problems.rows(N_ROWS, 9)
    found = report(watched, scored, replaced(table, "size", pa.array(table["size"].to_numpy() + shift)))
    assert found["is_drifting"] and not any(cause["kind"] == "clipped" for cause in found["causes"]), found["causes"]


def test_words_of_a_time_leave_the_name_of_its_column():
    """A column of times called "numbers seen" keeps its name where its numbers are called times."""

    def timed(table, hours_later=0.0):
        hours = np.round((table["size"].to_numpy() + hours_later) * 1000).astype(np.int64)
        times = replaced(table, "size", pa.array(np.datetime64("2026-01-01", "s") + hours.astype("timedelta64[h]")))
        return times.rename_columns(["numbers seen" if name == "size" else name for name in times.column_names])

    model = drive(recipes.learner("nb", {}, "class"), Source.of_table(timed(problems.rows(N_ROWS, 1))))
    watched = Watched(model)
    scored = collect(ServedCounts(watched), Source.of_table(timed(problems.rows(N_ROWS, 8))))
    found = report(watched, scored, timed(problems.rows(N_ROWS, 9), hours_later=100))
    words = [cause["words"] for cause in found["causes"] if cause["kind"] == "out_of_range"]
    assert len(words) == 1 and words[0].startswith("numbers seen has times outside the range of training")
