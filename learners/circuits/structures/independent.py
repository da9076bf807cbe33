"""All variables independent: the simplest circuit, and the floor of every comparison."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learners.circuits.circuit import Circuit
from learners.circuits.structures.circuit_builder import Blocks
from learners.circuits.structures.variables import Variable


def independent(variables: Sequence[Variable]) -> Circuit:
    """One product of the overall distribution of each variable."""
    blocks = Blocks([variable.n_values for variable in variables])
    nodes = [variable.overall_leaf(blocks, v) for v, variable in enumerate(variables)]
    blocks.products(np.array([nodes]))
    return blocks.circuit()
