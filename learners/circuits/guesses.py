"""Best guesses of missing values, and how unusual a row is, as answers to queries."""

from __future__ import annotations

import numpy as np

from learners.arrays import Array, Floats, Integers, Mask
from learners.circuits import answers
from learners.circuits.answer_forms import Answer, Guess
from learners.circuits.cells import nameable
from learners.circuits.columns import Columns
from learners.circuits.leaf_shapes import density_variables
from learners.circuits.sampling import sample
from learners.circuits.surprise import ranks


def of_densities(columns: Columns, x: Array) -> Mask:
    """(n_rows,) bool: whether what is observed in a row has a density, not a probability."""
    numeric = density_variables(columns.circuit)
    is_density: Mask = np.any(~np.isnan(np.asarray(x, np.float64)[numeric]), axis=0)
    return is_density


def log_evidence(columns: Columns, x: Array) -> tuple[list[float], list[bool]]:
    """Log probability of each row, and whether it is one of a density."""
    logs = answers.log_likelihood(columns.circuit, x)
    is_density = of_densities(columns, x)
    # Probabilities that add to one add to a little more in floating point.
    return np.where(is_density, logs, np.minimum(logs, 0.0)).tolist(), is_density.tolist()


def impute(columns: Columns, x: Array, variables: tuple[int, ...]) -> list[Answer]:
    """The best guess of each variable given each row."""
    logs, _ = log_evidence(columns, x)
    found: list[dict[str, Guess]] = [{} for _ in logs]
    discrete, numeric = by_kind(columns, variables)
    if discrete:
        for v, p in zip(discrete, answers.marginals(columns.circuit, x, discrete), strict=True):
            for row, code in enumerate(best_codes(columns, v, p).tolist()):
                value = columns.value(v, code)
                found[row][columns.names[v]] = {"value": value, "probability": float(p[row, code])}
    if numeric:
        mean, variance = answers.moments(columns.circuit, x, numeric)
        for i, v in enumerate(numeric):
            for row in range(len(found)):
                value = columns.value(v, mean[row, i])
                found[row][columns.names[v]] = {"value": value, "variance": float(variance[row, i])}
    names = [columns.names[v] for v in variables]
    return [
        Answer(log_evidence=log, imputed={name: own[name] for name in names})
        for log, own in zip(logs, found, strict=True)
    ]


def by_kind(columns: Columns, variables: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """Discrete and numeric variables."""
    return [v for v in variables if columns.n_values[v]], [v for v in variables if not columns.n_values[v]]


def surprise(columns: Columns, x: Array, n: int, seed: int) -> list[Answer]:
    """The likelihood of each row, and its rank among n rows that are drawn."""
    circuit = columns.circuit
    logs, _ = log_evidence(columns, x)
    drawn = sample(circuit, np.full((len(columns.names), 1), np.nan), n, seed)[0]
    known = columns.known_rows(x)
    rank, error = ranks(np.array(logs), known, drawn, lambda rows: answers.log_likelihood(circuit, rows))
    return [
        Answer(log_likelihood=log, rank=float(r), standard_error=float(e), n=n)
        for log, r, e in zip(logs, rank, error, strict=True)
    ]


def best_codes(columns: Columns, variable: int, p: Floats) -> Integers:
    """(n_rows,) int64: the most probable value by distributions p (n_rows, n_values); neither what is missing nor what is rare."""
    return np.asarray(np.where(nameable(columns)[variable], p, -1.0).argmax(axis=1))
