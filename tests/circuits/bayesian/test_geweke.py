"""Rows and choices drawn from the prior, against rows and choices that turn by turn are drawn given each other."""

from dataclasses import replace

import numpy as np
import pytest

from learners.circuits.bayesian.circuit_layout import draw_posterior_parameters
from learners.circuits.bayesian.collapsed_sampler import InMemory, LazySampler, Moves
from learners.circuits.bayesian.leaf_kernels import CENTRE, KIND
from tests.circuits.bayesian.problems import EXPONENTIAL, GAUSSIAN, POISSON, STRENGTHS, WORDS, empty_tallies, prior_of
from tests.naive import bayesian_circuits as naive

FAMILIES = {"gaussian": GAUSSIAN, "exponential": EXPONENTIAL, "poisson": POISSON, "categorical": WORDS}
N_ROWS, N_DRAWS, BATCHES = 4, 1000, 25


class Model:
    """Trees and leaves of a tiny problem, to draw from."""

    def __init__(self, column):
        self.prior = prior_of([column, column], seed=5)
        self.trees = {choices: own for choices, *own in naive.induced_trees(naive.tree_of(self.prior))}
        self.keys = list(self.trees)
        self.nothing = empty_tallies(self.prior)

    def choices(self, random, parameters):
        """An induced tree for each row."""
        weights = [np.prod([parameters.weight[edge] for edge in edges]) for edges, _ in self.trees.values()]
        drawn = random.choice(len(weights), N_ROWS, p=np.array(weights) / sum(weights))
        return np.array([self.keys[i] for i in drawn], np.uint8)

    def rows(self, random, parameters, choices):
        """Numbers from the leaves; one is missing."""
        x = np.full((N_ROWS, 2), np.nan)
        for n, own in enumerate(map(tuple, choices.tolist())):
            for leaf in self.trees[own][1]:
                kind = int(self.prior.leaf[leaf, KIND])
                x[n, kind // 8] = self.number(random, parameters, leaf, kind % 8)
        x[1, 0] = np.nan
        return x.astype(np.float32)

    def number(self, random, parameters, leaf, family):
        first, second = parameters.first[leaf], parameters.second[leaf]
        if family == naive.GAUSSIAN:
            return random.normal(first, second)
        if family == naive.CATEGORICAL:
            start = int(self.prior.leaf[leaf, 5])
            return random.choice(3, p=parameters.cells[start : start + 3])
        drawn = random.exponential(1 / first) if family == naive.EXPONENTIAL else random.poisson(first)
        return drawn - self.prior.leaf[leaf, CENTRE]


def told(x, choices):
    """Averages that depend on everything, none of which has heavy tails."""
    y, known = np.tanh(np.nan_to_num(x) / 2), ~np.isnan(x)
    together = (choices[:, np.newaxis] == choices).mean(axis=(0, 1))
    alike = (choices[:, np.newaxis] == choices).all(axis=2)
    near = np.exp(-((y[:, np.newaxis, 1] - y[:, 1]) ** 2) * 9)
    return [y[known].mean(), (y[known] ** 2).mean(), (y[:, 0] * y[:, 1]).mean(), *together, (alike * near).mean()]


def simulated(model, random):
    """From the prior."""
    found = []
    for _ in range(N_DRAWS):
        parameters = draw_posterior_parameters(random, model.prior, model.nothing)
        choices = model.choices(random, parameters)
        found.append(told(model.rows(random, parameters, choices), choices))
    return np.array(found)


def in_turns(model, random, make):
    """Choices by the sampler given the rows, then rows given the choices."""
    parameters = draw_posterior_parameters(random, model.prior, model.nothing)
    choices = model.choices(random, parameters)
    x, found = model.rows(random, parameters, choices), []
    for _ in range(N_DRAWS):
        rows = InMemory(x)
        state, _ = make(model.prior, rows)(random, LazySampler(model.prior, rows).state_of(choices))
        choices = state.choices
        parameters = draw_posterior_parameters(random, model.prior, state.tallies)
        x = model.rows(random, parameters, choices)
        found.append(told(x, choices))
    return np.array(found)


def lazily(prior, rows):
    return LazySampler(prior, rows, Moves(1, 3)).step


def z_scores(a, b):
    """Of the differences of means, by means of batches."""
    means = [x.reshape(BATCHES, -1, x.shape[1]).mean(axis=1) for x in (a, b)]
    variance = sum(m.var(axis=0, ddof=1) / BATCHES for m in means)
    return (means[0].mean(axis=0) - means[1].mean(axis=0)) / np.sqrt(variance)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_lazy_sampler_and_the_parameters_have_the_joint_distribution_of_the_prior(family):
    """Seven averages; 4.5 standard errors, about one false alarm in twenty thousand."""
    model, random = Model(FAMILIES[family]), np.random.default_rng(8)
    assert np.abs(z_scores(simulated(model, random), in_turns(model, random, lazily))).max() < 4.5


def test_a_sampler_of_another_prior_is_noticed():
    model, random = Model(GAUSSIAN), np.random.default_rng(8)
    other = prior_of([GAUSSIAN] * 2, seed=5, strengths=replace(STRENGTHS, alpha=4.0))

    def of_another(_, rows):
        return lazily(other, rows)

    assert np.abs(z_scores(simulated(model, random), in_turns(model, random, of_another))).max() > 6
