"""The examples of docs/how-to/structures.md run, and say what is true."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from pydantic import TypeAdapter

from learners.models.query import AnyQuery, StructureQuery
from tests.orders.problems import EXACT

TEXT = (Path(__file__).parents[2] / "docs" / "how-to" / "structures.md").read_text(encoding="utf-8")


def test_the_python_examples_run():
    names = {}
    for example in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(compile(example, "docs/how-to/structures.md", "exec"), names)
    assert names["rain"] == pytest.approx(0.9 * 0.2 / (0.9 * 0.2 + 0.1 * 0.8))
    posterior = names["posterior"]
    assert posterior.feature_names_in_ == ["flow", "heat", "alarm"]
    assert posterior.coverage_ == EXACT
    assert names["effects"]["flow", "heat"]["high"] == pytest.approx(3.0, abs=0.4)
    assert posterior.edge_probabilities_[2].tolist() == [0.0, 0.0, 0.0]
    assert names["odds"] < 0
    assert sum(graph["count"] for graph in names["drawn"]["graphs"]) == 100
    assert names["graph"].number_of_nodes() == 3
    assert np.isfinite(names["given"]["log_evidence"])


def test_the_queries_of_the_page_are_queries():
    (example,) = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
    TypeAdapter(list[AnyQuery]).validate_python(json.loads(example)["queries"])
    for query in StructureQuery.__args__:
        assert f"| `{query.kind}` |" in TEXT
