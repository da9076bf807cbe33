"""All variables independent: the simplest circuit, and the floor of every comparison."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learners.circuits.circuit import EXPONENTIAL, GAUSSIAN, POISSON, Circuit
from learners.circuits.structures.blocks import Blocks, log_shares
from learners.circuits.structures.variables import Variable


def independent(variables: Sequence[Variable]) -> Circuit:
    """One product of the overall distribution of each variable.

    Parameters
    ----------
    variables : sequence of Variable

    Returns
    -------
    Circuit
    """
    blocks = Blocks([variable.n_values for variable in variables])
    nodes = [_overall(blocks, v, variable) for v, variable in enumerate(variables)]
    blocks.products(np.array([nodes]))
    return blocks.circuit()


def _overall(blocks: Blocks, v: int, variable: Variable) -> int:
    if variable.kind == "categorical":
        return int(blocks.distributions(v, log_shares(variable.probabilities)[np.newaxis])[0])
    kind, parameters = {
        "gaussian": (GAUSSIAN, [variable.mean, variable.std]),
        "poisson": (POISSON, [variable.mean]),
        "exponential": (EXPONENTIAL, [1.0 / variable.mean]),
    }[variable.kind]
    return int(blocks.leaves(kind, [v], np.array([parameters]))[0])
