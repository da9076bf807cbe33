"""A posterior over structures as a circuit whose variables are the columns' parent sets and whose assignments are
graphs.
"""

from __future__ import annotations

import json

import numpy as np

from learners.circuits.circuit import Circuit
from learners.circuits.kernels import CATEGORICAL
from learners.circuits.model import CircuitModel
from learners.circuits.structures.circuit_builder import Blocks
from learners.errors import LearnerError
from learners.kernels.arrays import Floats
from learners.orders.lattice.graph_samples import bitset_nodes
from learners.orders.lattice.lattice import OrderSums
from learners.orders.model import OrderModel
from learners.schema import Attribute, Schema

# Of all leaves together: 64 MiB, which 10 columns take without limits on their parents.
MOST_PARAMETERS = 1 << 23
NO_PARENTS = "(none)"


class TooManyParentSets(LearnerError, ValueError):
    """Raised if the circuit of a posterior would be too large."""

    def __init__(self, n_parameters: int) -> None:
        super().__init__(
            f"The circuit over orders would have {n_parameters:,} parameters in its leaves, more than {MOST_PARAMETERS:,}. Train with "
            "fewer columns, candidates, max_parents or sets."
        )


def order_circuit(model: OrderModel) -> CircuitModel:
    """Return the exact distribution of graphs under the order prior as a circuit.

    Variable i is the parent set of column i. A sum node for each set of columns that may come first chooses the
    next column; each product node below it has a leaf for the parent sets within that set, and the sum node of
    the set with this column.

    Raises TooManyParentSets.

    References
    ----------
    Wang, Wicker, Kwiatkowska (2022), section 4.
    """
    sums = model.posterior.prior_sums
    possible = [np.flatnonzero(sums.scores.of(node) > -np.inf) for node in range(sums.scores.d)]
    attributes = [
        Attribute(name, "nominal", _words(model, node, possible[node].tolist()))
        for node, name in enumerate(model.names)
    ]
    facts = {"learner": "orders", "of": "parent sets"}
    return CircuitModel(Schema(tuple(attributes), None, ("",)), _circuit(sums, possible), facts)


def _words(model: OrderModel, node: int, indices: list[int]) -> tuple[str, ...]:
    """Name the parent sets of a column: names joined by commas, or JSON lists if that is ambiguous."""
    candidates = model.posterior.scores.candidates[node]
    sets = [[model.names[candidates[bit]] for bit in bitset_nodes(index)] for index in indices]
    words = [", ".join(own) or NO_PARENTS for own in sets]
    return tuple(words if len(set(words)) == len(words) else (json.dumps(own, ensure_ascii=False) for own in sets))


def _circuit(sums: OrderSums, possible: list[np.ndarray]) -> Circuit:
    scores, lattice = sums.scores, sums.lattice
    steps = np.repeat(np.arange(lattice.sets.size), np.diff(lattice.starts))
    logs = sums.alpha.logs[lattice.places] + sums.after.logs[lattice.targets]
    # What no order reaches, or no order completes, is no part of the circuit.
    is_used = np.isfinite(logs) & (sums.before.mantissa[steps] > 0.0)
    used = np.flatnonzero(is_used)
    # Steps with the same column and the same candidates before it share a leaf.
    firsts = used[np.unique(lattice.places[used], return_index=True)[1]].tolist()
    n_parameters = sum(possible[lattice.nodes[step]].size for step in firsts)
    if n_parameters > MOST_PARAMETERS:
        raise TooManyParentSets(n_parameters)
    blocks = Blocks([own.size for own in possible])
    leaf: dict[int, int] = {}
    for step in firsts:
        node, place = int(lattice.nodes[step]), int(lattice.places[step])
        within = place - int(scores.starts[node])
        own = possible[node]
        shares: Floats = np.where((own & ~within) == 0, scores.of(node)[own], -np.inf)
        shares = shares - np.logaddexp.reduce(shares)
        (leaf[place],) = blocks.leaves(CATEGORICAL, [node], shares[np.newaxis])
    root_of = np.full(lattice.sets.size, -1)
    for s in range(lattice.sets.size - 2, -1, -1):
        own_steps = np.arange(lattice.starts[s], lattice.starts[s + 1])
        own_steps = own_steps[is_used[own_steps]]
        if not own_steps.size:
            continue
        leaves = np.array([leaf[place] for place in lattice.places[own_steps].tolist()])
        below = root_of[lattice.targets[own_steps]]
        children = leaves if (below < 0).all() else blocks.products(np.stack([leaves, below], axis=1))
        weights = logs[own_steps]
        root_of[s] = blocks.sums(children[np.newaxis], (weights - np.logaddexp.reduce(weights))[np.newaxis])[0]
    return blocks.circuit()
