"""What folding cost: the share of rows, and a bound on the information about the class, against raw rows."""

from collections import Counter
from math import log

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners import Source, drive
from learners.classifiers.lookup.lookup import LookupModel
from learners.classifiers.table_warnings import folding_costs
from learners.registry import recipes
from learners.schema.column_summary import FoldingCost, losses


def information(pairs):
    """Mutual information of pairs, in nats."""
    both, first, second = Counter(pairs), Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    n = len(pairs)
    return sum(c / n * log(c * n / (first[a] * second[b])) for (a, b), c in both.items())


def entropy(values):
    counts = Counter(values)
    return -sum(c / len(values) * log(c / len(values)) for c in counts.values())


def learned(table, max_values):
    model = drive(
        recipes.learner("nb", {"max_values": max_values, "m": 1.0}, "class"), Source.of_table(table), threads=1
    )
    assert isinstance(model, LookupModel)
    return model


@given(seed=st.integers(0, 10**6), max_values=st.integers(2, 12))
def test_costs_are_those_of_raw_rows_and_bound_what_is_lost(seed, max_values):
    rng = np.random.default_rng(seed)
    x = np.minimum(rng.geometric(0.15, 300), 25)
    y = (x * 7 + rng.integers(0, 3, 300)) % 3
    table = pa.table({"shop": [f"s{a:02d}" for a in x], "other": ["a", "b"] * 150, "class": [f"c{b}" for b in y]})
    model = learned(table, max_values)
    found = folding_costs(model)
    kept = set(model.schema.attributes[0].values)
    rows = list(zip(table["shop"].to_pylist(), table["class"].to_pylist(), strict=True))
    folded = [label for value, label in rows if value not in kept]
    if not folded:
        assert found == {}
        return
    assert list(found) == ["shop"] and found["shop"].share == pytest.approx(len(folded) / 300)
    assert found["shop"].most_nats == pytest.approx(len(folded) / 300 * entropy(folded))
    lost = information(rows) - information([(value if value in kept else "", label) for value, label in rows])
    assert -1e-9 <= lost <= found["shop"].most_nats + 1e-9


def test_the_cost_is_told():
    model = learned(pa.table({"x": list("aaabbbcdef") * 10, "class": list("uvuvuvuvuv") * 10}), 2)
    assert losses(model.schema, {"x": FoldingCost(0.4, 0.27725)}) == [
        "Column 'x' keeps 2 values; 4 rarer ones share one code, in 40.0% of the rows: told apart, they could lower the "
        "log loss by at most 0.277. Raise max_values to keep more."
    ]
    assert folding_costs(model)["x"].most_nats == pytest.approx(0.4 * log(2))
    assert losses(model.schema) == [
        "Column 'x' keeps 2 values; 4 rarer ones share one code. Raise max_values to keep more."
    ]
