"""Random region graphs, mixtures of circuits, and clusters of rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import ArrayLike

from learners.circuits.circuit import Circuit, CircuitArrays
from learners.circuits.kernels import SUM
from learners.circuits.structures.circuit_builder import Blocks, log_normalised_weights
from learners.circuits.structures.k_means import k_means
from learners.errors import InvalidParameter
from learners.kernels.arrays import Array, Integers

Region = tuple[int, ...]

# Concentration of the Dirichlet distributions that weights are drawn from: a small one makes sums differ,
# and learning widens the differences, whereas nodes that start alike stay alike.
CONCENTRATION = 0.1


def random_regions(
    shares: Sequence[Sequence[float]], *, depth: int = 3, sums: int = 4, replicas: int = 4, seed: int = 0
) -> Circuit:
    """Build a circuit over a random region graph: each replica repeatedly halves the variables at random.

    A region has `sums` nodes, each a sum over all products of a node from either half; regions with the same
    variables are merged, so that the circuit is a DAG. Raises InvalidParameter if a number is out of range.

    shares: shares of the values of each variable, around which its leaves are drawn.
    depth: how often a region is halved; a region of one variable is not halved further.
    sums: nodes per region.
    seed: seed of the halves, the weights and the leaves.
    References: Peharz et al. (2019), Random Sum-Product Networks, section 3.
    """
    for name, value, least in (("depth", depth, 0), ("sums", sums, 1), ("replicas", replicas, 1)):
        if value < least:
            raise InvalidParameter(name, value, f"{least} or more")
    rng = np.random.default_rng(seed)
    root = tuple(range(len(shares)))
    partitions: dict[Region, set[tuple[Region, Region]]] = {}
    for _ in range(replicas):
        _halve(root, depth, partitions, rng)
    blocks = Blocks([len(own) for own in shares])
    nodes: dict[Region, Integers] = {}
    regions = set(partitions).union(half for halves in partitions.values() for pair in halves for half in pair)
    for region in sorted(regions | {root}, key=lambda region: (len(region), region)):
        if region in partitions:
            nodes[region] = _region_sums(blocks, partitions[region], nodes, 1 if region == root else sums, rng)
        else:
            leaves = [_leaves_around(blocks, v, shares[v], sums, rng) for v in region]
            nodes[region] = blocks.products(np.stack(leaves, axis=1))
    if root not in partitions and sums > 1:
        blocks.sums(nodes[root][np.newaxis], log_normalised_weights(rng.dirichlet(np.ones(sums), 1)))
    return blocks.circuit()


def _leaves_around(
    blocks: Blocks, variable: int, shares: Sequence[float], n: int, rng: np.random.Generator
) -> Integers:
    """Add n leaves drawn as if from a few rows: different between leaves, with no impossible value."""
    share = np.asarray(shares) / sum(shares)
    p = rng.gamma(1.0 + share * share.size, size=(n, share.size)) + 1e-3
    return blocks.distributions(variable, log_normalised_weights(p * (share + 1e-3)))


def _halve(
    region: Region, depth: int, partitions: dict[Region, set[tuple[Region, Region]]], rng: np.random.Generator
) -> None:
    if not depth or len(region) < 2:
        return
    order = rng.permutation(region).tolist()
    halves = tuple(sorted(order[: len(region) // 2])), tuple(sorted(order[len(region) // 2 :]))
    partitions.setdefault(region, set()).add((min(halves), max(halves)))
    for half in halves:
        _halve(half, depth - 1, partitions, rng)


def _region_sums(
    blocks: Blocks, halves: set[tuple[Region, Region]], nodes: dict[Region, Integers], n: int, rng: np.random.Generator
) -> Integers:
    pairs = [pair for left, right in sorted(halves) for pair in product(nodes[left], nodes[right])]
    products = blocks.products(np.array(pairs))
    # Weights of zero are zeros that no learner can lift.
    weights = rng.dirichlet(np.full(products.size, CONCENTRATION), n) + 1e-3 / products.size
    return blocks.sums(np.broadcast_to(products, (n, products.size)), log_normalised_weights(weights))


def mixture_of_circuits(parts: Sequence[Circuit], weights: ArrayLike) -> Circuit:
    """Combine circuits of the same variables in one sum, by unnormalized shares (n_parts,).

    Raises InvalidParameter if there is no part, or their variables differ.
    """
    if not parts:
        raise InvalidParameter("parts", 0, because="a mixture needs one circuit or more")
    domains = parts[0].n_values
    if any(not np.array_equal(part.n_values, domains) for part in parts):
        raise InvalidParameter("parts", len(parts), because="the circuits of a mixture must have the same variables")
    firsts = np.cumsum([0, *(part.n_nodes for part in parts)])
    roots = firsts[1:] - 1
    n_edges, leaf_starts = sum(part.n_edges for part in parts), _starts([part.leaf_starts for part in parts])
    return Circuit(
        CircuitArrays(
            np.concatenate([*(part.kind for part in parts), np.array([SUM], np.int8)]),
            np.concatenate([_starts([part.child_starts for part in parts]), [n_edges + len(parts)]]),
            np.concatenate([*(part.children + first for part, first in zip(parts, firsts, strict=False)), roots]),
            np.concatenate([*(part.log_weight for part in parts), log_normalised_weights(weights)]),
            np.concatenate([*(part.variable for part in parts), np.array([-1])]),
            np.append(leaf_starts, leaf_starts[-1]),  # the sum has no parameters
            np.concatenate([part.leaf_parameters for part in parts]),
            domains,
        )
    )


def _starts(pieces: Sequence[Integers]) -> Integers:
    """Concatenate the starts of several sequences of segments, including the final end."""
    ends = np.cumsum([0, *(piece[-1] for piece in pieces)])
    return np.concatenate([*(piece[:-1] + end for piece, end in zip(pieces, ends, strict=False)), ends[-1:]])


def k_means_row_clusters(x: Array, n_values: Sequence[int], n_clusters: int, seed: int) -> Integers:
    """Cluster rows by k-means over one number for each value of each variable, (n_rows,) int64.

    x (n_variables, n_rows) int64: codes; values outside a domain are missing, and close to nothing.
    """
    # One of two values determines the other.
    columns = [x[v] == code for v, size in enumerate(n_values) for code in range(int(size == 2), size)]
    points = np.stack(columns, axis=1).astype(np.float32) if columns else np.zeros((x.shape[1], 1), np.float32)
    return k_means(points, n_clusters, np.random.default_rng(seed), rounds=30)
