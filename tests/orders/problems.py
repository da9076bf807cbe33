"""Small structure problems with every score by definition."""

import math
from functools import lru_cache

import numpy as np
import pyarrow as pa

from learners import Source
from learners.orders.scores.bdeu_bge import BDeu, BGe, BGePrior
from learners.orders.scores.candidates import all_candidate_parents
from learners.orders.scores.scores import StructurePrior, family_scores_with_prior
from learners.passes.learner import drive
from learners.registry import recipes
from tests.naive import orders as naive

NAMES = ["a", "b", "c", "d"]
EXACT = {"is_exact": True, "orders": 1.0, "graphs": 1.0, "limits": {"max_parents": None, "candidates": None}}


def learned(table, **parameters):
    """The posterior that the learner `orders` has of a table."""
    return drive(recipes.learner("orders", parameters, None), Source.of_table(table))


class Rows:
    """Distinct rows in memory."""

    is_in_memory = True

    def __init__(self, codes):
        rows, counts = np.unique(codes, axis=1, return_counts=True)
        self.x, self.counts, self.n_distinct = np.ascontiguousarray(rows.astype(np.uint8)), counts, counts.size

    def blocks(self):
        yield self.x, self.counts


def gaussian_table(d, n, seed, strength=0.7):
    """(n, d) rows of a random linear Gaussian network."""
    rng = np.random.default_rng(seed)
    b = np.triu(rng.normal(size=(d, d)) * (rng.random((d, d)) < 0.5), 1) * strength
    x = rng.normal(size=(n, d)) @ np.linalg.inv(np.eye(d) - b)
    return x[:, rng.permutation(d)]


def bge_of(x, prior=BGePrior()):
    """The score of a table (n, d)."""
    deviations = x - x.mean(axis=0)
    return BGe(len(x), x.mean(axis=0), deviations.T @ deviations, prior)


def naive_bge(x, alpha_mu=1.0, alpha_w=None, t=None):
    """log p(node | parents) by definition."""
    d = x.shape[1]
    alpha_w = d + 2.0 if alpha_w is None else alpha_w
    t = alpha_mu * (alpha_w - d - 1) / (alpha_mu + 1) if t is None else t

    def log_family(node, parents):
        both, alone = [*parents, node], list(parents)
        return naive.bge_of_set(x, both, alpha_mu, alpha_w, t) - naive.bge_of_set(x, alone, alpha_mu, alpha_w, t)

    return log_family


def log_fair(d, k):
    """Log prior of a set of k parents."""
    return -math.log(math.comb(d - 1, k))


def family_scores(score, prior=StructurePrior(sizes="uniform"), most=None, candidates=None):
    """Scores within all candidates."""
    d = int(score.sizes.size) if isinstance(score, BDeu) else score.d
    candidates = all_candidate_parents(d, prior) if candidates is None else candidates
    return family_scores_with_prior(score.tables(candidates, d - 1 if most is None else most), candidates, prior)


def subsets(candidates):
    """Every set of candidates in the order of the index."""
    return [
        tuple(int(c) for bit, c in enumerate(candidates) if (index >> bit) & 1) for index in range(1 << len(candidates))
    ]


def sensors(n=60, seed=4, d=4):
    """Numbers of very different sizes."""
    x = gaussian_table(d, n, seed) * 10.0 ** np.arange(-d // 2, d - d // 2) + 7.0
    return pa.table({name: x[:, i] for i, name in enumerate(NAMES[:d])})


def words(n=80, seed=5):
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(0, 3, n) for _ in range(4)])
    codes[3] = np.where(rng.random(n) < 0.7, codes[0], codes[3])
    table = pa.table(
        {name: pa.array([f"{name}{v}" for v in column]) for name, column in zip(NAMES, codes, strict=True)}
    )
    return table, codes


def standardised(table):
    x = np.stack([column.to_numpy() for column in table.columns], axis=1)
    return (x - x.mean(axis=0)) / x.std(axis=0), x


def enumerated(log_family, **given):
    graphs, weights, _ = naive.graph_posterior(lru_cache(log_family), 4, **given)
    return graphs, weights, naive.edge_probabilities(graphs, weights, 4)


def with_column(table, name, values):
    return table.append_column(name, pa.array(values))
