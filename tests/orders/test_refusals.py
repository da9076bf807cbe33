"""Which tables, parameters and questions a posterior over structures refuses, and in what words."""

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from learners import Source, load_model
from learners.errors import EmptyData, InvalidArray, InvalidParameter, SchemaError, UnknownColumn
from learners.models.query import Edges, Effects, Graph, Graphs, Paths, Score
from learners.orders.checks import TooFewRows
from learners.orders.scores.known_edges import ImpossibleEdges
from learners.passes.learner import drive
from learners.passes.memory import memory_limit, set_memory_limit
from learners.registry import recipes
from tests.orders.problems import enumerated, learned, log_fair, naive_bge, sensors, standardised, with_column, words


def with_holes(values):
    """A further column, and the last row of the first is null."""
    return with_column(sensors(), "e", values).set_column(0, "a", pa.array([*range(59), None], pa.float64()))


@pytest.mark.parametrize(
    ("table", "parameters", "error", "message"),
    [
        (lambda: with_column(sensors(), "e", sensors()["a"].to_numpy() * 3 - sensors()["c"].to_numpy()), {},
         SchemaError, "Column 'e' is a linear combination of 'a', 'c': .*Drop one of them"),
        (lambda: sensors(2).slice(0, 1), {"score": "bge"}, SchemaError, "No column is left to learn from .a: one value only; b: one"),
        (lambda: with_holes([None] * 59 + [1.0]), {"score": "bge"},
         TooFewRows, r"There are only 0 complete rows \(60 have missing numbers\) for 5 columns"),
        (lambda: with_holes([None] * 50 + [1.5] * 9 + [2.0]), {}, SchemaError, "Column 'e' is constant in the 9 complete rows"),
        (lambda: words()[0], {"score": "bge"}, SchemaError, r"Column 'a' is nominal \(string\), and BGe needs numbers"),
        (sensors, {"required": ["a->b", "b->c", "c->a"]}, InvalidParameter, "a->b->c->a is a cycle"),
        (sensors, {"required": ["a->b"], "forbidden": ["a->b"]}, InvalidParameter, "required='a->b'.*forbidden"),
        (sensors, {"required": ["d->a"], "tiers": [["a"], ["d"]]}, InvalidParameter, "required='d->a'.*tiers"),
        (sensors, {"required": ["a->x"]}, UnknownColumn, "Column 'x' is not in the table"),
        (sensors, {"forbidden": ["ab"]}, InvalidParameter, "forbidden='ab'.*an edge such as 'parent->child'"),
        (sensors, {"required": ["a->a"]}, InvalidParameter, "a column cannot be its own parent"),
        (sensors, {"tiers": [["a"], ["a"]]}, InvalidParameter, "tiers='a'.*a column may be in one group only"),
        (sensors, {"tiers": [["a"], ["y"]]}, UnknownColumn, "Column 'y' is not in the table"),
        (sensors, {"edge_log_odds": {"a->b": math.inf}}, InvalidParameter, "must be finite log odds"),
        (sensors, {"max_parents": 1, "required": ["a->b", "c->b"]}, InvalidParameter, "'b' has 2 required parents"),
        (sensors, {"ess": 0.0}, InvalidParameter, "ess=0.0 must be a number above zero"),
        (sensors, {"candidates": 0}, InvalidParameter, "candidates=0 must be a whole number from 1 to 24"),
        (sensors, {"alpha_w": 3.0}, InvalidParameter, "alpha_w=3.0 must be more than 5"),
        (sensors, {"alpha_mu": 0.0}, InvalidParameter, "alpha_mu=0.0 must be a number above zero"),
        (sensors, {"t": -1.0}, InvalidParameter, "t=-1.0 must be a number above zero"),
        (lambda: sensors(0), {}, EmptyData, "no rows to learn from"),
        (lambda: pa.table({f"x{i}": np.random.default_rng(i).normal(size=80) for i in range(65)}), {}, SchemaError,
         r"The table has 65 columns; posteriors over structures have at most 64. .*screen_for=\['x0'\] keeps the 64"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_words(table, parameters, error, message):
    with pytest.raises(error, match=message):
        learned(table(), **parameters)


def test_a_target_and_a_schema_with_a_class_are_refused():
    with pytest.raises(InvalidParameter, match="learner 'orders' has no class, because every column is a node"):
        drive(recipes.learner("orders", {}, "a"), Source.of_table(sensors()))
    schema = replace(learned(sensors()).schema, target="z", classes=("u", "v"))
    with pytest.raises(SchemaError, match="has the class 'z', but learner 'orders' has none"):
        drive(recipes.learner("orders", {}, None, schema), Source.of_table(sensors()))


def test_exact_needs_memory():
    x = pa.table({f"x{i}": np.random.default_rng(i).normal(size=80) for i in range(25)})
    with pytest.raises(InvalidParameter, match=r"method='exact'.*all orders of 25 columns take hours"):
        learned(x, method="exact")
    before = memory_limit()
    set_memory_limit(1 << 20, before.directory)
    try:
        with pytest.raises(InvalidParameter, match=r"all orders of 18 columns take \d+ MiB of the 1 MiB allowed"):
            learned(x.select(x.column_names[:18]), method="exact")
    finally:
        set_memory_limit(before.n_bytes, before.directory)


def test_what_cannot_be_known_of_a_graph_is_refused():
    model = learned(sensors())
    for query, error, message in (
        (Edges(present=("a->b",), absent=("a->b",)), ImpossibleEdges, "a->b is both present and absent"),
        (Graph(present=("a->z",)), UnknownColumn, "Column 'z' is not in the table"),
        (Paths(absent=("a",)), InvalidParameter, "absent='a' must be an edge such as 'parent->child'"),
        (Score(edges=("a->b", "b->c", "c->a")), ImpossibleEdges, "a->b->c->a is a cycle"),
    ):
        with pytest.raises(error, match=message):
            model.answer([query])
    for make, message in (
        (lambda: Edges(n=0), "n=0 must be 1 to 100,000 draws"),
        (lambda: Effects(level=1.0), "level=1.0 must be"),
        (lambda: Graphs(seed=-1), "seed=-1 must be"),
    ):
        with pytest.raises(InvalidParameter, match=message):
            make()


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("n_candidates", lambda a: a - 1, "candidates"),
        ("candidates", lambda a: a[::-1].copy(), "must contain ascending numbers of other columns"),
        ("logs", lambda a: a[:-1], "does not match the candidates"),
        ("logs", lambda a: a * np.nan, "contains values that are not log scores"),
        ("probabilities", lambda a: a[:-1], "is not 16 finite numbers"),
        ("sets", lambda a: np.array([0, 3, 1, 15], np.uint64), "must ascend from no column to all columns"),
        ("best", lambda a: a + np.uint64(16), "is not a set of columns for each column"),
        ("scatter", lambda a: a[:3], "is not 16 finite numbers"),
    ],
)
def test_arrays_that_training_never_wrote_are_refused(name, change, reason):
    header, arrays = learned(sensors()).to_arrays()
    with pytest.raises(InvalidArray, match=reason):
        load_model(header, arrays | {name: change(arrays[name])}, is_trusted=False)


@pytest.mark.parametrize("n", [3, 4])
def test_bge_takes_as_few_rows_as_columns(n):
    table = sensors(n)
    plain = naive_bge(standardised(table)[0])
    expected = enumerated(lambda i, p: plain(i, p) + log_fair(4, len(p)))
    np.testing.assert_allclose(learned(table).probabilities, expected[2], atol=1e-6)
