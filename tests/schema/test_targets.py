"""Targets that are no classes: the message says what to do."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from learners.errors import SchemaError, SourceError
from learners.evaluation.datasets import find_data_sets
from learners.passes.inference import infer_schema
from learners.passes.sources.source import Source


@pytest.mark.parametrize("y", [[0.0, 0.5, 1.0] * 20, [Decimal("1.25"), Decimal("2.5")] * 30, [1e300, 2.0] * 30])
def test_numbers_with_fractions_are_no_classes(y):
    table = pa.table({"x": ["a", "b"] * 30, "y": y})
    with pytest.raises(
        SchemaError, match=r"target 'y' holds numbers such as .*regression, and fewpass classifies: cut them"
    ):
        infer_schema(Source.of_table(table), "y")


def test_whole_numbers_with_many_values_are_told_to_be_regression():
    for n in (300, 30_000):
        table = pa.table({"x": ["a", "b"] * (n // 2), "y": np.arange(n)})
        with pytest.raises(SchemaError, match=r"'y' has .* different values.*To predict numbers is regression"):
            infer_schema(Source.of_table(table), "y")


def test_words_with_many_values_are_not():
    table = pa.table({"x": ["a", "b"] * 150, "y": [f"name{i}" for i in range(300)]})
    with pytest.raises(SchemaError, match="Name a class column, or group the values"):
        infer_schema(Source.of_table(table), "y")


def test_a_comparison_says_that_csv_is_no_parquet(tmp_path):
    (tmp_path / "t.csv").write_text("x,y\n1,a\n")
    with pytest.raises(SourceError, match=r"t\.csv: is CSV by its name, and a comparison reads Parquet"):
        find_data_sets([tmp_path / "t.csv"])
