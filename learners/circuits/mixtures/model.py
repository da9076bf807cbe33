"""A learned mixture of Gaussians with its schema, for storage, serving and queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Self, cast

import numpy as np
import pyarrow as pa

from learners.circuits.evaluation.reweighted import Likelihoods
from learners.circuits.mixtures import conditioning, queries
from learners.circuits.mixtures.mixture import DependentRanges, GaussianMixture
from learners.circuits.mixtures.queries import sampled_mixture_answer
from learners.circuits.model import CircuitHeader, CircuitModel
from learners.circuits.queries.named_answers import Answer, Batches
from learners.kernels.arrays import Array, Arrays, Floats, Integers
from learners.models.query import Query, Surprise
from learners.schema import Schema


class GaussianModel(CircuitModel):
    """A mixture whose components are one Gaussian with full covariance of all numeric columns, and independent discrete
    ones.

    mixture: variable i is attribute i; the last one is the class, if the schema has a target. facts: how it was
    learned.
    """

    kind: ClassVar[str] = "gaussian mixture"

    def __init__(self, schema: Schema, mixture: GaussianMixture, facts: Mapping[str, object]) -> None:
        super().__init__(schema, mixture.diagonal(), facts)
        self.mixture = mixture

    def class_posterior(self, x: Array, variable: int) -> Floats:
        """Return P(class | attributes) of possible rows (n_variables, n_rows), (n_rows, n_classes) float64."""
        return conditioning.conditional_marginals(self.mixture, x, [variable])[0]

    def row_logs(self, x: Array) -> Floats:
        """Return the log density of rows (n_variables, n_rows), with missing values integrated or summed out, (n_rows,)
        float64.
        """
        return self.mixture.log_density(x)

    def row_marginals(self, x: Array, variables: Sequence[int]) -> list[Floats]:
        """Return the marginal distribution of each discrete variable given each row, (n_rows, n_values) float64. Raises
        ImpossibleEvidence.
        """
        return conditioning.conditional_marginals(self.mixture, x, variables)

    def row_means(self, x: Array, variables: Sequence[int]) -> Floats:
        """Return the expectation of numeric variables given each row, (n_rows, len(variables)) float64. Raises
        ImpossibleEvidence.
        """
        return conditioning.conditional_moments(self.mixture, x, variables)[0]

    def row_peaks(self, x: Array, v: int) -> Floats:
        """Return each component's expectation of a numeric variable, (n_components, n_rows) float64; NaN in rows that
        have it.
        """
        return conditioning.component_conditional_means(self.mixture, x, v)

    def row_draws(self, x: Array, n: int, seed: int, numbers: Integers) -> Floats:
        """Draw samples given each row, (n_rows, n, n_variables) float64; `numbers` (n_rows,) seed each row. Raises
        ImpossibleEvidence.
        """
        return conditioning.draw_missing_cells(self.mixture, x, n, seed, numbers)

    def answer(self, queries: Sequence[Query], pause: Callable[[], None] | None = None) -> list[Answer]:
        """Answer queries as `queries.answer_network_queries` does; dependent ranges use `sampled_mixture_answer`.

        Raises DependentRanges for such ranges in a query that does not allow sampling.
        """
        try:
            return super().answer(queries, pause)
        except DependentRanges:
            return [self._one(query, pause) for query in queries]

    def _one(self, query: Query, pause: Callable[[], None] | None) -> Answer:
        try:
            return super().answer([query], pause)[0]
        except DependentRanges:
            if isinstance(query, Surprise) or query.sampling is None:
                raise
            return sampled_mixture_answer(self.mixture, self.columns, query, query.sampling, pause)

    def batches(self, likelihoods: Likelihoods) -> Batches:
        """Return the handlers of each query kind, given likelihoods."""
        return queries.mixture_query_handlers(self.mixture, likelihoods)

    def structure(self) -> dict[str, object]:
        """Return the columns, and a description of the mixture."""
        mixture, d = self.mixture, self.mixture.mean.shape[1]
        n_free = mixture.n_components * (1 + d + d * (d + 1) // 2) - 1
        n_free += mixture.n_components * int((mixture.n_values[mixture.discrete] - 1).sum())
        circuit = {
            "components": mixture.n_components,
            "columns_of_each_gaussian": d,
            "independent_discrete_columns": int(mixture.discrete.size),
            "variables": int(mixture.n_values.size),
            "free_parameters": n_free,
        }
        return super().structure() | {"circuit": circuit}

    def to_arrays(self) -> tuple[CircuitHeader, dict[str, Array]]:
        """Return a header and named arrays for `from_arrays`."""
        header: CircuitHeader = {"kind": self.kind, "schema": self.schema.to_json(), "facts": self.facts}
        return header, self.mixture.to_arrays()

    @classmethod
    def from_arrays(cls, header: Mapping[str, object], arrays: Arrays) -> Self:
        """Build the model from the output of `to_arrays`; the arrays may be memory-mapped and read-only."""
        stored = cast("CircuitHeader", header)
        return cls(Schema.from_json(stored["schema"]), GaussianMixture.from_arrays(arrays), stored["facts"])

    def tables(self) -> dict[str, pa.Table]:
        """Return the tables `columns`, `components`, `means`, `covariances` and `shares`, for SQL."""
        mixture = self.mixture
        k, d = mixture.mean.shape
        names = np.array(self.columns.names, object)
        numeric = names[mixture.numeric]
        shares = [
            {"component": component, "column": self.columns.names[v], "value": label, "share": float(share)}
            for v in mixture.discrete.tolist()
            for component, row in enumerate(np.exp(mixture.shares_of(v)))
            for label, share in zip(self.columns.labels(v), row.tolist(), strict=True)
        ]
        kinds = pa.schema(
            [("component", pa.int64()), ("column", pa.string()), ("value", pa.string()), ("share", pa.float64())]
        )
        return {
            "columns": super().tables()["columns"],
            "components": pa.table({"component": np.arange(k), "weight": np.exp(mixture.log_weight)}),
            "means": pa.table(
                {"component": np.repeat(np.arange(k), d), "column": np.tile(numeric, k), "mean": mixture.mean.ravel()}
            ),
            "covariances": pa.table(
                {
                    "component": np.repeat(np.arange(k), d * d),
                    "column": np.tile(np.repeat(numeric, d), k),
                    "other": np.tile(numeric, k * d),
                    "covariance": mixture.covariance.ravel(),
                }
            ),
            "shares": pa.Table.from_pylist(shares, kinds),
        }
