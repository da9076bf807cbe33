# mypy: disallow-untyped-defs=False, check-untyped-defs=False
"""BGe scores of all parent sets of a node."""

from __future__ import annotations

import numpy as np

from learners.kernels.jit import kernel, popcount


@kernel
def bge_scores(r, constants, degrees, most, work, scores):
    """The log score of every set of candidate parents, by Schur complements shared between sets.

    r (k + 1, k + 1) float64, the posterior scale matrix of the node and then of its k candidates; constants (k + 1,) the
    terms that depend on the number of parents only; degrees = N + alpha_w - d; most parents; work (k + 1, k + 1, k + 1)
    scratch; OUT scores (2^k,), sets as bits of the index, -inf where there are too many parents.
    """
    k = constants.size - 1
    # Level b: the node and candidates 0..b-1 once the candidates from b on are in or out; its matrix is work[at[b]], of
    # which the lower triangle counts.
    at = np.full(k + 1, k, np.int64)
    log_det = np.zeros(k + 1)
    for i in range(k + 1):
        for j in range(i + 1):
            work[k, i, j] = r[i, j]
    for index in range(1 << k):
        n_parents = np.int64(popcount(np.uint64(index)))
        if n_parents > most:
            scores[index] = -np.inf
            continue
        # Levels above the highest bit that has changed still hold: the first set with these upper bits had no others.
        highest = k - 1
        if index > 0:
            highest = 0
            while (index >> highest) & 1 == 0:
                highest += 1
        for b in range(highest, -1, -1):
            at[b] = at[b + 1]
            log_det[b] = log_det[b + 1]
            if (index >> b) & 1:
                above, below = work[at[b + 1]], work[b]
                pivot = above[b + 1, b + 1]
                for i in range(b + 1):
                    factor = above[b + 1, i] / pivot
                    for j in range(i + 1):
                        below[i, j] = above[i, j] - factor * above[b + 1, j]
                at[b] = b
                log_det[b] += np.log(pivot)
        half = (degrees + n_parents) / 2.0
        log_variance = np.log(work[at[0], 0, 0])
        scores[index] = constants[n_parents] - 0.5 * log_det[0] - (half + 0.5) * log_variance
