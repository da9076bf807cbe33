"""Queries are refused before they are queued exactly where answering them would refuse them."""

import numpy as np
import pyarrow as pa
import pytest

from learners import Source, drive, learner
from learners.circuits.errors import InvalidEvidence
from learners.errors import SourceError, UnknownColumn
from learners.models.query import Conditional, Marginal
from service.product.inference.queries import answer_model_queries
from service.product.inference.query_checks import check_queries
from service.product.submission.prechecks import check_local_uri_exists


@pytest.fixture(scope="module")
def network():
    """naive Bayes whose attribute has two values of its own; the others share a code."""
    rng = np.random.default_rng(0)
    letters = rng.choice(list("aaaaabbbbbcd"), 400)
    numbers = rng.normal(size=400) + (letters == "a")
    table = pa.table({"k": ["one"] * 400, "x": letters, "n": numbers, "class": np.where(letters == "a", "yes", "no")})
    return drive(learner("nb", {"max_values": 2}, "class"), Source.of_table(table))


@pytest.fixture(scope="module")
def selected():
    """A network of which selection took a column away: its circuit has no leaf of it, and would call any value certain."""
    rng = np.random.default_rng(0)
    letters, noise = rng.choice(list("ab"), 400), rng.choice(list("uvw"), 400)
    table = pa.table({"x": letters, "noise": noise, "class": np.where(letters == "a", "yes", "no")})
    model = drive(learner("skdb", {"k": 1}, "class"), Source.of_table(table))
    assert len(model.network.order) == 1
    return model


def test_what_can_be_answered_is_taken(network, selected):
    """Among it rare values that share a code, and what training never saw where there is such a code."""
    evidence = [{"x": "a"}, {"x": "c"}, {"x": "never"}, {"x": None}, {"n": 0.5}, {"class": "yes"}]
    for model, queries in (
        (network, [Marginal(known) for known in evidence]),
        (selected, [Marginal({"noise": None}), Marginal({"noise": "u"}), Conditional("class", {"noise": "v"})]),
    ):
        check_queries(model, queries)
        assert len(answer_model_queries(model, queries)) == len(queries)


LEFT_OUT = "Feature selection removed column 'noise', so"


@pytest.mark.parametrize(
    ("model", "query", "error", "words"),
    [
        ("network", Marginal({"class": "maybe"}), InvalidEvidence, "maybe"),
        ("network", Marginal({"y": 1}), UnknownColumn, "'y'"),
        ("network", Conditional(("y",)), UnknownColumn, "'y'"),
        ("network", Marginal({"k": "one"}), InvalidEvidence, "'k'"),
        ("selected", Conditional(("noise",)), InvalidEvidence, LEFT_OUT),
    ],
)
def test_what_cannot_is_refused_alike(request, model, query, error, words):
    for ask in (check_queries, answer_model_queries):
        with pytest.raises(error, match=words):
            ask(request.getfixturevalue(model), [query])


@pytest.mark.parametrize(
    ("name", "reason"),
    [("none.parquet", "no such file"), ("none-*", "matches no file"), ("x" * 300, "File name too long")],
)
def test_files_that_cannot_be_there_are_refused_with_the_reason(tmp_path, name, reason):
    """Longer than any name, a path was an error of the server."""
    with pytest.raises(SourceError, match=reason):
        check_local_uri_exists(str(tmp_path / name))
