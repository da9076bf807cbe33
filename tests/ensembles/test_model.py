"""Ensembles from rows to answers."""

import json
import pickle
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import FewPassClassifier, Source, collect, encode, explain, load_model
from learners.counts.family_counts import Family, FamilyCounts
from learners.ensembles.budget import Budget, choose_ensemble_within_budget
from learners.ensembles.cuts import LARGE, ensemble_schema, n_members_with_cuts
from learners.ensembles.fit import FEWEST_MEMBERS, MORE_PARENTS, fit_family_trees
from learners.ensembles.members import draw_ensemble_members, limit_member_parents
from learners.errors import InvalidParameter
from learners.passes.column_summaries import ColumnSummaries
from learners.passes.learner import MemoryStore, Part, drive
from learners.registry import recipes
from learners.schema import Kept
from learners.schema.encoding.column_views import Views
from tests import strategies
from tests.support.ensembles import same_arrays, table_of

CLASSES = {2: ("no", "yes"), 3: ("no", "perhaps", "yes")}


@cache
def trained(learner="auto", n_classes=2, threads=1, **parameters):
    settings = {"members": 3, **parameters}
    made = recipes.learner(learner, settings, "class")
    return drive(made, Source.of_table(table_of(400, classes=CLASSES[n_classes])), threads=threads)


def chunk_for(model, n=200, seed=1, drop=()):
    rows = table_of(n, seed, CLASSES[model.schema.n_classes]).drop_columns(["class", *drop])
    return encode(rows, model.schema)


@pytest.mark.parametrize("learner", ["eskdb", "auto"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_answers_are_probabilities_and_better_than_chance(learner, n_classes):
    model = trained(learner, n_classes)
    test = table_of(300, 7, CLASSES[n_classes])
    p = model.predict_proba(encode(test.drop_columns(["class"]), model.schema))
    assert p.sum(axis=1) == pytest.approx(np.ones(300))
    names = np.array(model.schema.classes)
    assert np.mean(names[p.argmax(axis=1)] == test["class"].to_numpy(zero_copy_only=False)) > 0.75


def test_threads_do_not_matter():
    same_arrays(trained(), trained(threads=3))
    chunk = chunk_for(trained(), 30_000)
    assert np.array_equal(trained().predict_proba(chunk, threads=1), trained().predict_proba(chunk, threads=2))


@pytest.mark.parametrize("learner", ["eskdb", "auto"])
def test_two_halves_merged_are_the_whole(learner):
    """By the schema of the whole; each half alone first, as a refresh would have it."""
    table = table_of(400)
    whole = trained(learner)
    parts = [Part(Source.of_table(part, identity=name), MemoryStore()) for name, part in
             (("first", table.slice(0, 150)), ("second", table.slice(150)))]  # fmt: skip
    merged = drive(recipes.learner(learner, {"members": 3}, "class", whole.schema), parts)
    same_arrays(whole, merged)


def test_a_kept_schema_keeps_the_cuts_of_all_members():
    whole = trained("eskdb")
    again = drive(recipes.learner("eskdb", {"members": 3}, "class", Kept(whole.schema)), Source.of_table(table_of(400)))
    same_arrays(whole, again)
    more = drive(
        recipes.learner("eskdb", {"members": 3}, "class", Kept(whole.schema)), Source.of_table(table_of(500, 3))
    )
    for before, after in zip(whole.schema.attributes, more.schema.attributes, strict=True):
        assert (before.cuts, before.groupings) == (after.cuts, after.groupings)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_what_is_stored_answers_as_before(n_classes):
    model = trained(n_classes=n_classes)
    header, arrays = model.to_arrays()
    read = load_model(json.loads(json.dumps(header)), arrays, is_trusted=False)
    chunk = chunk_for(model)
    assert np.array_equal(read.predict_proba(chunk), model.predict_proba(chunk))
    same_arrays(model, read)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_explanations_add_up(n_classes):
    model = trained(n_classes=n_classes)
    chunk = chunk_for(model, drop=("word",))
    told = explain(model, chunk)
    p = told.probabilities
    rows = np.arange(len(p))
    expected = np.log(p[rows, told.predicted]) - np.log(p[rows, told.against])
    assert told.prior + told.contributions.sum(axis=1) == pytest.approx(expected, abs=2e-4)
    word = [attribute.name for attribute in model.schema.attributes].index("word")
    without_trees = trained("eskdb", n_classes)
    assert np.all(explain(without_trees, chunk_for(without_trees, drop=("word",))).contributions[:, word] == 0)


def test_intervals_hold_the_probability_and_grow_with_the_level():
    model = trained("eskdb")
    chunk = chunk_for(model)
    p = model.predict_proba(chunk)
    low, high = model.credible_intervals(chunk, 0.9)
    wide = model.credible_intervals(chunk, 0.99)
    assert np.all((low <= p) & (p <= high)) and np.all(wide[0] <= low) and np.all(high <= wide[1])
    with pytest.raises(InvalidParameter, match="above 0 and below 1"):
        model.credible_intervals(chunk, 1.0)


def test_intervals_are_wide_where_members_or_the_joint_member_disagree():
    rng = np.random.default_rng(3)
    y = rng.integers(0, 2, 3000)
    a = np.where(rng.random(3000) < 0.9, y, 1 - y)
    b = np.where(rng.random(3000) < 0.95, a, 1 - a)
    table = pa.table({"a": a.astype(str), "b": b.astype(str), "y": y.astype(str)})
    model = drive(recipes.learner("eskdb", {}, "y"), Source.of_table(table))
    known = encode(pa.table({"b": ["1"]}), model.schema)
    low, high = model.credible_intervals(known, 0.9)
    truth = 0.9 * 0.95 + 0.1 * 0.05
    assert low[0, 1] <= truth <= high[0, 1]
    nothing = encode(pa.table({"b": pa.array([None], pa.string())}), model.schema)
    low, high = model.credible_intervals(nothing, 0.9)
    assert low[0, 1] <= 0.5 <= high[0, 1] and high[0, 1] - low[0, 1] < 0.2


def test_members_are_told_as_tables_and_graphs():
    model = trained("eskdb")
    told = model.structure()
    assert {node["name"] for node in told["nodes"]} == {"class", "a", "b", "noise", "word"}
    assert [member["member"] for member in told["members"]] == [0, 1, 2]
    table = model.tables()["members"]
    assert table.num_rows == sum(len(member["families"]) for member in told["members"])
    one = model.member_structure(1)
    assert one["nodes"][0] == {"name": "class", "role": "class", "n_values": 2}
    with pytest.raises(InvalidParameter, match="must be from 0 to 2"):
        model.member_structure(3)


def test_a_budget_is_kept_and_told():
    two = drive(recipes.learner("auto", {"members": 2, "passes": 2}, "class"), Source.of_table(table_of(300)))
    assert all(not family["parents"] for member in two.members for family in member["families"])
    assert any("two passes" in line for line in two.facts["choice"])
    small = drive(
        recipes.learner("auto", {"members": 3, "model_bytes": 10_000, "correction": "none"}, "class"),
        Source.of_table(table_of(300)),
    )
    assert len(small.members) < 3 and any(
        "members kept; their tables take about" in line for line in small.facts["choice"]
    )
    whole = drive(
        recipes.learner("auto", {"members": 3, "correction": "none"}, "class"), Source.of_table(table_of(300))
    )
    assert small.facts["left_out_loss"] != whole.facts["left_out_loss"], "it is of the members that are kept"
    quick = drive(recipes.learner("auto", {"members": 3, "seconds": 0.2}, "class"), Source.of_table(table_of(300)))
    assert quick.correction is None and any("No correction" in line for line in quick.facts["choice"])
    with pytest.raises(InvalidParameter, match="at least 2"):
        recipes.learner("auto", {"passes": 1}, "class")


def test_trees_correct_fewer_networks_of_a_large_table():
    def members(asked, n_rows, *, has_correction=True, **budget):
        return choose_ensemble_within_budget(asked, has_correction, Budget(**budget)).for_table(n_rows, 10).members

    assert [members(None, n) for n in (LARGE - 1, LARGE, 10**7)] == [8, 4, 4]
    assert members(None, LARGE, has_correction=False) == 8
    assert members(None, LARGE, seconds=2) == 8, "two seconds leave no time for trees"
    assert members(6, LARGE) == members(6, 10) == 6
    schema = drive(recipes.learner("auto", {}, "class"), Source.of_table(table_of(LARGE))).schema
    assert n_members_with_cuts(schema) == 4
    again = drive(recipes.learner("auto", {}, "class", schema), Source.of_table(table_of(LARGE)))
    assert not [words for words in again.facts["choice"] if "given schema" in words]


def test_families_of_a_large_table_keep_few_parents():
    """Each member has its share of the counted cells; beyond eight all share what eight have."""
    random, n = np.random.default_rng(0), 2_000
    numbers = {f"x{i}": random.normal(size=n) for i in range(20)}
    rows = pa.table(numbers | {"class": random.integers(0, 2, n)})
    schema = ensemble_schema(collect(ColumnSummaries("class"), Source.of_table(rows)), 32, 0)
    views = Views(schema)
    drawn = views.chunk(encode(rows, schema))
    members = draw_ensemble_members(None, views, (3,) * 32, 0)
    assert limit_member_parents(members, views.schema, drawn, n) == members

    def n_parents(n_members):
        kept = limit_member_parents(members[:n_members], views.schema, drawn, 100_000)
        return sum(len(family.parents) for family in kept[0].families)

    assert n_parents(32) < n_parents(8) == n_parents(4) < sum(len(family.parents) for family in members[0].families)


def test_large_tables_spare_what_pays_little():
    """Members after the first have at most one parent more than it selects, and end where two more bring little."""
    models = {}
    for n in (4_000, 6_000):
        rng = np.random.default_rng(0)
        y = rng.integers(0, 2, n)
        words = {f"x{i}": (rng.integers(0, 3, n) + (y if i < 3 else 0)).astype(str) for i in range(6)}
        rows = Source.of_table(pa.table(words | {"class": y}))
        models[n] = drive(recipes.learner("eskdb", {"members": 8}, "class"), rows)
    whole, few = (models[n].members for n in (4_000, 6_000))
    assert len(whole) == 8 and FEWEST_MEMBERS <= len(few) < 8
    assert f"{len(few)} of 8 members" in " ".join(models[6_000].facts["choice"])
    most = [max(len(family["parents"]) for family in member["families"]) for member in few]
    assert max(most[1:]) <= most[0] + MORE_PARENTS


@given(seed=st.integers(0, 2**32 - 1), k=st.integers(0, 2))
@settings(max_examples=10)
def test_a_family_is_solved_as_if_its_later_parents_were_not_counted(seed, k):
    schema = strategies.schema_of((3, 2, 4), 2)
    chunk = strategies.chunk_of(seed, schema, 200)
    own = Family(2, (0, 1)[:k])
    found = []
    for counted in (Family(2, (0, 1)), own):
        counts = FamilyCounts(schema, [counted])
        counts.update(chunk)
        found.append(fit_family_trees(counts, [own], 1)[own])
    deep, flat = found
    assert np.array_equal(deep.tree.cell_count, flat.tree.cell_count)
    assert np.array_equal(deep.arrays.customers, flat.arrays.customers)


@pytest.mark.parametrize("learner", ["auto", "kdb"])
def test_a_model_is_pickled_after_it_has_answered_rows_with_gaps(learner):
    """The pickle does not hold what the model keeps for such rows."""
    source = Source.of_table(table_of(400))
    model = drive(recipes.learner(learner, {"members": 3} if learner == "auto" else {}, "class"), source)
    chunk = chunk_for(model, drop=("b",))
    expected = model.predict_proba(chunk)
    again = pickle.loads(pickle.dumps(model, protocol=4))
    assert np.array_equal(again.predict_proba(chunk), expected)
    assert not any(array.flags.writeable for array in again._tables), "or else kernels are compiled again"


@pytest.mark.parametrize("n", [1500, 4000])  # scores are cross-fitted, and then each row is left out
def test_weights_do_not_make_auto_learn_rows_by_heart(n):
    random = np.random.default_rng(0)

    def rows(n):
        x, z = random.normal(size=(2, n))
        return pa.table({"x": x, "z": z, "y": np.where(random.random(n) < 1 / (1 + np.exp(-x)), "p", "q")})

    table, new = rows(n), rows(4000)
    y = new["y"].to_numpy(zero_copy_only=False) == "p"
    losses = []
    for weight in (np.ones(n, int), np.full(n, 2), random.integers(1, 4, n)):
        model = FewPassClassifier(columns={"w": {"weight": True}}).fit(table.append_column("w", pa.array(weight)), "y")
        p = model.predict_proba(new)[:, 0]
        losses.append(-np.log(np.where(y, p, 1 - p)).mean())
    assert max(losses[1:]) < losses[0] + 0.015


def test_few_rows_of_many_columns_are_hardly_worse_than_the_class_shares():
    """Networks learned from 50 rows find chance in many columns, and rows left out say too little of how much."""
    losses = []
    for seed in (2, 3, 4, 6):
        rng = np.random.default_rng(seed)
        y = (rng.random(2050) < 0.3).astype(int)
        columns = {
            f"w{i}": np.array(list("pqrst"))[
                np.minimum(4, rng.integers(0, 5, y.size) + (rng.random(y.size) < 0.15) * y)
            ]
            for i in range(12)
        }
        columns |= {f"n{i}": rng.normal(size=y.size) + 0.15 * y for i in range(6)}
        rows = pa.table(columns | {"class": np.array(["good", "bad"])[y]})
        model = drive(recipes.learner("auto", {"members": 2}, "class"), Source.of_table(rows.slice(0, 50)), threads=1)
        others = encode(rows.slice(50), model.schema)
        shares = (model.class_counts + 0.5) / 51
        p = model.predict_proba(others)[np.arange(2000), others.y]
        losses.append([-np.log(p).mean(), -np.log(shares[others.y]).mean()])
    own, of_shares = np.mean(losses, axis=0)
    assert own < 1.08 * of_shares
