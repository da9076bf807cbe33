"""Mixtures of circuits: one for each cluster of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from learners.circuits.circuit import Circuit, CircuitArrays
from learners.circuits.kernels import SUM
from learners.circuits.structures.circuit_builder import log_shares
from learners.counts.pairwise import PairwiseCounts
from learners.errors import InvalidParameter
from learners.kernels.arrays import Array, Integers
from learners.schema import Chunk, Schema

Make = Callable[[PairwiseCounts, int], Circuit]


def mixture(parts: Sequence[Circuit], weights: ArrayLike) -> Circuit:
    """One sum over circuits of the same variables, by shares (n_parts,) in any unit.

    Raises InvalidParameter if there is no part, or their variables differ.
    """
    if not parts:
        raise InvalidParameter("parts", 0, "a mixture needs one circuit or more")
    domains = parts[0].n_values
    if any(not np.array_equal(part.n_values, domains) for part in parts):
        raise InvalidParameter("parts", len(parts), "circuits of a mixture have the same variables")
    firsts = np.cumsum([0, *(part.n_nodes for part in parts)])
    roots = firsts[1:] - 1
    n_edges = sum(part.n_edges for part in parts)
    return Circuit(
        CircuitArrays(
            np.concatenate([*(part.kind for part in parts), np.array([SUM], np.int8)]),
            np.concatenate([_starts([part.child_starts for part in parts]), [n_edges + len(parts)]]),
            np.concatenate([*(part.children + first for part, first in zip(parts, firsts, strict=False)), roots]),
            np.concatenate([*(part.log_weight for part in parts), log_shares(weights)]),
            np.concatenate([*(part.variable for part in parts), np.array([-1])]),
            _with_one_more(_starts([part.leaf_starts for part in parts])),
            np.concatenate([part.leaf_parameters for part in parts]),
            domains,
        )
    )


def _starts(pieces: Sequence[Integers]) -> Integers:
    """Starts of several sequences of segments as those of one, its end included."""
    ends = np.cumsum([0, *(piece[-1] for piece in pieces)])
    return np.concatenate([*(piece[:-1] + end for piece, end in zip(pieces, ends, strict=False)), ends[-1:]])


def _with_one_more(starts: Integers) -> Integers:
    """With an empty segment at the end."""
    return np.append(starts, starts[-1])


def clusters_of(x: Array, n_values: Sequence[int], n_clusters: int, seed: int) -> Integers:
    """(n_rows,) int64: a cluster of each row, by k-means over one number for each value of each variable.

    x (n_variables, n_rows) int64: codes; what lies outside a domain is missing, and near to nothing.
    """
    # Imported here: a command that learns no mixture should not wait for scikit-learn.
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    # Of two values one tells the other.
    columns = [x[v] == code for v, size in enumerate(n_values) for code in range(int(size == 2), size)]
    points = np.stack(columns, axis=1).astype(np.float32) if columns else np.zeros((x.shape[1], 1), np.float32)
    with threadpool_limits(1):  # sums in another order would make other clusters
        found = KMeans(n_clusters, n_init=1, max_iter=30, random_state=seed).fit(points)
    return np.asarray(found.labels_, np.int64)


def mixture_of_clusters(schema: Schema, rows: Chunk, cluster: Integers, make: Make) -> Circuit:
    """A circuit for each cluster of rows (n_rows,): `make(pairs, number)` makes it of the pairwise counts of its rows.

    References: Meila, Jordan (2000), Learning with mixtures of trees; Liu, Van den Broeck (2021), section 5.
    """
    names, sizes = np.unique(cluster, return_counts=True)
    parts = []
    for number, name in enumerate(names.tolist()):
        pairs = PairwiseCounts(schema)
        pairs.update(rows.rows(cluster == name))
        parts.append(make(pairs, number))
    return mixture(parts, sizes)
