"""Tiny Bayesian circuits, whose posterior can be enumerated, and draws of small ones over mixed columns."""

import numpy as np

from learners.circuits.bayesian.circuit_draws import CircuitDraws
from learners.circuits.bayesian.circuit_layout import build_circuit_layout, draw_posterior_parameters
from learners.circuits.bayesian.collapsed_sampler import InMemory, LazySampler, Tallies
from learners.circuits.bayesian.priors import Column, Strengths, complete_tree_shape, prior_from_moments

GAUSSIAN, EXPONENTIAL, POISSON = Column(("gaussian",)), Column(("exponential",)), Column(("poisson",))
WORDS = Column(("categorical",), 3)
STRENGTHS = Strengths(alpha=0.7, gaussian=1.5, rho=0.5, exponential=2.0, poisson=2.5, categorical=0.8)


def prior_of(columns, n_children=2, seed=0, strengths=STRENGTHS):
    """Leaves with means and variances drawn at random."""
    shape, rng = complete_tree_shape(len(columns), n_children, seed), np.random.default_rng(seed)
    n = shape.n_leaf_sums * n_children
    return prior_from_moments(shape, columns, strengths, rng.uniform(0.5, 2.0, n), rng.uniform(0.3, 1.5, n), seed)


def empty_tallies(prior):
    """Of no rows."""
    counts = np.zeros((prior.shape.n_sums, prior.shape.n_children), np.int32)
    return Tallies(counts, prior.leaf.copy(), np.zeros(max(1, prior.n_cells), np.int32))


def column_of_numbers(column, n, rng):
    """Some numbers that a column may have."""
    if column.n_values:
        return rng.integers(0, column.n_values, n).astype(float)
    x = rng.gamma(2.0, 0.7, n) if "exponential" in column.families else rng.normal(1.0, 1.0, n)
    return np.rint(abs(2 * x)) if "poisson" in column.families else x


def rows_of(columns, n, seed=0, missing=0.2):
    """(n, n_columns) float64, of numbers that a float32 holds."""
    rng = np.random.default_rng(seed)
    x = np.stack([column_of_numbers(column, n, rng) for column in columns], axis=1)
    x[rng.random(x.shape) < missing] = np.nan
    return x.astype(np.float32).astype(float)


MIXED = (Column(("gaussian", "exponential")), WORDS)
COUNTS = (Column(("gaussian", "poisson")), EXPONENTIAL)
THREE = (GAUSSIAN, WORDS, POISSON)
PROBLEMS = {"mixed": (MIXED, 3), "counts": (COUNTS, 3), "three columns": (THREE, 2)}


MANY = Column(("categorical",), 7)
COLUMNS = (GAUSSIAN, WORDS, POISSON, *MIXED, EXPONENTIAL, MANY)


def draws_of(n_draws=12, n_rows=30, n_children=2, columns=COLUMNS):
    """Draws given a few rows, and these rows (n_variables, n_rows)."""
    prior, rows = prior_of(columns, n_children), InMemory(rows_of(columns, n_rows))
    state = LazySampler(prior, rows).init(np.random.default_rng(0))
    layout, random = build_circuit_layout(prior), np.random.default_rng(1)
    vectors = np.stack(
        [layout.vector(draw_posterior_parameters(random, prior, state.tallies)) for _ in range(n_draws)], axis=1
    )
    n = layout.edge.size
    return CircuitDraws(layout.circuit_of(vectors[:, 0]), vectors[:n], vectors[n:]), rows.x.T.astype(float)
