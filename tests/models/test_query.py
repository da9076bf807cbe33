"""Queries take one name, or several: a string by itself is one name, not its letters."""

import pytest

from learners.errors import InvalidParameter
from learners.models.query import Conditional, Edges, Effects, Graph, Graphs, Impute, Map, Moments, Paths, Sample, Score
from learners.orders.parameters import OrderParameters
from learners.registry.recipes import parse_learner_parameters


@pytest.mark.parametrize("query", [Conditional, Moments, Map, Impute, lambda names: Sample(variables=names)])
def test_one_column_may_stand_by_itself(query):
    assert query("late") == query(("late",)) == query(["late"])
    assert query("late").variables == ("late",)
    with pytest.raises(InvalidParameter, match="n=0"):
        Sample(0, variables="late")


@pytest.mark.parametrize("query", [Edges, Graph, Graphs, Paths, Effects])
def test_one_edge_may_stand_by_itself(query):
    asked = query(present="a->b", absent="b->c")
    assert asked == query(present=("a->b",), absent=("b->c",)) and asked.present == ("a->b",)
    assert Score("a->b") == Score(("a->b",))
    prior = parse_learner_parameters("orders", {"required": "a->b", "forbidden": ["b->c"]})
    assert prior == OrderParameters(required=("a->b",), forbidden=("b->c",))
