"""Columns that only go on: left out where later rows are predicted better without them, by every classifier alike."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fewpass import KDB, NB, FewPassClassifier
from learners import ColumnWarning, Source
from learners.errors import InvalidParameter
from learners.passes.learner import MemoryStore, Part, drive
from learners.registry import recipes
from learners.registry.later_rows import GOES_ON
from learners.schema import Kept
from tests.passes.test_engine import same

N = 6_000
START = np.datetime64("2026-01-01", "s")


def table(level, seed=0):
    """Rows an hour apart: the odds of the class go with a number, and with the level of their day."""
    random = np.random.default_rng(seed)
    hours = np.arange(N)
    a = random.integers(0, 4, N)
    odds = 1.2 * (a - 1.5) + level(hours)
    return pa.table(
        {
            "when": START + hours.astype("timedelta64[h]"),
            "ticket": 1_000 + hours,
            "a": a,
            "b": random.normal(size=N),
            "late": np.where(random.random(N) < 1 / (1 + np.exp(-odds)), "yes", "no"),
        }
    )


def regimes(hours):
    """Weeks of their own, of which none tells anything of the next."""
    return np.random.default_rng(3).normal(0, 2.5, N)[hours // 168]


def lasting(hours):
    """A change that stays."""
    return np.where(hours < N // 4, -2.0, 2.0)


def learned(rows, name="nb", **more):
    source = Source.of_table(rows) if isinstance(rows, pa.Table) else Source.open(rows)
    return drive(recipes.learner(name, {}, "late", **more), source, threads=1)


def names_of(model):
    return [attribute.name for attribute in model.schema.attributes]


@pytest.mark.parametrize("learner", ["nb", "tan", "kdb", "skdb", "eskdb", "auto", "xgboost"])
def test_every_classifier_leaves_out_what_harms_it_on_later_rows(learner):
    model = learned(table(regimes), learner)
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
    model = learned(rows)
    assert same(model, learned(shuffled)) and same(model, learned(str(tmp_path)))
    parts = [Part(Source.open(str(tmp_path / f"{part}.parquet")), MemoryStore()) for part in range(3)]
    assert same(model, drive(recipes.learner("nb", {}, "late"), parts, threads=2))


def test_a_refresh_keeps_the_choice_and_reads_nothing_for_it():
    rows = table(regimes)
    model = learned(rows)
    accounts = []
    again = drive(
        recipes.learner("nb", {}, "late", Kept(model.schema)),
        [Part(Source.of_table(rows))],
        threads=1,
        accounts=accounts,
    )
    assert same(model, again)
    assert not any("later" in account.stage for account in accounts)


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
    with pytest.raises(InvalidParameter, match=r"holdout_by.*time.*no column of dates or timestamps"):
        learned(rows, holdout_by="time")
    with pytest.raises(InvalidParameter, match="use auto, time, order, random"):
        FewPassClassifier(target="late", holdout_by="latest").fit(rows)
    assert NB(target="late").holdout_by == "auto"
