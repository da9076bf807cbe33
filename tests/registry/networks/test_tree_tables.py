"""Tables read from context trees against dense ones."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from fewpass import KDB, SKDB
from learners.models.query import Conditional, Impute, Map, Marginal, Sample
from learners.registry.networks import model_networks, tree_tables
from learners.registry.networks.likelihood_weighting import NotSampled
from learners.registry.networks.model_networks import TablesTooLarge, classifier_network
from learners.registry.networks.network_answers import (
    answer_network_queries,
    compile_model_circuit,
    model_arc_network,
)
from learners.registry.networks.tree_tables import TreeTable, table_given, table_rows


@pytest.fixture(scope="module")
def table():
    """Columns of which the last is noise; some contexts never occur."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    columns = {name: np.char.mod("v%d", (y * 2 + rng.integers(0, 3, 400)) % 5) for name in "abcde"}
    return pa.table(columns | {"noise": rng.choice(["p", "q"], 400), "class": y})


def networks(model, patch):
    """The network with dense tables, and the one that reads its trees."""
    dense = classifier_network(model)
    patch.setattr(model_networks, "MOST_CELLS", 0)
    return dense, classifier_network(model)


@pytest.mark.parametrize("estimator", ["hdp-map", "m"])
def test_rows_are_those_of_the_dense_table(table, estimator, monkeypatch):
    dense, read = networks(KDB(k=3, estimator=estimator, prune=False).fit(table, "class").model_, monkeypatch)
    assert max(len(own) for own in read.parents) == 4
    n_unseen = 0
    for whole, tree in zip(dense.tables, read.tables, strict=True):
        if not isinstance(tree, TreeTable):
            assert whole.ndim == 1, "only the class has no tree"
            continue
        contexts = np.array(list(np.ndindex(whole.shape[:-1]))).T
        assert tree.size == whole.size and np.array_equal(np.asarray(tree), whole)
        for codes in (contexts, contexts[:, ::-7], contexts[:, [1, 1, 0]], contexts[:, :0]):
            rows, which = table_rows(tree, codes.astype(np.uint16))
            assert rows[which] == pytest.approx(whole[tuple(codes)], rel=1e-13, abs=0)
            assert rows.shape[0] == np.unique(codes, axis=1).shape[1]
        n_unseen += contexts.shape[1] - np.diff(tree.tree.level_starts)[-1]
    assert n_unseen > 100


def test_fixed_axes_are_those_of_the_dense_table(table, monkeypatch):
    dense, read = networks(KDB(k=2, prune=False).fit(table, "class").model_, monkeypatch)
    v = max(range(len(read.parents)), key=lambda v: len(read.parents[v]))
    whole, tree = dense.tables[v], read.tables[v]
    monkeypatch.setattr(tree_tables, "BLOCK_CELLS", 40)
    rng = np.random.default_rng(1)
    axes = range(whole.ndim)
    for known in itertools.chain.from_iterable(itertools.combinations(axes, n) for n in range(whole.ndim + 1)):
        free = rng.permutation([axis for axis in axes if axis not in known]).tolist()
        codes = {axis: rng.integers(0, whole.shape[axis], 6 if axis % 2 else 1) for axis in known}
        answered, right = table_given(tree, codes, free), table_given(whole, codes, free)
        assert answered == pytest.approx(right, rel=1e-13, abs=0), f"with axes {known} known"
        assert answered.shape == right.shape


QUERIES = (
    Conditional("class"),
    Conditional("class", {"a": ("v0", "v1"), "c": "v2"}),
    Conditional("class", likely={"b": {"v0": 0.7, "v1": 0.3}}),
    Conditional("class", do={"a": "v1"}),
    Conditional("d", {"a": "v1", "b": "v2", "class": 1}),
    Marginal({"a": "v0", "b": "v1"}),
    Impute("class", {"b": "v0"}),
)


def test_exact_answers_read_from_trees(table, monkeypatch):
    model = KDB(k=2).fit(table, "class").model_
    queries = [*QUERIES, Map(evidence={"a": "v1"}, variables=("b", "class")), Sample(3, {"a": "v1"}, seed=1)]

    def answers():
        return answer_network_queries(model, queries, lambda: compile_model_circuit(model, max_edges=0))

    right = answers()
    monkeypatch.setattr(model_networks, "MOST_CELLS", 0)
    for answered, own in zip(answers(), right, strict=True):
        assert "sampled" not in answered
        for of, distribution in own.get("distributions", {}).items():
            assert answered["distributions"][of] == pytest.approx(distribution, rel=1e-12), of
        for field in {"probability", "log_evidence", "log_probability"} & {*own}:
            assert answered[field] == pytest.approx(own[field], rel=1e-12, abs=1e-12), field
        for field in ("assignment", "rows"):
            assert answered.get(field) == own.get(field)


@pytest.mark.parametrize("make", [lambda: KDB(k=2), lambda: KDB(k=3, estimator="m"), lambda: SKDB(k=2)])
def test_a_network_too_large_for_tables_is_sampled_from_its_trees(table, make, monkeypatch):
    model = make().fit(table, "class").model_
    exact = answer_network_queries(model, QUERIES, lambda: compile_model_circuit(model))
    monkeypatch.setattr(model_networks, "MOST_CELLS", 0)

    def refused(*given):
        raise AssertionError("a table was expanded")

    monkeypatch.setattr(tree_tables, "context_tree_probabilities", refused)
    sampled = answer_network_queries(
        model, QUERIES, lambda: compile_model_circuit(model, max_edges=0, most_bytes=0), most_bytes=0
    )
    for answered, right in zip(sampled, exact, strict=True):
        is_whole = answered["kind"] == "conditional" and not answered["log_evidence"]
        assert "sampled" in answered or is_whole, "only what needs no sum is exact"
        for of, distribution in right.get("distributions", {}).items():
            errors = answered.get("standard_errors", {}).get(of, {})
            for value, p in distribution.items():
                assert abs(answered["distributions"][of][value] - p) <= 4 * errors.get(value, 0.0) + 1e-12, (of, value)
        if "probability" in right:
            assert abs(answered["probability"] - right["probability"]) <= 4 * answered["standard_error"]
    guess = sampled[-1]["imputed"]["class"]
    assert abs(guess["probability"] - exact[-1]["imputed"]["class"]["probability"]) <= 4 * guess["standard_error"]
    with pytest.raises(NotSampled, match="too large for an exact answer to 'map'"):
        answer_network_queries(model, [Map()], lambda: compile_model_circuit(model, max_edges=0, most_bytes=0))


def test_evidence_on_a_column_that_was_selected_away_is_taken_by_samples(table, monkeypatch):
    model = SKDB(k=1).fit(table, "class").model_
    assert model.schema.attributes[5].name == "noise" and 5 not in model.network.order
    monkeypatch.setattr(model_networks, "MOST_CELLS", 0)
    queries = [Conditional("class", given) for given in ({"a": "v1"}, {"a": "v1", "noise": "p"})]
    without, answered = answer_network_queries(
        model, queries, lambda: compile_model_circuit(model, max_edges=0, most_bytes=0)
    )
    assert "sampled" in answered and answered["unused"] == ["noise"] and "unused" not in without
    assert answered["distributions"] == without["distributions"]


def test_a_limit_of_probabilities_is_kept_where_one_is_asked(table, monkeypatch):
    model = KDB(k=2).fit(table, "class").model_
    monkeypatch.setattr(model_networks, "MOST_CELLS", 0)
    assert any(isinstance(each, TreeTable) for each in model_arc_network(model).tables)
    with pytest.raises(TablesTooLarge, match="more than the 10 allowed here"):
        model_arc_network(model, 10)
    with pytest.raises(TablesTooLarge, match="more than the"):
        compile_model_circuit(model, max_edges=0).to_arrays()  # a file of all tables
    with pytest.raises(TablesTooLarge, match="more than the"):
        compile_model_circuit(model, max_edges=0).tables()
