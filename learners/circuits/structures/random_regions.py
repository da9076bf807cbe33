"""Random region graphs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from learners.circuits.circuit import Circuit
from learners.circuits.structures.circuit_builder import Blocks, log_shares
from learners.circuits.structures.variables import Variable
from learners.errors import InvalidParameter
from learners.kernels.arrays import Integers

Region = tuple[int, ...]

CONCENTRATION = 0.1
"""Of the Dirichlet distributions that weights are drawn from: sums differ, of which learning makes more; nodes that are alike stay alike."""


def random_regions(
    variables: Sequence[Variable],
    *,
    depth: int = 3,
    sums: int = 4,
    replicas: int = 4,
    seed: int = 0,
    as_sums: bool = False,
) -> Circuit:
    """A circuit over a random region graph: each replica halves the variables at random, again and again.

    A region has `sums` nodes, each a sum over all products of a node from either half; regions with the same variables
    are one region, so that the circuit is a DAG. Raises InvalidParameter if a number is out of range.

    depth: how often a region is halved; a region of one variable is not halved further.
    sums: nodes per region.
    seed: of the halves, the weights and the leaves.
    as_sums: categorical distributions as sums over shared indicators instead of leaves.
    References: Peharz et al. (2019), Random Sum-Product Networks, section 3.
    """
    for name, value, least in (("depth", depth, 0), ("sums", sums, 1), ("replicas", replicas, 1)):
        if value < least:
            raise InvalidParameter(name, value, f"use {least} or more")
    rng = np.random.default_rng(seed)
    root = tuple(range(len(variables)))
    partitions: dict[Region, set[tuple[Region, Region]]] = {}
    for _ in range(replicas):
        _halve(root, depth, partitions, rng)
    blocks = Blocks([variable.n_values for variable in variables])
    nodes: dict[Region, Integers] = {}
    regions = set(partitions).union(half for halves in partitions.values() for pair in halves for half in pair)
    for region in sorted(regions | {root}, key=lambda region: (len(region), region)):
        if region in partitions:
            nodes[region] = _region_sums(blocks, partitions[region], nodes, 1 if region == root else sums, rng)
        else:
            leaves = [variables[v].random_leaves(blocks, v, sums, rng, as_sums) for v in region]
            nodes[region] = blocks.products(np.stack(leaves, axis=1))
    if root not in partitions and sums > 1:
        blocks.sums(nodes[root][np.newaxis], log_shares(rng.dirichlet(np.ones(sums), 1)))
    return blocks.circuit()


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
    blocks: Blocks,
    halves: set[tuple[Region, Region]],
    nodes: dict[Region, Integers],
    n: int,
    rng: np.random.Generator,
) -> Integers:
    pairs = [pair for left, right in sorted(halves) for pair in product(nodes[left], nodes[right])]
    products = blocks.products(np.array(pairs))
    # Weights of zero are zeros that no learner can lift.
    weights = rng.dirichlet(np.full(products.size, CONCENTRATION), n) + 1e-3 / products.size
    return blocks.sums(np.broadcast_to(products, (n, products.size)), log_shares(weights))
