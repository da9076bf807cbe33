import numpy as np
from scipy import stats

from learners.circuits.bayesian.circuit_layout import draw_posterior_parameters
from learners.circuits.bayesian.collapsed_sampler import InMemory, LazySampler
from learners.circuits.bayesian.leaf_kernels import FIRST, SECOND, SQUARES, TOTAL, N
from learners.circuits.bayesian.priors import leaf_families
from learners.circuits.kernels import CATEGORICAL, EXPONENTIAL, GAUSSIAN, POISSON
from tests.circuits.bayesian.problems import COUNTS, MIXED, STRENGTHS, prior_of, rows_of

COLUMNS = (*MIXED, *COUNTS)


def test_parameters_have_the_posterior_of_their_leaf_and_shares_add_up_to_one():
    """Kolmogorov and Smirnov's test of 2,000 draws against scipy's distributions, for each kind of parameter."""
    prior, rows = prior_of(COLUMNS), InMemory(rows_of(COLUMNS, 60))
    state = LazySampler(prior, rows).init(np.random.default_rng(0))
    random = np.random.default_rng(1)
    draws = [draw_posterior_parameters(random, prior, state.tallies) for _ in range(2000)]
    assert np.allclose(draws[0].weight.sum(axis=1), 1)
    assert np.allclose(draws[0].cells.reshape(-1, 3).sum(axis=1), 1)
    leaf, family = state.tallies.leaf, leaf_families(state.tallies.leaf)
    fullest = {code: np.flatnonzero(family == code)[np.argmax(leaf[family == code, N])] for code in (3, 4, 5, 6)}

    i = fullest[GAUSSIAN]
    n, total, squares, mean, b = leaf[i, [N, TOTAL, SQUARES, FIRST, SECOND]]
    rho, a = STRENGTHS.rho + n, STRENGTHS.gaussian + n / 2
    rate = b + 0.5 * (squares - total**2 / rho)
    of = {
        "mean": ([d.first[i] for d in draws], stats.t(2 * a, mean + total / rho, np.sqrt(rate / a / rho))),
        "precision": ([d.second[i] ** -2 for d in draws], stats.gamma(a, scale=1 / rate)),
    }
    i = fullest[EXPONENTIAL]
    n, total, first = leaf[i, [N, TOTAL, FIRST]]
    of["exponential"] = [d.first[i] for d in draws], stats.gamma(STRENGTHS.exponential + n, scale=1 / (first + total))
    i = fullest[POISSON]
    n, total, first = leaf[i, [N, TOTAL, FIRST]]
    of["poisson"] = [d.first[i] for d in draws], stats.gamma(STRENGTHS.poisson + total, scale=1 / (first + n))
    cells = int(leaf[fullest[CATEGORICAL], FIRST]) + np.arange(3)
    pseudo = state.tallies.cells[cells] + STRENGTHS.categorical
    of["categorical"] = [d.cells[cells[0]] for d in draws], stats.beta(pseudo[0], pseudo[1:].sum())
    alpha = state.tallies.counts[0] + STRENGTHS.alpha
    of["weight"] = [d.weight[0, 0] for d in draws], stats.beta(alpha[0], alpha[1])
    assert (draws[0].second[family == GAUSSIAN] > 0).all()
    for name, (found, wanted) in of.items():
        assert stats.kstest(found, wanted.cdf).pvalue > 1e-3, name
