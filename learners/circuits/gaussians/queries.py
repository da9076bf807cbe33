"""Queries to a mixture of Gaussians, in the words of the columns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from learners.arrays import Array, Floats
from learners.circuits import queries
from learners.circuits.answer_forms import Answer, Batches, Guess
from learners.circuits.answers import n_joint_cells
from learners.circuits.circuit import Circuit, CircuitArrays
from learners.circuits.columns import Columns
from learners.circuits.errors import ImpossibleEvidence
from learners.circuits.gaussians import conditioning
from learners.circuits.gaussians.mixture import GaussianMixture
from learners.circuits.guesses import best_codes, by_kind, of_densities
from learners.circuits.kernels import CATEGORICAL, PRODUCT, SUM
from learners.circuits.map import map_query
from learners.circuits.surprise import ranks
from learners.query import Map, Query
from learners.schema import Schema

# Logarithms that differ by no more are equal.
SAME = 1e-10


def answer_all(
    mixture: GaussianMixture,
    circuit: Circuit,
    schema: Schema,
    asked: Sequence[Query],
    pause: Callable[[], None] | None = None,
) -> list[Answer]:
    """Answer many queries, as `circuits.queries.answer_all` tells.

    All answers are exact but MAP over numeric columns: no solver knows the highest point of a sum of Gaussians, so `bt` and `kbt`
    answer with the best of the components' own modes and a bound, and the others refuse it.

    Parameters
    ----------
    mixture : GaussianMixture
    circuit : Circuit
        `mixture.diagonal()`, which has the columns.
    schema : Schema
    asked : sequence of Query
    pause : callable, optional

    Raises
    ------
    UnknownColumn, InvalidEvidence, SchemaError, ImpossibleEvidence
    """
    return queries.answer_all(circuit, schema, asked, _Asked(mixture).batches, pause)


@dataclass(frozen=True, eq=False)
class _Asked:
    """Answers the queries of each kind."""

    mixture: GaussianMixture

    @property
    def batches(self) -> Batches:
        return {
            "marginal": self.marginal,
            "conditional": self.conditional,
            "moments": self.moments,
            "sample": self.sample,
            "impute": self.impute,
            "surprise": self.surprise,
            "map": self.map,
        }

    def log_evidence(self, columns: Columns, x: Array) -> tuple[list[float], list[bool]]:
        logs, is_density = self.mixture.log_density(x), of_densities(columns, x)
        return np.where(is_density, logs, np.minimum(logs, 0.0)).tolist(), is_density.tolist()

    def marginal(self, columns: Columns, x: Array) -> list[Answer]:
        with np.errstate(over="ignore"):  # a density may be beyond all doubles; its logarithm tells
            return [
                Answer(log_probability=log, density=float(np.exp(log)))
                if dense
                else Answer(log_probability=log, probability=float(np.exp(log)))
                for log, dense in zip(*self.log_evidence(columns, x), strict=True)
            ]

    def conditional(self, columns: Columns, x: Array, variables: tuple[int, ...], is_joint: bool) -> list[Answer]:
        logs, _ = self.log_evidence(columns, x)
        if is_joint:
            n_joint_cells(self.mixture.n_values[list(variables)].tolist())
            tables = conditioning.joint(self.mixture, x, variables)
            return [
                {"log_evidence": log, "distribution": queries.cells_of(columns, variables, table)}
                for log, table in zip(logs, tables, strict=True)
            ]
        by_variable = [p.tolist() for p in conditioning.marginals(self.mixture, x, variables)]
        return [
            {
                "log_evidence": log,
                "distributions": {
                    columns.names[v]: dict(zip(columns.labels(v), p[row], strict=True))
                    for v, p in zip(variables, by_variable, strict=True)
                },
            }
            for row, log in enumerate(logs)
        ]

    def moments(self, columns: Columns, x: Array, variables: tuple[int, ...]) -> list[Answer]:
        logs, _ = self.log_evidence(columns, x)
        mean, variance = conditioning.moments(self.mixture, x, variables)
        return [
            {
                "log_evidence": log,
                "moments": {
                    columns.names[v]: {"mean": float(mean[row, i]), "variance": float(variance[row, i])}
                    for i, v in enumerate(variables)
                },
            }
            for row, log in enumerate(logs)
        ]

    def draws(self, x: Array, n: int, seed: int) -> Floats:
        """(n_rows, n, n_variables) float64, each row as if it was asked alone."""
        return conditioning.draws(self.mixture, x, n, seed, np.zeros(x.shape[1], np.int64))

    def sample(self, columns: Columns, x: Array, variables: tuple[int, ...], n: int, seed: int) -> list[Answer]:
        return [{"rows": queries.in_words(columns, variables, rows)} for rows in self.draws(x, n, seed)]

    def impute(self, columns: Columns, x: Array, variables: tuple[int, ...]) -> list[Answer]:
        logs, _ = self.log_evidence(columns, x)
        found: list[dict[str, Guess]] = [{} for _ in logs]
        discrete, numeric = by_kind(columns, variables)
        for v, p in zip(discrete, conditioning.marginals(self.mixture, x, discrete), strict=True):
            for row, code in enumerate(best_codes(columns, v, p).tolist()):
                found[row][columns.names[v]] = {
                    "value": columns.value(v, code),
                    "probability": float(p[row, code]),
                }
        mean, variance = conditioning.moments(self.mixture, x, numeric)
        for i, v in enumerate(numeric):
            for row, own in enumerate(found):
                own[columns.names[v]] = {
                    "value": columns.value(v, mean[row, i]),
                    "variance": float(variance[row, i]),
                }
        names = [columns.names[v] for v in variables]
        return [
            Answer(log_evidence=log, imputed={name: own[name] for name in names})
            for log, own in zip(logs, found, strict=True)
        ]

    def surprise(self, columns: Columns, x: Array, n: int, seed: int) -> list[Answer]:
        logs, _ = self.log_evidence(columns, x)
        drawn = self.draws(np.full((len(columns.names), 1), np.nan), n, seed)[0]
        rank, error = ranks(np.array(logs), columns.known_rows(x), drawn, self.mixture.log_density)
        return [
            Answer(log_likelihood=log, rank=float(r), standard_error=float(e), n=n)
            for log, r, e in zip(logs, rank, error, strict=True)
        ]

    def map(self, columns: Columns, query: Map) -> list[Answer]:
        started = time.perf_counter()
        asked = queries.asked_of_map(columns, query)
        x = columns.rows([query.evidence])
        if any(not columns.n_values[v] for v in asked):
            tree = conditioning.best_tree(self.mixture, x, asked, query.k if query.solver == "kbt" else 1)
            values, value, bound = tree.values.tolist(), tree.log_density, tree.log_bound
            is_optimal, n_expanded = bound - value <= SAME, 0
        else:
            folded = folded_circuit(self.mixture, self.mixture.shares(x)[:, 0], asked)
            limit = query.time_limit_s
            found = map_query(
                folded, range(len(asked)), {}, query.solver, k=query.k, seed=query.seed, time_limit_s=limit
            )
            values = [found.assignment[i] for i in range(len(asked))]
            log = float(self.mixture.log_density(x)[0])
            value, bound = found.log_probability + log, found.upper_bound + log
            is_optimal, n_expanded = found.is_optimal, found.n_expanded
        return [
            {
                "assignment": {columns.names[v]: columns.value(v, own) for v, own in zip(asked, values, strict=True)},
                "log_probability": value,
                "upper_bound": bound,
                "is_optimal": bool(is_optimal),
                "n_expanded": int(n_expanded),
                "seconds": time.perf_counter() - started,
            }
        ]


def folded_circuit(mixture: GaussianMixture, shares: Floats, asked: Sequence[int]) -> Circuit:
    """The distribution of some discrete variables given a row, as a circuit: its variable i is the i-th asked one.

    Parameters
    ----------
    mixture : GaussianMixture
    shares : (n_components,) float64
        Of the components given the row.
    asked : sequence of int

    Raises
    ------
    ImpossibleEvidence
    """
    reached = np.flatnonzero(shares > 0)
    if not reached.size:
        raise ImpossibleEvidence
    k, n = reached.size, len(asked)
    sizes = mixture.n_values[list(asked)]
    parameters = [mixture.shares_of(v)[component] for component in reached.tolist() for v in asked]
    n_children = np.concatenate([np.zeros(k * n, np.int64), np.full(k, n), [k]])
    n_parameters = np.concatenate([np.tile(sizes, k), np.zeros(k + 1, np.int64)])
    return Circuit(
        CircuitArrays(
            np.concatenate([np.full(k * n, CATEGORICAL), np.full(k, PRODUCT), [SUM]]).astype(np.int8),
            np.concatenate([[0], np.cumsum(n_children)]),
            np.arange(k * n + k),
            np.concatenate([np.zeros(k * n), np.log(shares[reached] / shares[reached].sum())]),
            np.concatenate([np.tile(np.arange(n), k), np.full(k + 1, -1)]),
            np.concatenate([[0], np.cumsum(n_parameters)]),
            np.concatenate(parameters),
            sizes,
        )
    )
