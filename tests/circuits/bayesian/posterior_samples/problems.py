"""Draws of small circuits over mixed columns."""

import numpy as np

from learners.circuits.bayesian.posterior_samples.samples import CircuitDraws
from learners.circuits.bayesian.sampler.layout import layout_of
from learners.circuits.bayesian.sampler.parameters import parameters_given
from learners.circuits.bayesian.sampler.priors import Column
from learners.circuits.bayesian.sampler.sampler import LazySampler
from learners.circuits.bayesian.sampler.store import InMemory
from tests.circuits.bayesian.sampler.problems import EXPONENTIAL, GAUSSIAN, MIXED, POISSON, WORDS, prior_of, rows_of

MANY = Column(("categorical",), 7)
COLUMNS = (GAUSSIAN, WORDS, POISSON, *MIXED, EXPONENTIAL, MANY)


def draws_of(n_draws=12, n_rows=30, n_children=2, columns=COLUMNS):
    """Draws given a few rows, and these rows (n_variables, n_rows)."""
    prior, rows = prior_of(columns, n_children), InMemory(rows_of(columns, n_rows))
    state = LazySampler(prior, rows).init(np.random.default_rng(0))
    layout, random = layout_of(prior), np.random.default_rng(1)
    vectors = np.stack([layout.vector(parameters_given(random, prior, state.tallies)) for _ in range(n_draws)], axis=1)
    n = layout.edge.size
    return CircuitDraws(layout.circuit_of(vectors[:, 0]), vectors[:n], vectors[n:]), rows.x.T.astype(float)
