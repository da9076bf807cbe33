"""Columns that only go on: left out, or taken by a part, where later rows are predicted better so, by every classifier alike."""

import datetime
import functools
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fewpass import KDB, NB, FewPassClassifier
from learners import ColumnWarning, Source
from learners.errors import InvalidParameter
from learners.passes.learner import MemoryStore, Part, drive
from learners.registry import recipes
from learners.registry.later_rows import GOES_ON, losses_of_later_rows
from learners.schema import Kept, Schema
from learners.schema.encoding.encode import encode
from learners.schema.encoding.json_records import encode_json_columns, encode_json_records
from tests.support.passes import same
from tests.support.registry import START, N, regimes, rush_hours, table


def lasting(hours):
    """A change that stays."""
    return np.where(hours < N // 4, -2.0, 2.0)


@functools.lru_cache(16)
def model_of(level, name="nb"):
    """What several tests ask of; none changes it."""
    return learned(table(level), name)


def learned(rows, name="nb", **more):
    source = Source.of_table(rows) if isinstance(rows, pa.Table) else Source.open(rows)
    return drive(recipes.learner(name, {}, "late", **more), source, threads=1)


def names_of(model):
    return [attribute.name for attribute in model.schema.attributes]


@pytest.mark.parametrize("learner", ["nb", "tan", "kdb", "skdb", "eskdb", "auto", "xgboost"])
def test_every_classifier_leaves_out_what_harms_it_on_later_rows(learner):
    model = model_of(regimes, learner)
    assert set(names_of(model)) <= {"a", "b"}
    assert {(one.name, one.reason) for one in model.schema.left_out} >= {("when", GOES_ON), ("ticket", GOES_ON)}


def test_later_rows_are_predicted_better_for_it():
    rows = table(regimes)
    older, later = rows.slice(0, 4_800), rows.slice(4_800)
    with pytest.warns(ColumnWarning, match=r"'when' is left out: it only goes on.*\(holdout_by=random keeps it\)"):
        chosen = KDB(target="late").fit(older)
    kept = KDB(target="late", holdout_by="random").fit(older)
    assert "when" in names_of(kept.model_)

    def loss(model):
        y = np.searchsorted(model.classes_, later["late"].to_pylist())
        return -np.log(model.predict_proba(later.drop_columns(["late"]))[np.arange(y.size), y]).mean()

    assert loss(chosen) < 0.9 * loss(kept)


def test_the_losses_that_decide_are_those_of_networks_trained_alone():
    rows = table(regimes).select(["a", "b", "late"])
    y = rows["late"].combine_chunks().dictionary_encode().indices.to_numpy()
    is_later = np.arange(N) >= N // 2
    older = rows.set_column(2, "late", pa.array(y)).filter(pa.array(~is_later))
    newer = rows.select(["a", "b"]).filter(pa.array(is_later)).combine_chunks().to_batches()[0]
    found = []
    for name, parameters in (("nb", {}), ("kdb", {"k": 1})):
        model = drive(recipes.learner(name, parameters, "late"), Source.of_table(older), threads=1)
        p = model.predict_proba(encode(newer, model.schema, with_class=False))
        found.append(-np.log(p[np.arange(N // 2), y[is_later]]))
    of_later, _ = losses_of_later_rows(rows, "late", {}, is_later, 1)
    np.testing.assert_allclose(of_later, np.mean(found, axis=0), rtol=1e-6)


def test_a_change_that_stays_is_learned():
    assert "when" in names_of(learned(table(lasting)))


def test_what_a_user_says_of_a_column_is_done():
    model = learned(table(regimes), overrides={"when": "numeric", "ticket": "drop"})
    assert "when" in names_of(model)


@pytest.mark.parametrize("learner", ["nb", "kdb", "auto"])
def test_without_a_column_of_times_nothing_is_decided(learner):
    rows = table(regimes).drop_columns(["when"])
    assert same(learned(rows, learner), learned(rows, learner, holdout_by="random"))


def test_the_choice_depends_neither_on_order_nor_on_files(tmp_path):
    rows = table(regimes)
    shuffled = rows.take(np.random.default_rng(1).permutation(N))
    for part in range(3):
        pq.write_table(shuffled.slice(part * 2_000, 2_000), tmp_path / f"{part}.parquet")
    model = model_of(regimes)
    assert same(model, learned(shuffled)) and same(model, learned(str(tmp_path)))
    parts = [Part(Source.open(str(tmp_path / f"{part}.parquet")), MemoryStore()) for part in range(3)]
    assert same(model, drive(recipes.learner("nb", {}, "late"), parts, threads=2))


def test_a_refresh_keeps_the_choice_and_reads_nothing_for_it():
    rows = table(regimes)
    model = model_of(regimes)
    accounts = []
    again = drive(
        recipes.learner("nb", {}, "late", Kept(model.schema)),
        [Part(Source.of_table(rows))],
        threads=1,
        accounts=accounts,
    )
    assert same(model, again)
    assert not any("later" in account.stage for account in accounts)


@pytest.mark.parametrize("of_column", [{"goes_on": True, "reason": "other words"}, {"reason": GOES_ON}])
def test_a_refresh_keeps_the_choice_by_what_is_stored_and_of_earlier_models_by_the_words(of_column):
    model = model_of(regimes)
    stored = json.loads(model.schema.to_json())
    gone = [entry["name"] for entry in stored["left_out"] if entry.get("goes_on")]
    assert gone == ["ticket", "when"], "stored as a fact"
    stored["left_out"] = [{"name": name} | of_column for name in gone]
    kept = Schema.from_json(json.dumps(stored))
    again = drive(
        recipes.learner("nb", {}, "late", Kept(kept, "auto")), [Part(Source.of_table(table(regimes)))], threads=1
    )
    assert names_of(again) == names_of(model)
    assert {entry.name for entry in again.schema.left_out} >= set(gone)
    assert np.array_equal(*(one.predict_proba(encode(table(regimes), one.schema)) for one in (model, again)))


def test_what_is_stored_of_a_column_left_out_is_no_part_of_what_codes_mean():
    schema = model_of(regimes).schema
    bare = Schema.from_json(schema.to_json().replace(',"goes_on":true', ""))
    assert not any(entry.goes_on for entry in bare.left_out)
    assert bare == schema and bare.fingerprint == schema.fingerprint


def test_rows_in_order_stand_for_those_to_come_where_asked():
    rows = table(regimes).drop_columns(["when"])
    assert "ticket" in names_of(learned(rows))
    model = learned(rows, holdout_by="order")
    assert names_of(model) == ["a"] or set(names_of(model)) == {"a", "b"}
    shuffled = rows.take(np.random.default_rng(1).permutation(N))
    assert "ticket" in names_of(learned(shuffled, holdout_by="order"))


def test_the_pass_that_draws_them_is_counted_as_it_is_made():
    numbers = []
    learner = recipes.learner("nb", {}, "late")
    assert learner.n_passes == 2
    drive(
        learner,
        Source.of_table(table(regimes)),
        threads=1,
        on_progress=lambda one: numbers.append((one.pass_number, one.n_passes)),
    )
    assert numbers[-1] == (3, 3)


def test_what_is_asked_for_must_be_there():
    rows = table(regimes).drop_columns(["when"])
    with pytest.raises(InvalidParameter, match=r"holdout_by.*time.*from no column of dates or timestamps"):
        learned(rows, holdout_by="time")
    with pytest.raises(InvalidParameter, match="must be one of auto, time, order, random"):
        FewPassClassifier(target="late", holdout_by="latest").fit(rows)
    assert NB(target="late").holdout_by == "auto"


def parts_of(model):
    return {attribute.name: attribute.part for attribute in model.schema.attributes if attribute.part}


@pytest.mark.parametrize("learner", ["nb", "tan", "kdb", "skdb", "eskdb", "auto", "xgboost"])
def test_every_classifier_takes_the_part_that_comes_again(learner):
    assert parts_of(model_of(rush_hours, learner)) == {"when": "hour"}


def test_each_of_two_columns_of_times_enters_by_its_own_part():
    """Flights are late by the hour of departure, and by the hour at which they were booked, days before."""
    random, n, day = np.random.default_rng(0), 12_000, 86_400
    departs = np.sort(random.integers(0, 180 * day, n))
    booked = departs - random.integers(0, 40 * day, n)
    is_odd, is_evening = departs // 3600 % 24 >= 12, booked // 3600 % 24 >= 18
    late = random.random(n) < np.where(is_odd, 0.8, 0.2) + np.where(is_evening, 0.15, -0.05)
    times = {name: pa.array(own).cast(pa.timestamp("s")) for name, own in (("departs", departs), ("booked", booked))}
    rows = pa.table(times | {"gate": random.choice(list("abc"), n), "late": np.where(late, "yes", "no")})
    assert parts_of(learned(rows)) == {"departs": "hour", "booked": "hour"}


@pytest.mark.parametrize(("n_rows", "part"), [(12_000, {"when": "time of day"}), (9_000, {})])
def test_a_time_of_day_enters_where_trees_of_enough_rows_gain_by_it(n_rows, part):
    """Buses of a line are late at some minutes of the hour, of another line at others: neither tells it alone."""
    random, minutes = np.random.default_rng(0), np.sort(np.random.default_rng(1).integers(0, 360 * 1_440, n_rows))
    line = random.integers(0, 6, n_rows)
    is_late = (minutes % 60 // 10 + line) % 6 < 3
    level = random.normal(size=400)[minutes // 1_440]
    late = random.random(n_rows) < 1 / (1 + np.exp(-(np.where(is_late, 1.0, -1.0) + level)))
    when = (START + minutes.astype("timedelta64[m]")).astype("datetime64[us]")
    rows = pa.table({"when": when, "line": [f"line {i}" for i in line], "late": np.where(late, "yes", "no")})
    assert parts_of(learned(rows)) == part


def test_later_rows_are_predicted_better_by_it_and_it_is_said():
    rows = table(rush_hours)
    older, later = rows.slice(0, 4_800), rows.slice(4_800)
    with pytest.warns(
        ColumnWarning, match=r"'when' is learned by its hour alone.*\(holdout_by='random' keeps it whole\)"
    ):
        by_part = KDB(target="late").fit(older)
    y = np.searchsorted(by_part.classes_, later["late"].to_pylist())
    others = [
        KDB(target="late", holdout_by="random").fit(older),
        KDB(target="late").fit(older.drop_columns(["when", "ticket"])),
    ]

    def loss(model):
        return -np.log(model.predict_proba(later.drop_columns(["late"]))[np.arange(y.size), y]).mean()

    assert loss(by_part) < 0.95 * min(map(loss, others))


def test_a_part_means_the_same_in_arrow_in_json_and_through_json():
    model = model_of(rush_hours)
    rows = table(rush_hours, 5).select(["when", "a", "b"])
    holes = pa.array([None, *rows["when"].to_pylist()[1:]], rows["when"].type)
    for these in (
        rows,
        rows.set_column(0, "when", holes),
        rows.set_column(0, "when", rows["when"].cast(pa.timestamp("ns", "UTC"))),
    ):
        schema = Schema.from_json(model.schema.to_json())
        codes = encode(these, schema, with_class=False).x
        plain = rows.set_column(0, "when", these["when"].cast(pa.timestamp("us")))
        for as_text in (False, True):
            records = plain.to_pylist()
            if as_text:
                records = [r | {"when": None if r["when"] is None else r["when"].isoformat()} for r in records]
            assert np.array_equal(encode_json_records(records, schema).x, codes)
            columns = {name: [record[name] for record in records] for name in records[0]}
            assert np.array_equal(encode_json_columns(columns, schema).x, codes)
    seconds = [moment.replace(tzinfo=datetime.UTC).timestamp() for moment in rows["when"].to_pylist()]
    columns = {"when": list(map(int, seconds)), "a": rows["a"].to_pylist(), "b": rows["b"].to_pylist()}
    assert np.array_equal(encode_json_columns(columns, schema).x, encode(rows, schema, with_class=False).x)


@pytest.mark.parametrize("cuts", ["kept", "auto", "fresh"])
@pytest.mark.parametrize("name", ["kdb", "auto"])
def test_a_refresh_keeps_the_part(name, cuts):
    rows = table(rush_hours)
    model = model_of(rush_hours, name)
    again = drive(recipes.learner(name, {}, "late", Kept(model.schema, cuts)), [Part(Source.of_table(rows))], threads=1)
    assert same(model, again) and parts_of(again) == {"when": "hour"}
