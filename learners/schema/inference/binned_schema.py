"""A schema that loses nothing gradient boosting would use."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from learners.schema import Schema
from learners.schema.discretise import Histogram, equal_frequency_cut_points
from learners.schema.inference.summaries import ColumnSummaries

NO_CUTS: Mapping[str, tuple[float, ...]] = MappingProxyType({})


def binned_schema(summaries: ColumnSummaries, max_bin: int, known: Mapping[str, tuple[float, ...]] = NO_CUTS) -> Schema:
    """The schema with at most `max_bin` intervals for each numeric column, whether or not they tell the classes apart.

    Histogram boosting bins numbers by their quantiles before it looks for splits. Doing that in the schema gives trees
    over codes that any model file, job or request can carry.

    `summaries`: with a target.
    `max_bin`: a column with no more distinct values keeps them all apart; cut points that the user gave stay.
    `known`: cut points of columns that have them from elsewhere.
    Raises EmptyData or SchemaError as `ColumnSummaries.build_schema` does.
    """
    return summaries.build_schema(lambda name, histogram: known.get(name) or quantile_cut_points(histogram, max_bin))


def quantile_cut_points(histogram: Histogram, max_bin: int) -> tuple[float, ...]:
    """At most max_bin - 1 cut points: between all values if they are few, else at equal frequencies."""
    if histogram.keys.size > max_bin:
        return equal_frequency_cut_points(histogram, max_bin)
    largest = np.finfo(np.float64).max
    return tuple(np.unique(np.clip(histogram.thresholds(), -largest, largest)).tolist())
