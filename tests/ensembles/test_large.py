"""Tables with more rows than the drawn ones of small tables: networks that would be learned alone, and trees over all rows."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from learners import Source, encode
from learners.classifiers.lookup.look_up_tables import fill_class_log_joints
from learners.counts.family_counts import FamilyCounts
from learners.ensembles import large
from learners.ensembles.correction import leafwise
from learners.ensembles.correction.leafwise import FAST, Pace
from learners.ensembles.fit import (
    FittedMember,
    Pool,
    fit_family_trees,
    member_log_terms,
    prefix_log_probabilities,
)
from learners.ensembles.pool import compile_left_out_tables
from learners.ensembles.training import Training
from learners.ensembles.weights import class_offsets
from learners.errors import Cancelled, InvalidParameter
from learners.passes.engine import ignore_progress
from learners.passes.learner import MemoryStore, Part, drive
from learners.passes.memory import memory_limit
from learners.passes.row_rules import apply_row_weight_rule
from learners.registry.recipes import learner
from tests import strategies
from tests.support.ensembles import SIZES, member, same_arrays, table_of

ROWS = 900


@pytest.fixture(autouse=True)
def small_tables_are_large(monkeypatch):
    monkeypatch.setattr(large, "LARGE_ROWS", 500)


def trained(source=None, threads=1, schema=None, **parameters):
    made = learner("auto", {"members": 3, **parameters}, "class", schema)
    return drive(made, source or Source.of_table(table_of(ROWS)), threads=threads)


def test_threads_and_parts_do_not_matter():
    whole = trained()
    same_arrays(whole, trained(threads=3))
    parts = [
        Part(Source.of_table(part, identity=name), MemoryStore())
        for name, part in (("first", table_of(ROWS).slice(0, 350)), ("second", table_of(ROWS).slice(350)))
    ]
    same_arrays(whole, trained(parts, schema=whole.schema))


def test_the_networks_that_would_be_learned_alone_are_among_the_choices():
    facts = trained(effort="low").facts
    networks = facts["networks"]
    losses = networks["left_out_losses"]
    assert set(losses) == {"nb", "kdb-2", "skdb", "weighted skdb", "ensemble", "all"}
    assert losses[networks["chosen"]] <= (1 + large.WORTH) * min(losses.values())
    assert facts["left_out_loss"] == losses[networks["chosen"]]
    assert facts["drawn_rows"] == networks["rows"] == ROWS, "all rows are drawn, and decide"
    assert any(f"Networks: {networks['chosen']}, by the log loss of 900 rows" in words for words in facts["choice"])
    assert "correction" not in facts


@pytest.mark.parametrize("effort", ["normal", "high"])
def test_trees_go_on_from_what_the_networks_say_of_all_rows(effort):
    facts = trained(effort=effort).facts
    trees = facts["correction"]
    assert trees["rows"] + trees["rows_left_out"] == ROWS
    assert trees["effort"] == effort
    assert min(trees["race"], key=trees["race"].get).split(", step ")[0] == trees["start"]
    assert trees["left_out_losses"]["trees"] < trees["left_out_losses"]["ensemble"]
    pace = Pace.of(ROWS, 4, effort)
    assert trees["rate"] in {pace.rate, FAST}
    assert 0 < trees["rounds"] <= trees["tried"] <= pace.at(trees["rate"]).n_rounds


def test_trees_from_nothing_that_only_win_the_race_are_left_out(monkeypatch):
    schema = trained(effort="low").schema
    rows, n = encode(table_of(ROWS), schema), schema.n_classes
    known = np.log(np.where(np.arange(n) == rows.y[:, np.newaxis], 0.99, 0.01 / (n - 1)))
    monkeypatch.setattr(leafwise, "_race", lambda *_: ("alone", FAST, {}))
    assert leafwise.boost_leafwise_correction(schema, rows, known, "normal", 0, 1, ignore_progress) is None
    unknown = np.zeros_like(known)
    assert leafwise.boost_leafwise_correction(schema, rows, unknown, "normal", 0, 1, ignore_progress) is not None


def test_trees_that_change_nothing_leave_the_shares_of_the_networks():
    rng = np.random.default_rng(3)
    scores = 2 * rng.normal(size=(2_000, 3)) - [0, 6, 1]
    counts, left_out = np.array([150_000, 300, 49_700]), np.arange(0, 2_000, 10)
    own = SimpleNamespace(families=SimpleNamespace(counts=SimpleNamespace(class_counts=counts)), row_weights=None)
    same_scores = SimpleNamespace(left_out_rows=left_out, left_out=scores[left_out], left_out_weights=None)
    alone = Training._offsets(own, scores, None)
    assert Training._offsets(own, scores, same_scores) - alone == pytest.approx(np.zeros(3), abs=0.02)
    assert np.abs(class_offsets(scores[left_out], counts) - alone).max() > 0.1, "the few rows differ by chance"


def test_more_rows_get_more_leaves_and_fewer_rounds():
    paces = [Pace.of(n, 7, "normal") for n in (60_000, 250_000, 1_000_000, 2_000_000, 20_000_000)]
    assert [pace.n_leaves for pace in paces] == [64, 250, 512, 512, 512]
    assert [pace.n_rounds for pace in paces] == sorted((pace.n_rounds for pace in paces), reverse=True)
    slower = paces[0].at(paces[0].rate / 2)
    assert slower.n_rounds == pytest.approx(2 * paces[0].n_rounds, abs=1)
    high = Pace.of(20_000_000, 7, "high")
    assert (high.n_leaves, high.max_bin) == (2048, 1024)
    assert high.n_rounds > paces[-1].n_rounds


@pytest.mark.parametrize("effort", ["normal", "high"])
def test_more_columns_get_fewer_rounds_and_leaves(effort):
    paces = [Pace.of(5_000_000, n, effort) for n in (1, 4, 7, 28, 200, 5_000)]
    assert [pace.n_rounds for pace in paces[:4]] == sorted((pace.n_rounds for pace in paces[:4]), reverse=True)
    assert paces[0] == paces[1], "of few columns a row costs as much"
    assert [pace.n_leaves for pace in paces] == {
        "normal": [512, 512, 512, 512, 143, 64],
        "high": [2048, 2048, 2048, 1024, 143, 64],
    }[effort]
    assert min(pace.n_rounds for pace in paces) >= 30


# Rows, columns, leaves, bins, rounds, and the processor seconds that they took, matrices of XGBoost not counted.
MEASURED = [
    (2_000_000, 7, 512, 256, 60, 15.7),
    (2_000_000, 7, 2048, 1024, 150, 71.4),
    (1_900_000, 28, 512, 256, 60, 27.1),
    (1_900_000, 28, 1024, 256, 120, 73.6),
]


@pytest.mark.parametrize(("rows", "columns", "leaves", "bins", "rounds", "seconds"), MEASURED)
def test_seconds_are_estimated_from_work_within_a_factor_of_two(rows, columns, leaves, bins, rounds, seconds):
    pace = Pace(leaves, FAST, rounds, bins)
    assert 0.5 < rounds * pace.seconds_a_round(rows, columns, 1) / seconds < 2.0
    assert pace.seconds_a_round(rows, columns, 10) == pytest.approx(10 * pace.seconds_a_round(rows, columns, 1))


def test_seconds_bound_the_rounds_by_an_estimate():
    pace = Pace.of(2_000_000, 7, "normal")
    assert pace.within(np.inf, 0.25) == pace
    assert pace.within(10.0, 0.25).n_rounds == 40
    assert pace.within(0.0, 0.25).n_rounds == 1


def test_the_loss_of_rows_left_out_is_told_on_the_way():
    notes = []

    def note(progress):
        if progress.stage == "boosting trees" and progress.note:
            notes.append((progress.rows_done, progress.unit, progress.note))

    made = learner("auto", {"members": 3}, "class")
    trees = drive(made, Source.of_table(table_of(ROWS)), threads=1, on_progress=note).facts["correction"]
    assert notes[0][:2] == (0, "rounds")
    losses = [float(words.removeprefix("left-out log loss ")) for _, _, words in notes]
    assert losses[0] > losses[-1]
    assert min(losses) == pytest.approx(trees["left_out_losses"]["trees"], abs=0.02)


def test_an_interruption_from_the_keyboard_keeps_the_trees_so_far():
    def interrupt(at):
        def look(progress):
            if progress.stage == "boosting trees" and progress.note and progress.rows_done >= at:
                raise KeyboardInterrupt

        return drive(
            learner("auto", {"members": 3}, "class"), Source.of_table(table_of(ROWS)), threads=1, on_progress=look
        )

    whole, model = trained(), interrupt(10)
    trees = model.facts["correction"]
    n_rounds = Pace.of(ROWS, 4, "normal").at(trees["rate"]).n_rounds
    assert 0 < trees["rounds"] <= trees["tried"] == 10 < whole.facts["correction"]["tried"]
    assert model.warnings() == [f"Interrupted: the first {trees['rounds']} of {n_rounds} rounds of trees were kept."]
    assert whole.warnings() == []
    p = model.predict_proba(encode(table_of(80, 3), model.schema))
    assert p.sum(axis=1) == pytest.approx(np.ones(80))
    with pytest.raises(KeyboardInterrupt):
        interrupt(0)


def test_given_drawn_rows_are_a_recipe_of_before():
    assert "networks" not in trained(drawn=500).facts


def test_rows_without_columns_get_distributions_and_intervals():
    model = trained()
    rows = encode(table_of(80, 3).drop_columns(["class", "a"]), model.schema)
    p = model.predict_proba(rows)
    assert p.sum(axis=1) == pytest.approx(np.ones(80))
    low, high = model.credible_intervals(rows)
    assert np.all((low <= p) & (p <= high))


@pytest.mark.parametrize("n_classes", [2, 5])
def test_tables_that_leave_rows_out_say_what_the_trees_say(n_classes):
    """Of each row's own class, for weights and parents in use of all kinds."""
    schema = strategies.schema_of(SIZES, n_classes)
    rows = strategies.chunk_of(1, schema, 700, 2.0)
    one = member([2, 0, 3, 1])
    counts = FamilyCounts(schema, one.families)
    counts.update(rows)
    levels = fit_family_trees(counts, one.families, 1)
    log_p = prefix_log_probabilities(one, levels, rows, n_classes, 1)
    # Trees that are cut no longer tell what a row adds to tables below.
    for k, tolerance in ((0, 6e-3), (2, 6e-3), (3, 1e-4)):
        a, b = np.array([0.4, 1.0, 0.0, 1.3]), np.array([1.0, 0.7, 0.5, 0.0])
        terms = member_log_terms(log_p, k)
        own = np.einsum("rfc,f->rc", terms, np.concatenate([a, b]))[np.arange(700), rows.y]
        pool = Pool((FittedMember(one, k, a, b),), dict(levels))
        tables = compile_left_out_tables(schema, counts.class_counts, pool)
        found = np.empty((700, n_classes))
        fill_class_log_joints(tables, rows.x, 0, 700, found)
        found = found[np.arange(700), rows.y] - tables.log_prior[rows.y]
        assert found == pytest.approx(own, abs=tolerance)
        assert pool.levels, "the trees stay"
        from_trees = large._own_scores_without_copies(pool, rows, np.ones(700, np.int64), 1)
        assert from_trees == pytest.approx(own, abs=tolerance)


@pytest.mark.parametrize("drawn", [None, 6_000])
def test_a_rare_class_keeps_its_share(drawn):
    """By large tables and by the recipe of small ones; one row in 400 is rare, and the columns tell a little of it."""
    random = np.random.default_rng(2)
    y = np.arange(8_000) % 400 == 7
    columns = {f"x{i}": random.normal(size=8_000) + (i < 2) * y for i in range(3)}
    table = pa.table(columns | {"class": np.where(y, "rare", "common")})
    parameters = {"members": 2} | ({} if drawn is None else {"drawn": drawn})
    model = drive(learner("auto", parameters, "class"), Source.of_table(table))
    p = model.predict_proba(encode(table.drop_columns(["class"]), model.schema))
    assert p[:, model.schema.classes.index("rare")].mean() == pytest.approx(20 / 8_000, rel=0.1)


def test_a_rare_class_of_weighted_rows_keeps_its_share():
    """Among the rows learned and among new ones: a row that is left out leaves no copies behind."""
    n, n_rare = 20_000, 30
    random = np.random.default_rng(5)

    def rows_with_a_rare_class():
        y = random.permutation(n) < n_rare
        columns = {f"x{i}": random.normal(size=n) + (1 - i / 2) * y for i in range(3)}
        columns |= {f"w{k}": np.char.add("v", random.integers(0, k, n).astype(str)) for k in (4, 12, 40)}
        return pa.table(columns | {"class": np.where(y, "rare", "common")})

    learned, new, weights = rows_with_a_rare_class(), rows_with_a_rare_class(), random.integers(1, 4, n)
    overrides = {"times": {"weight": True}}
    source = apply_row_weight_rule(Source.of_table(learned.append_column("times", pa.array(weights))), overrides)
    made = learner("auto", {"members": 2, "effort": "low"}, "class", overrides=overrides)
    model = drive(made, source, threads=2)
    share = np.average(np.array(learned["class"]) == "rare", weights=weights)
    for rows, own in ((learned, weights), (new, None)):
        p = model.predict_proba(encode(rows.drop_columns(["class"]), model.schema))
        mean = np.average(p[:, model.schema.classes.index("rare")], weights=own)
        assert mean == pytest.approx(share, rel=0.15)


@pytest.mark.parametrize("is_grouped", [False, True])
def test_rows_of_few_kinds_are_predicted_as_well_with_weights(is_grouped):
    """Rows that are equal by chance, and a table with one row for each kind, stay where one is left out."""
    random, n = np.random.default_rng(0), 6_000
    x = random.integers(0, 4, (3, n))
    share = np.where(x.sum(axis=0) % 2 == 0, 0.9, 0.1)
    label = np.where(random.random(n) < share, "a", "b")
    rows = pa.table({f"c{i}": np.char.add("v", own.astype(str)) for i, own in enumerate(x)} | {"class": label})
    weighted = rows.append_column("times", pa.array(random.integers(1, 4, n)))
    if is_grouped:
        weighted = (
            rows.group_by(rows.column_names)
            .aggregate([([], "count_all")])
            .rename_columns([*rows.column_names, "times"])
        )
    overrides = {"times": {"weight": True}}
    made = learner("auto", {"members": 2, "effort": "low"}, "class", overrides=overrides)
    model = drive(made, apply_row_weight_rule(Source.of_table(weighted), overrides))
    p = model.predict_proba(encode(rows.drop_columns(["class"]), model.schema))[:, model.schema.classes.index("a")]
    assert np.abs(p - share).mean() < 0.05


def test_memory_decides_how_many_rows_are_drawn_and_is_kept():
    row = 8 * 2 + large.ROW_BYTES  # bounds of a row of up to seven columns
    bound = trained(memory=large.MEMORY_SHARE * 600 * row).facts
    assert 500 <= bound["drawn_rows"] < ROWS and bound["parameters"]["memory"] == large.MEMORY_SHARE * 600 * row
    free = trained().facts
    assert free["drawn_rows"] == ROWS and free["parameters"]["memory"] == memory_limit().n_bytes
    assert trained(drawn=500, memory=1 << 30).facts["parameters"]["memory"] is None, "it decided nothing"
    with pytest.raises(InvalidParameter, match="memory=0 must be a whole number from 1 to"):
        trained(memory=0)


@pytest.mark.parametrize("stage", ["weighting", "boosting trees"])
def test_an_interrupted_training_goes_on_to_the_same_model(stage, tmp_path):
    """By the statistics that it has stored."""
    whole, store = trained(), MemoryStore()

    def stop(progress):
        if progress.stage == stage:
            raise Cancelled("at a stage")

    def again(on_progress):
        accounts = []
        made = learner("auto", {"members": 3}, "class")
        part = Part(Source.of_table(table_of(ROWS), identity="rows"), store)
        return drive(made, [part], threads=1, on_progress=on_progress, accounts=accounts), accounts

    with pytest.raises(Cancelled, match="at a stage"):
        again(stop)
    model, accounts = again(lambda _: None)
    same_arrays(whole, model)
    assert {account.n_rows_read for account in accounts} == {0}, "all counts were stored"


@pytest.mark.parametrize("is_large", [False, True])
def test_few_drawn_rows_keep_the_share_of_a_class_that_is_hardly_among_them(is_large, monkeypatch):
    """Each row of 30 of 40,000 is drawn, and weighs as much as its class counts."""
    if is_large:
        monkeypatch.setattr(large, "MOST_KEPT", 1)
        monkeypatch.setattr(large, "LARGE_ROWS", 8_000)
    random = np.random.default_rng(3)
    y = random.permutation(40_000) < 30
    columns = {f"x{i}": random.normal(size=40_000) + (i < 2) * y for i in range(3)}
    table = pa.table(columns | {"class": np.where(y, "rare", "common")})
    parameters = {"members": 2} | ({} if is_large else {"drawn": 8_000})
    model = drive(learner("auto", parameters, "class"), Source.of_table(table))
    p = model.predict_proba(encode(table.drop_columns(["class"]), model.schema))
    assert p[:, model.schema.classes.index("rare")].mean() * 40_000 / 30 == pytest.approx(1, rel=0.25)
