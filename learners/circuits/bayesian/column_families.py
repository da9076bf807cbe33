"""Models of a table's columns: the families that their leaves can have."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from learners.circuits.bayesian.priors import Column
from learners.circuits.parameters import BY_COLUMN, PAPER
from learners.circuits.queries.sampling_kernels import GOLDEN
from learners.circuits.structures.densities import NARROWEST, check_distribution_support, require_column_numbers
from learners.kernels.arrays import Array, Float32s, Floats, Integers
from learners.kernels.random import random_bits_array
from learners.schema import Chunk, Schema
from learners.schema.discretise import Histogram, floats_from_ordered_keys
from learners.schema.schema import Attribute

INTERVALS = "intervals"
# So many different whole numbers, or fewer, are values of their own.
FEW_NUMBERS = 16
# A float32 holds every whole number up to here.
LARGEST_COUNT = 1 << 24
# Numbers repeat where there are so many rows for each of them.
REPEATED = 1.25


@dataclass(frozen=True)
class Coding:
    """Conversion of a chunk's columns to the rows of a sampler."""

    columns: tuple[Column, ...]  # one for each attribute, the class last
    # Width of the uniform noise that is added to a column's numbers: one step in which they were recorded, where they
    # repeat. So a density cannot become a needle at a number that is there many times.
    noise: tuple[float, ...]
    seed: int = 0  # of the noise

    def rows(self, schema: Schema, chunk: Chunk, first_row: int) -> Float32s:
        """Convert a chunk to rows (n_rows, n_columns) float32, NaN where missing; numbers minus their column's centre.

        Noise depends on the rows' numbers in the whole table; the chunk's begin with first_row.
        """
        x = np.full((chunk.n_rows, len(self.columns)), np.nan)
        continuous = {v: row for row, v in enumerate(schema.continuous)}
        for v, column in enumerate(self.columns):
            if v == schema.n_attributes:
                assert chunk.y is not None
                x[:, v] = chunk.y
            elif column.n_values:
                codes = chunk.x[v].astype(np.float64) - schema.attributes[v].first_code
                x[:, v] = np.where((codes >= 0) & (codes < column.n_values), codes, np.nan)
            else:
                assert chunk.numbers is not None
                x[:, v] = chunk.numbers[continuous[v]] - column.centre
        noisy = np.flatnonzero(self.noise)
        numbers = (first_row + np.arange(chunk.n_rows)[:, np.newaxis]) * x.shape[1] + noisy
        x[:, noisy] += np.array(self.noise)[noisy] * (_uniforms(self.seed, numbers) - 0.5)
        return x.astype(np.float32)


def _uniforms(seed: int, numbers: Integers) -> Floats:
    """Return uniform noise in the open interval (0, 1) for each number, so that an integer with noise rounds to itself."""
    with np.errstate(over="ignore"):
        first = random_bits_array(np.array([seed], np.uint64) + GOLDEN)
        bits = random_bits_array(first + (numbers.astype(np.uint64) + np.uint64(1)) * GOLDEN)
    return ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def assign_column_families(
    schema: Schema, histograms: Mapping[str, Histogram], leaves: str, in_intervals: Collection[str] = (), seed: int = 0
) -> tuple[Schema, Coding]:
    """Assign a distribution, or values, to each numeric attribute; returns the schema and the coding of rows.

    Raises SchemaError if a distribution does not support a column's numbers.

    schema: an attribute with a distribution keeps it as its only family.
    histograms: histograms of the numeric columns.
    leaves {"by-column", "paper", "intervals", "gaussian", "poisson", "exponential"}: by column: few integers
    become values; other columns are Gaussian, also exponential if they reach down to zero, also Poisson if they
    are integers as well; with noise of one recorded step if numbers repeat. As in the paper: Gaussian,
    exponential if not negative, Poisson if also integers; without noise.
    in_intervals: numeric columns whose intervals are values, whatever `leaves` says.
    """
    attributes, columns, noise = [], [], []
    for attribute in schema.attributes:
        if attribute.kind == "nominal":
            own, column, width = attribute, _finite(attribute), 0.0
        else:
            how = INTERVALS if attribute.name in in_intervals else leaves
            own, column, width = _numeric(attribute, histograms[attribute.name], how)
        attributes.append(own)
        columns.append(column)
        noise.append(width)
    if schema.target is not None:
        columns.append(Column(("categorical",), schema.n_classes))
        noise.append(0.0)
    return replace(schema, attributes=tuple(attributes)), Coding(tuple(columns), tuple(noise), seed)


def _finite(attribute: Attribute) -> Column:
    return Column(("categorical",), attribute.n_values - attribute.first_code)


def _numeric(attribute: Attribute, histogram: Histogram, leaves: str) -> tuple[Attribute, Column, float]:
    """Return the modelled attribute, its column, and the width of its noise."""
    x, n = floats_from_ordered_keys(histogram.keys << histogram.level), histogram.counts.sum(axis=1)
    if attribute.distribution is None and leaves == INTERVALS:
        return attribute, _finite(attribute), 0.0
    require_column_numbers(attribute.name, histogram)
    is_whole = histogram.level == 0 and bool((x == np.floor(x)).all()) and bool(np.abs(x).max() < LARGEST_COUNT)
    if attribute.distribution is None and leaves == BY_COLUMN and is_whole and x.size <= FEW_NUMBERS:
        values = replace(attribute, kind="nominal", values=tuple(int(v) for v in x), cuts=())
        return values, _finite(values), 0.0
    mean = float(np.average(x, weights=n))
    spread = float(np.sqrt(np.average((x - mean) ** 2, weights=n))) or 1.0
    families = _families(attribute, leaves, x, is_whole, spread)
    for family in families:
        check_distribution_support(attribute, family, x, x, histogram.level)
    width = 0.0
    if leaves != PAPER and n.sum() > REPEATED * x.size:
        width = 1.0 if is_whole else max(_step(x), NARROWEST * spread * np.sqrt(12.0))
    # Whole numbers stay whole; others keep the digits of their differences.
    centre = 0.0 if families != ("gaussian",) else float(np.float32(mean))
    first: Any = families[0]
    own = replace(attribute, distribution=attribute.distribution or first)
    return own, Column(families, 0, centre), width


def _families(attribute: Attribute, leaves: str, x: Floats, is_whole: bool, spread: float) -> tuple[str, ...]:
    if attribute.distribution is not None:
        return (attribute.distribution,)
    if leaves not in (BY_COLUMN, PAPER):
        return (leaves,)
    least = float(x.min())
    reaches_zero = least >= 0 if leaves == PAPER else 0 <= least <= spread
    return ("gaussian", *(["exponential"] * reaches_zero), *(["poisson"] * (reaches_zero and is_whole)))


def _step(x: Array) -> float:
    """Return the smallest difference of two numbers."""
    return float(np.diff(x).min()) if x.size > 1 else 0.0
