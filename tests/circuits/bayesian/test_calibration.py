"""Credible intervals hold the truth as often as they say, on rows of circuits whose parameters come from the prior."""

import numpy as np

from learners.circuits.bayesian.circuit_draws import CircuitDraws, summarise_draws
from learners.circuits.bayesian.circuit_layout import build_circuit_layout, draw_posterior_parameters
from learners.circuits.bayesian.collapsed_sampler import InMemory, LazySampler, Moves
from learners.circuits.bayesian.priors import Column, Strengths, complete_tree_shape, prior_from_moments
from learners.circuits.evaluation.evaluate import log_values
from learners.circuits.queries.array_answers import sample
from tests.circuits.bayesian.problems import empty_tallies

COLUMNS = (
    Column(("categorical",), 3),
    Column(("gaussian", "exponential")),
    Column(("categorical",), 2),
    Column(("poisson",)),
)
STRENGTHS = Strengths(alpha=1.0, gaussian=2.0, rho=0.5, exponential=2.0, poisson=3.0, categorical=1.0)
LEVELS = (0.9, 0.3)
N_DRAWS, THIN, BURN_IN, N_ROWS = 100, 4, 100, 20
# Evidence of the marginal probabilities that are asked for: variable and value.
QUESTIONS: tuple[dict[int, float], ...] = ({0: 0}, {0: 1}, {2: 0}, {0: 0, 2: 0}, {0: 2, 2: 1}, {0: 0, 3: 2})


def covered(seed):
    """(2, n_questions) bool: whether the wide and the narrow interval of each marginal probability hold that of the rows' circuit."""
    shape, rng = complete_tree_shape(len(COLUMNS), 2, seed), np.random.default_rng(seed)
    n = shape.n_leaf_sums * 2
    prior = prior_from_moments(shape, COLUMNS, STRENGTHS, rng.uniform(0.5, 4.0, n), rng.uniform(0.3, 1.5, n), seed)
    layout, random = build_circuit_layout(prior), np.random.default_rng([seed, 1])
    asked = np.full((len(COLUMNS), len(QUESTIONS)), np.nan)
    for q, given in enumerate(QUESTIONS):
        asked[list(given), q] = list(given.values())
    known = layout.circuit(draw_posterior_parameters(random, prior, empty_tallies(prior)))
    x = sample(known, np.full((len(COLUMNS), 1), np.nan), N_ROWS, seed)[0]
    x[random.random(x.shape) < 0.1] = np.nan
    sampler = LazySampler(prior, InMemory(x), Moves(1, 4))
    state, vectors = sampler.init(random), []
    for sweep in range(BURN_IN + N_DRAWS * THIN):
        state, _ = sampler.step(random, state)
        if sweep >= BURN_IN and sweep % THIN == 0:
            vectors.append(layout.vector(draw_posterior_parameters(random, prior, state.tallies)))
    drawn, n_edges = np.stack(vectors, axis=1), layout.edge.size
    draws = CircuitDraws(layout.circuit_of(drawn[:, 0]), drawn[:n_edges], drawn[n_edges:])
    truth, drawn = np.exp(log_values(known, asked)), np.exp(draws.log_likelihoods(asked))
    found = [summarise_draws(drawn, 1, level) for level in LEVELS]
    return np.array([(own.low <= truth) & (truth <= own.high) for own in found])


def test_intervals_hold_the_truth_as_often_as_they_say_and_narrow_ones_less_often():
    """Forty circuits from the prior, six probabilities each; four standard errors of the share, of some 0.03 each."""
    wide, narrow = np.stack([covered(seed) for seed in range(40)], axis=1)
    error = wide.mean(axis=1).std(ddof=1) / np.sqrt(40)
    assert error < 0.045
    assert abs(wide.mean() - 0.9) < 4 * error
    assert narrow.mean() < 0.6
