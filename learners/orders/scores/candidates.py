"""Selection of candidate parents, if there are too many nodes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from learners.kernels.arrays import Floats, Integers, Uint64s
from learners.orders.scores.bdeu_bge import BDeu, BGe
from learners.orders.scores.kernels import best_bge_parent_additions
from learners.orders.scores.scores import StructurePrior
from learners.passes.engine import Advance

Additions = Callable[[list[int], list[int]], Floats]


def all_candidate_parents(d: int, prior: StructurePrior) -> tuple[Integers, ...]:
    """Return every parent that the prior allows."""
    return tuple(np.array(prior.allowed(node, d), np.int64) for node in range(d))


def greedy_candidate_parents(
    score: BGe | BDeu, prior: StructurePrior, most_candidates: int, most: int, advance: Advance | None = None
) -> tuple[Integers, ...]:
    """Select candidates of each node greedily: repeatedly the one whose best parent set, of at most `most` parents,
    scores best.

    The set contains the new candidate and any of those already chosen; for nominal columns at most one of these.
    Required parents come first.

    References: Viinikka, Hyttinen, Pensar, Koivisto (2020), Towards scalable Bayesian learning of causal DAGs, section
    4.1 (greedy).
    """
    d = int(score.sizes.size) if isinstance(score, BDeu) else score.d
    pairs = _pair_scores(score, prior, most) if isinstance(score, BDeu) else None
    candidates = []
    for node in range(d):
        if advance is not None:
            advance(node, d)
        if isinstance(score, BGe):
            additions = _bge_additions(score, prior, node, most)
        else:
            assert pairs is not None
            additions = _bdeu_additions(pairs[node])
        allowed, chosen = prior.allowed(node, d), prior.required_of(node)
        best = np.full(d, -np.inf)
        # What is required counts as chosen one after the other, as the rest is.
        for n_first in range(len(chosen)):
            _raise(best, additions, chosen[:n_first], [other for other in allowed if other not in chosen])
        while len(chosen) < min(most_candidates, len(allowed)):
            others = [other for other in allowed if other not in chosen]
            _raise(best, additions, chosen, others)
            chosen.append(max(others, key=lambda other: (best[other], -other)))
        candidates.append(np.array(sorted(chosen), np.int64))
    return tuple(candidates)


def _raise(best: Floats, additions: Additions, chosen: list[int], others: list[int]) -> None:
    best[others] = np.maximum(best[others], additions(chosen, others))


def _bge_additions(score: BGe, prior: StructurePrior, node: int, most: int) -> Additions:
    scale, d = score.scale, score.d
    constants = score.constants(d - 1) + prior.of_sizes(d)

    def additions(chosen: list[int], others: list[int]) -> Floats:
        best = np.full(len(others), -np.inf)
        members = [node, *chosen, *others]
        r = np.ascontiguousarray(scale[np.ix_(members, members)])
        best_bge_parent_additions(r, constants, score.degrees, len(chosen), most, best)
        return best

    return additions


def _bdeu_additions(pairs: Floats) -> Additions:
    """Return a function over the scores (d, d) of all pairs of parents, with single parents on the diagonal."""

    def additions(chosen: list[int], others: list[int]) -> Floats:
        return pairs[others, others] if not chosen else pairs[chosen[-1], others]

    return additions


def _pair_scores(score: BDeu, prior: StructurePrior, most: int) -> Floats:
    """Return the log score of node i given parents a and b, [i, a, b], (d, d, d) float64, -inf if not allowed."""
    d = int(score.sizes.size)
    of_sizes = prior.of_sizes(d)
    scores = np.full((d, d, d), -np.inf)
    largest = min(2, most, d - 1)
    sets = _small_sets(d, largest + 1)
    h = dict(zip(sets.tolist(), score.potentials(sets).tolist(), strict=True))
    for node in range(d):
        others = [other for other in range(d) if other != node]
        own = 1 << node
        for a in others:
            for b in others if largest == 2 else [a]:
                parents = (1 << a) | (1 << b)
                n_parents = parents.bit_count()
                if n_parents <= largest:
                    scores[node, a, b] = h[parents | own] - h[parents] + of_sizes[n_parents]
    return scores


def _small_sets(d: int, most: int) -> Uint64s:
    """Return all sets of at most `most` of d nodes, ascending."""
    sets = {0}
    for _ in range(most):
        sets |= {one | (1 << node) for one in sets for node in range(d)}
    return np.array(sorted(sets), np.uint64)
