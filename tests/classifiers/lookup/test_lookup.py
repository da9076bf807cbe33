"""Predictions of the compiled model against products of conditional probabilities counted from raw rows; rows with nulls; intervals."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fewpass import KDB, NB, TAN, FewPassClassifier
from learners import encode, load_model
from learners.classifiers.estimates.context_tree import GRID, build_context_trees, context_tree_from_cells, m_estimates
from learners.classifiers.estimates.hdp import Chain, HDPParameters
from learners.classifiers.lookup import compilation
from learners.classifiers.lookup import lookup as lookup_module
from learners.classifiers.lookup.checks import check_lookup_arrays
from learners.classifiers.lookup.kernels import BLOCK_SUMS, CACHED_CELLS
from learners.classifiers.lookup.look_up_tables import fill_class_probabilities
from learners.classifiers.lookup.lookup import LookupModel
from learners.classifiers.m_selection import select_m_by_hold_out
from learners.classifiers.structure import (
    Structure,
    k_dependence_structure,
    naive_bayes_structure,
    tree_augmented_structure,
)
from learners.counts.family_counts import FamilyCounts
from learners.counts.pairwise import PairwiseCounts
from learners.counts.row_samples import HoldOut
from learners.errors import InvalidArray, InvalidParameter
from learners.schema import Chunk
from learners.schema.encoding.json_records import encode_json_records
from service.operations.bench import KnownNetwork
from tests import laws, strategies
from tests.naive import estimates as naive
from tests.naive.known_networks import posterior
from tests.support.classifiers import networks

COLUMNS = ("a", "b", "c", "d")

# float32 logarithms: 6e-8 each way for every attribute, of magnitudes up to about 15.
TOLERANCE = 2e-5


def model_of(schema, structure, chunk, m):
    families = laws.updated(FamilyCounts(schema, structure.families()), [chunk])
    trees = build_context_trees(families)
    estimates = [m_estimates(tree, m) for tree in trees]
    return LookupModel.of(schema, structure, families.class_counts, trees, estimates, {"m": m})


def assert_equals_naive(model, training, asked, m):
    """What the tables alone say: an unseen parent ends the context. Answers sum it out: see `test_elimination`."""
    found = np.empty((asked.n_rows, model.schema.n_classes))
    fill_class_probabilities(model._tables, asked.x, 0, asked.n_rows, found)
    assert np.allclose(found.sum(axis=1), 1)
    network = (model.schema.domain_sizes.tolist(), model.schema.n_classes, model.network.order, model.network.parents)
    for row in range(asked.n_rows):
        expected = naive.probabilities(asked.x[:, row], training.x, training.y, *network, m)
        assert np.allclose(found[row], expected, rtol=0, atol=TOLERANCE), (row, asked.x[:, row])


FORMS = ["dense", "hash", "many"]


def every_form(monkeypatch, form):
    """Force dense tables, hash tables, or those of many classes."""
    monkeypatch.setattr(lookup_module, "FEW_CLASSES", 0 if form == "many" else 256)
    monkeypatch.setattr(compilation, "SMALL_TABLE", 1 << 14 if form == "dense" else -1)
    monkeypatch.setattr(compilation, "DENSE_RATIO", 10**9 if form == "dense" else 0)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("unseen", [False, True], ids=["all known", "some unseen"])
@given(data=st.data(), m=st.sampled_from(GRID))
def test_predictions_equal_the_product_of_counted_probabilities(form, unseen, data, m):
    """A value of the domain that training has no row of has a count of zero, and is smoothed in every form and context."""
    schema, structure, training, asked = data.draw(networks(unseen))
    with pytest.MonkeyPatch.context() as patch:
        every_form(patch, form)
        model = model_of(schema, structure, training, m)
    if form == "hash":
        assert (model.to_arrays()[1]["table_dense_starts"] < 0).all()
    assert_equals_naive(model, training, asked, m)


@given(data=st.data())
def test_dense_and_hash_tables_give_the_same_bits(data):
    schema, structure, training, asked = data.draw(networks(unseen=True))
    found = []
    for form in ("dense", "hash"):
        with pytest.MonkeyPatch.context() as patch:
            every_form(patch, form)
            found.append(model_of(schema, structure, training, 1.0).predict_proba(asked))
    assert np.array_equal(*found)


@given(data=st.data())
def test_keys_of_more_than_32_bits_are_found_by_all_their_bits(data):
    """Contexts are numbered in such steps that the lower bits of their keys are those of every second other one."""
    schema, structure, training, asked = data.draw(networks(unseen=True))
    found, strides = [], compilation.context_strides
    for step in (1, 1 << 31):
        with pytest.MonkeyPatch.context() as patch:
            every_form(patch, "hash")
            patch.setattr(compilation, "context_strides", lambda *family, step=step: strides(*family) * step)
            found.append(model_of(schema, structure, training, 1.0).predict_proba(asked))
    assert np.array_equal(*found)


@pytest.mark.parametrize(
    ("sizes", "structure_of"),
    [
        ((3, 4, 2, 5), lambda pairs: naive_bayes_structure(4)),
        ((3, 4, 2, 5), lambda pairs: k_dependence_structure(pairs, 1)),
        ((3, 4, 2, 5), lambda pairs: k_dependence_structure(pairs, 3)),
        ((200, 3, 200), lambda pairs: Structure((1, 0, 2), ((), (1,), (0, 1)))),
    ],
)
def test_m_is_the_best_of_the_grid_on_the_hold_out(sizes, structure_of):
    """Counts of the hold-out are taken away, also all of a rare value, and each m of the grid is measured on it."""
    schema = strategies.schema_of(sizes, 3)
    chunk = strategies.chunk_of(5, schema, 400, 1.5)
    structure = structure_of(laws.updated(PairwiseCounts(schema), [chunk]))
    families = laws.updated(FamilyCounts(schema, structure.families()), [chunk])
    held = laws.updated(HoldOut(schema), [chunk]).draw()
    assert held.n_rows == 40
    rest = without(chunk, held)
    best, rmse = select_m_by_hold_out(structure, families, held)
    expected = {
        m: naive.rmse_on(held.x, held.y, rest.x, rest.y, sizes, 3, structure.order, structure.parents, m) for m in GRID
    }
    assert list(rmse.values()) == pytest.approx(list(expected.values()), abs=TOLERANCE)
    assert best == min(GRID, key=expected.get)


def without(chunk, held):
    """The rows that are left when one row of the chunk is taken away for each one held."""
    left = [(*chunk.x[:, row], chunk.y[row]) for row in range(chunk.n_rows)]
    for row in range(held.n_rows):
        left.remove((*held.x[:, row], held.y[row]))
    rows = np.array(left)
    return Chunk(np.ascontiguousarray(rows[:, :-1].T), rows[:, -1].astype(np.uint8))


def test_without_a_hold_out_m_is_one():
    schema = strategies.schema_of((3, 4), 2)
    chunk = strategies.chunk_of(0, schema, 9)
    structure = naive_bayes_structure(2)
    families = laws.updated(FamilyCounts(schema, structure.families()), [chunk])
    assert select_m_by_hold_out(structure, families, laws.updated(HoldOut(schema), [chunk]).draw()) == (1.0, {})


def test_a_row_that_no_class_can_produce_gets_the_prior_and_not_nan():
    schema = strategies.schema_of((2, 2), 2)
    training = Chunk(np.array([[0, 0, 1], [0, 0, 1]], np.uint8), np.array([0, 1, 1], np.uint8))
    training_only_equal = model_of(schema, naive_bayes_structure(2), training, 0.0)
    never = Chunk(np.array([[1], [1]], np.uint8), None)
    assert training_only_equal.predict_proba(never)[0] == pytest.approx([0, 1])
    training = Chunk(np.array([[0, 1], [0, 1]], np.uint8), np.array([0, 1], np.uint8))
    model = model_of(schema, naive_bayes_structure(2), training, 0.0)
    assert model.predict_proba(Chunk(np.array([[0], [1]], np.uint8), None))[0] == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("n_rows", [0, 1, 255, 256, 257, 40_000])
def test_threads_do_not_change_predictions(n_rows):
    schema = strategies.schema_of((3, 300, 4, 2), 3)
    training = strategies.chunk_of(0, schema, 3000)
    pairs = laws.updated(PairwiseCounts(schema), [training])
    model = model_of(schema, tree_augmented_structure(pairs), training, 1.0)
    asked = strategies.chunk_of(1, schema, n_rows)
    one = model.predict_proba(asked, threads=1)
    assert one.shape == (n_rows, 3)
    for threads in (2, 3):
        assert np.array_equal(model.predict_proba(asked, threads=threads), one)
    halves = [
        model.predict_proba(asked.rows(slice(n_rows // 3))),
        model.predict_proba(asked.rows(slice(n_rows // 3, None))),
    ]
    assert np.array_equal(np.concatenate(halves), one)


@given(networks(unseen=True))
def test_a_model_read_back_is_the_same(drawn):
    schema, structure, training, asked = drawn
    model = model_of(schema, structure, training, 0.2)
    header, arrays = model.to_arrays()
    for array in arrays.values():
        array.setflags(write=False)
    read = load_model(header, arrays)
    assert read.schema == model.schema
    assert read.network == model.network
    assert read.facts == model.facts
    assert np.array_equal(read.predict_proba(asked), model.predict_proba(asked))
    again = read.to_arrays()
    assert again[0] == header
    assert {name: array.dtype for name, array in again[1].items()} == {name: a.dtype for name, a in arrays.items()}
    assert all(np.array_equal(array, arrays[name], equal_nan=True) for name, array in again[1].items())
    assert read.structure() == model.structure()
    for name, table in model.tables().items():
        assert read.tables()[name].equals(table)


def test_tables_and_graph_say_what_was_counted():
    schema = strategies.schema_of((3, 4), 2, {1})
    chunk = strategies.chunk_of(0, schema, 60)
    model = model_of(schema, Structure((1, 0), ((), (1,))), chunk, 1.0)
    graph = model.structure()
    assert [node["name"] for node in graph["nodes"]] == ["class", "a1", "a0"]
    assert [(edge["from"], edge["to"], edge["rank"]) for edge in graph["edges"]] == [
        ("class", "a1", 0),
        ("class", "a0", 0),
        ("a1", "a0", 1),
    ]
    tables = model.tables()
    assert tables["classes"]["n_rows"].to_pylist() == np.bincount(chunk.y).tolist()
    contexts, cells = tables["contexts"].to_pandas(), tables["cells"].to_pandas()
    assert (contexts.groupby(["attribute", "level"]).n_rows.sum() == 60).all()
    summed = cells.merge(contexts, on=["attribute", "node"]).groupby(["attribute", "level"]).n_rows_x.sum()
    assert (summed == 60).all()
    values = tables["attribute_values"].to_pandas()
    assert values[values.attribute == 1]["value"].iloc[0] == "(missing)"


def table(n_rows=4000, seed=0):
    """Four columns that tell of the class, one of them null only for the class x."""
    random = np.random.default_rng(seed)
    y = random.choice(["x", "y"], n_rows)
    columns = {}
    for name in COLUMNS:
        tells = random.random(n_rows) < 0.75
        columns[name] = np.where(tells, y, np.where(y == "x", "y", "x")).astype(object)
    columns["d"][(y == "x") & (random.random(n_rows) < 0.3)] = None
    return columns, y


@pytest.mark.parametrize("learner", [NB, TAN, KDB, FewPassClassifier])
def test_nothing_known_gives_the_class_shares_and_a_null_that_training_supports_is_evidence(learner):
    columns, y = table()
    fitted = learner().fit(columns, y)
    shares = [(y == k).mean() for k in fitted.classes_]
    assert fitted.predict_proba([{}])[0] == pytest.approx(shares, abs=0.01)
    assert fitted.predict_proba({})[0] == pytest.approx(shares, abs=0.01)
    assert fitted.predict_proba([{"a": "y", "b": "x", "c": "y", "d": None}])[0, 0] > 0.6


def test_a_few_nulls_of_one_class_are_little_evidence():
    columns, y = table(20_000)
    columns["d"] = np.where(columns["d"] == None, "x", columns["d"])  # noqa: E711  # numpy compares each
    columns["d"][np.flatnonzero(y == "x")[:3]] = None
    fitted = TAN().fit(columns, y)
    absent, null = (fitted.predict_proba([{"a": "y", **more}])[0, 0] for more in ({}, {"d": None}))
    assert absent == pytest.approx(0.25, abs=0.02)
    assert null < 0.8


@pytest.mark.parametrize("learner", [NB, KDB, FewPassClassifier])
def test_values_hidden_at_random_cost_as_much_as_values_not_sent(learner):
    columns, y = table()
    random = np.random.default_rng(1)
    for name in COLUMNS[:3]:  # now and then a null in each, which tells nothing
        columns[name][random.random(y.size) < 0.02] = None
    fitted = learner().fit(columns, y)
    test, truth = table(2000, seed=2)
    test["d"] = np.where(test["d"] == None, "x", test["d"])  # noqa: E711  # numpy compares each
    code = np.searchsorted(fitted.classes_, truth)
    hidden = {name: [None] * truth.size for name in ("a", "b")}
    losses = [
        -np.log(fitted.predict_proba(rows)[np.arange(truth.size), code]).mean()
        for rows in ({name: test[name] for name in ("c", "d")}, {**test, **hidden})
    ]
    assert losses[1] == pytest.approx(losses[0], rel=0.02)


def test_the_weight_of_a_null_is_that_of_its_definition():
    """Two nullable columns, naive Bayes: P(null is a value | row) by Bayes' rule, from the model's own answers and shares."""
    columns, y = table()
    columns["c"][np.random.default_rng(3).random(y.size) < 0.1] = None
    fitted = NB(m=1.0).fit(columns, y)
    model = fitted.model_
    row = {"a": "x", "b": "y", "c": None, "d": None}
    as_value = encode_json_records([row], model.schema).x
    hidden = encode_json_records([{"a": "x", "b": "y"}], model.schema).x
    joint_value, joint_hidden = (np.exp(model.log_joint(Chunk(x, None))[0]) for x in (as_value, hidden))
    hiding = 1 / 5 / 6  # 0 to 4 of four columns are hidden with equal probability, and there are six ways to hide two
    p_value = joint_value.sum() / (joint_value.sum() + hiding * joint_hidden.sum())
    expected = p_value * joint_value / joint_value.sum() + (1 - p_value) * joint_hidden / joint_hidden.sum()
    assert fitted.predict_proba([row])[0] == pytest.approx(expected, abs=1e-6)


def table_of(network, n_rows, seed):
    x, y = network.draw(n_rows, np.random.default_rng(seed))
    return x, pa.table({f"a{i}": codes.astype(str) for i, codes in enumerate(x)} | {"class": y.astype(str)})


@pytest.mark.parametrize("estimator", ["hdp", "hdp-map"])
def test_most_intervals_hold_the_true_probability(estimator):
    """90 % intervals of a network of the right structure hold the truth in 80 to 99 % of fresh rows."""
    network = KnownNetwork.random(6, 3, 2, 0, seed=4)
    _, train = table_of(network, 3000, 1)
    x, test = table_of(network, 4000, 2)
    model = NB(estimator=estimator, iterations=500).fit(train, "class")
    low, high = model.predict_interval(test, 0.9)
    truth, mean = posterior(network, x), model.predict_proba(test)
    assert np.all((low <= mean) & (mean <= high) & (low >= 0) & (high <= 1))
    assert 0.8 < np.mean((low <= truth) & (truth <= high)) < 0.99


def test_intervals_are_those_of_the_draws():
    """One attribute, two classes: the spread of P(y | x) over draws of all probabilities from their posterior."""
    counts = np.array([8, 4, 30, 90])
    y, x = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    rows = pa.table({"a": np.repeat(x, counts).astype(str), "class": np.repeat(y, counts).astype(str)})
    model = NB(estimator="hdp", iterations=5000).fit(rows, "class")
    low, high = model.predict_interval(pa.table({"a": ["0"]}), 0.9)
    chain = Chain(context_tree_from_cells(y, np.zeros((4, 0), int), x, counts, 2), HDPParameters(), 0)
    rng = np.random.default_rng(0)
    drawn = np.empty(4000)
    for i in range(drawn.size):
        chain.sweep(5)
        a = chain.state.weight[:2]  # concentration times the root's probabilities
        theta = [rng.dirichlet(counts[2 * k : 2 * k + 2] + a)[0] for k in (0, 1)]
        prior = rng.dirichlet([12, 120])
        joint = prior * theta
        drawn[i] = joint[0] / joint.sum()
    assert np.abs(np.quantile(drawn, [0.05, 0.95]) - [low[0, 0], high[0, 0]]).max() < 0.04


def test_more_rows_and_lower_levels_narrow_them():
    network = KnownNetwork.random(5, 3, 3, 1, seed=0)
    _, test = table_of(network, 200, 9)
    widths = []
    for n_rows in (300, 30_000):
        _, train = table_of(network, n_rows, 1)
        model = KDB(k=2, estimator="hdp-map").fit(train, "class")
        for level in (0.9, 0.5):
            low, high = model.predict_interval(test, level)
            widths.append(float((high - low).mean()))
    assert widths[0] > widths[1] > widths[2] > widths[3] > 0


def test_a_stored_model_keeps_them_and_wrong_use_is_named():
    network = KnownNetwork.random(4, 3, 2, 1, seed=0)
    _, train = table_of(network, 500, 1)
    model = KDB(estimator="hdp-map").fit(train, "class")
    again = load_model(*model.model_.to_arrays())
    chunk = encode(train, again.schema)
    assert np.array_equal(again.credible_intervals(chunk)[0], model.model_.credible_intervals(chunk)[0])
    with pytest.raises(InvalidParameter, match="above 0 and below 1"):
        model.predict_interval(train, 1.5)
    with pytest.raises(InvalidParameter, match="m-estimates"):
        KDB(estimator="m").fit(train, "class").predict_interval(train)


@pytest.mark.parametrize("n_classes", [3, 4, 10])
@pytest.mark.parametrize("form", ["dense", "hash"])
def test_rows_of_large_tables_are_answered_alike_alone_and_together(n_classes, form, monkeypatch):
    """A large table answers more rows at a time; unseen and rare values are among them."""
    every_form(monkeypatch, form)
    schema = strategies.schema_of([300, 200, 3], n_classes)
    structure = Structure((0, 1, 2), ((), (0,), (0, 1)))
    model = model_of(schema, structure, strategies.chunk_of(0, schema, 40_000), 1.0)
    assert model._tables.dense.size + model._tables.vectors.size > CACHED_CELLS
    asked = strategies.chunk_of(1, schema, BLOCK_SUMS // n_classes + 300)
    together = model.predict_proba(asked, threads=1)
    some = np.arange(0, asked.n_rows, 97)
    alone = np.concatenate([model.predict_proba(Chunk(asked.x[:, [row]], None)) for row in some])
    assert np.array_equal(together[some], alone)


@given(networks(unseen=True))
def test_a_row_of_a_table_that_holds_no_number_is_refused_but_for_the_rest_of_a_context(drawn):
    """A file of somebody else would answer NaN."""
    schema, structure, training, _ = drawn
    with pytest.MonkeyPatch.context() as patch:
        every_form(patch, "hash")
        header, arrays = model_of(schema, structure, training, 0.2).to_arrays()
    check_lookup_arrays(header, arrays)
    spoiled = arrays["table_vectors"].copy()
    spoiled[:, 0] = np.nan
    if len(spoiled):
        with pytest.raises(InvalidArray, match=r"table_vectors.* that are not log probabilities"):
            check_lookup_arrays(header, dict(arrays) | {"table_vectors": spoiled})
