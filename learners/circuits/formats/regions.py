"""The regions of a circuit: all nodes over the same columns as one, which stays small where circuits are large."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.circuits.circuit import Circuit
from learners.circuits.kernels import PRODUCT, SUM


class Region(NamedTuple):
    """All nodes over the same columns."""

    variables: tuple[int, ...]  # ascending
    n_sums: int
    n_products: int
    n_leaves: int
    children: tuple[int, ...]  # the regions that its nodes have children in, as places in the list of regions


def regions(circuit: Circuit) -> list[Region]:
    """The regions of a circuit, those of few columns first; the last one is that of the root."""
    scopes, first, region = np.unique(circuit.scopes, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(np.bitwise_count(scopes).sum(axis=1), kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    region = place[region.ravel()]
    counts = np.zeros((order.size, 3), np.int64)
    kind = np.where(circuit.kind == SUM, 0, np.where(circuit.kind == PRODUCT, 1, 2))
    np.add.at(counts, (region, kind), 1)
    parents = region[np.repeat(np.arange(circuit.n_nodes), np.diff(circuit.child_starts))]
    pairs = np.unique(np.stack([parents, region[circuit.children]], axis=1), axis=0)
    below: list[list[int]] = [[] for _ in range(order.size)]
    for parent, child in pairs.tolist():
        if parent != child:
            below[parent].append(child)
    return [
        Region(tuple(circuit.scope(node)), own[0], own[1], own[2], tuple(children))
        for node, own, children in zip(first[order].tolist(), counts.tolist(), below, strict=True)
    ]
