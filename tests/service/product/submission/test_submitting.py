"""Queries are refused before they are queued exactly where answering them would refuse them."""

import numpy as np
import pyarrow as pa
import pytest

from learners import Source, drive, learner
from learners.circuits.errors import InvalidEvidence
from learners.errors import UnknownColumn
from learners.models.query import Conditional, Marginal
from service.product.inference.queries import answer_model_queries
from service.product.submission.prechecks import check_queries


@pytest.fixture(scope="module")
def network():
    """naive Bayes whose attribute has two values of its own; the others share a code."""
    rng = np.random.default_rng(0)
    letters = rng.choice(list("aaaaabbbbbcd"), 400)
    table = pa.table(
        {
            "k": ["one"] * 400,
            "x": letters,
            "n": rng.normal(size=400) + (letters == "a"),
            "class": np.where(letters == "a", "yes", "no"),
        }
    )
    return drive(learner("nb", {"max_values": 2}, "class"), Source.of_table(table))


@pytest.mark.parametrize(
    "evidence", [{"x": "a"}, {"x": "c"}, {"x": "never"}, {"x": None}, {"n": 0.5}, {"class": "yes"}]
)
def test_what_can_be_answered_is_taken(network, evidence):
    """Among it rare values that share a code, and what training never saw where there is such a code."""
    queries = [Marginal(evidence)]
    check_queries(network, queries)
    assert answer_model_queries(network, queries)


@pytest.mark.parametrize(
    ("query", "error"),
    [
        (Marginal({"class": "maybe"}), InvalidEvidence),
        (Marginal({"y": 1}), UnknownColumn),
        (Conditional(("y",)), UnknownColumn),
        (Marginal({"k": "one"}), InvalidEvidence),
    ],
)
def test_what_cannot_is_refused_alike(network, query, error):
    for ask in (check_queries, answer_model_queries):
        with pytest.raises(error):
            ask(network, [query])


def test_a_column_that_selection_took_away_is_refused_alike():
    """Its circuit has no leaf of it, and would call any value certain."""
    rng = np.random.default_rng(0)
    letters = rng.choice(list("ab"), 400)
    table = pa.table(
        {"x": letters, "noise": rng.choice(list("uvw"), 400), "class": np.where(letters == "a", "yes", "no")}
    )
    model = drive(learner("skdb", {"k": 1}, "class"), Source.of_table(table))
    assert len(model.network.order) == 1
    for query in (Marginal({"noise": "u"}), Conditional(("noise",)), Conditional(("class",), {"noise": "v"})):
        for ask in (check_queries, answer_model_queries):
            with pytest.raises(InvalidEvidence, match="Column 'noise' was left out when the circuit was made"):
                ask(model, [query])
    for query in (Marginal({"noise": None}), Conditional(("x",))):
        check_queries(model, [query])
        assert answer_model_queries(model, [query])
