"""Posteriors over structures answer queries of both kinds, in the order in which they are asked."""

import numpy as np
import pyarrow as pa

from learners import StructurePosterior
from learners.models.query import Conditional, Edges, Map
from service.product.inference.queries import answer_model_queries, check_query_answer_size, limit_queries
from service.product.submission.prechecks import check_queries


def test_a_posterior_answers_about_structures_and_about_its_best_graph():
    rng = np.random.default_rng(2)
    a = rng.choice(["x", "y"], 200)
    table = pa.table({"a": a, "b": np.where(rng.random(200) < 0.8, a, "z")})
    model = StructurePosterior().fit(table).model_
    asked = [Conditional(("a",), {"b": "x"}), Edges(), Map(evidence={"b": "y"})]
    check_queries(model, asked)
    check_query_answer_size(model, limit_queries(model, asked, 10, 5.0), 100)
    first, edges, best = answer_model_queries(model, asked)
    assert first["graph"] == best["graph"] == "best"
    assert first["distributions"]["a"]["x"] > 0.9
    assert best["assignment"] == {"a": "y"}
    assert edges["kind"] == "edges"
    assert "graph" not in edges
    assert answer_model_queries(model, [Edges()])[0] == edges
