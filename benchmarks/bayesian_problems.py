"""Tables of mixed columns as the rows and priors of Bayesian circuits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from learners.circuits.bayesian.sampler.columns import Coding, coded
from learners.circuits.bayesian.sampler.learning import sampled_rows
from learners.circuits.bayesian.sampler.priors import Prior
from learners.circuits.bayesian.sampler.sampler import InMemory
from learners.circuits.bayesian.sampler.settings import GibbsParameters
from learners.circuits.bayesian.sampler.shape import complete_shape
from learners.circuits.bayesian.sampler.tuning import Chosen, given
from learners.kernels.arrays import Float32s
from learners.passes.engine import collect
from learners.passes.sources.source import Source
from learners.schema import Schema
from learners.schema.encoding.encode import encode
from learners.schema.inference.binned_schema import binned_schema
from learners.schema.inference.summaries import ColumnSummaries

MIXED = Path(__file__).resolve().parents[1] / "../shared/data/mixed"


def table_of(name: str) -> pa.Table:
    """A set of the folder `mixed`."""
    return pq.read_table(MIXED / f"{name}.parquet")


@dataclass(frozen=True)
class Problem:
    """What a sampler works on.

    Parameters
    ----------
    schema : Schema
    coding : Coding
    x : (n_rows, n_columns) float32
    """

    schema: Schema
    coding: Coding
    x: Float32s

    def prior(self, children: int, seed: int = 0, chosen: Chosen | None = None) -> Prior:
        """The prior that is fitted to the rows; by default with what a user gets who says nothing."""
        shape = complete_shape(self.x.shape[1], children, seed)
        chosen = chosen or given(GibbsParameters(), self.x.shape[1])
        return chosen.prior(shape, self.coding, sampled_rows(InMemory(self.x), seed).astype(np.float64), seed)

    def rows(self, table: pa.Table, first_row: int = 0) -> Float32s:
        """(n_rows, n_columns) float32 of other rows, coded alike."""
        return self.coding.rows(self.schema, encode(table, self.schema), first_row)


def problem_of(table: pa.Table, leaves: str = "by-column", seed: int = 0) -> Problem:
    """The rows of a table without a class."""
    summaries = collect(ColumnSummaries(None, {}), Source.of_table(table), threads=1)
    schema, histograms = binned_schema(summaries, 8), {n: c.histogram for n, c in summaries.found.items()}
    schema, coding = coded(schema, histograms, leaves, seed=seed)
    return Problem(schema, coding, coding.rows(schema, encode(table, schema), 0))
