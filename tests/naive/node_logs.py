"""Log values and derivatives of every node of a circuit at rows as in `log_values`, by the kernel that posteriors use."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from learners.circuits.circuit import Circuit
from learners.circuits.evaluation.evaluate import NO_LOGS, _scratch, as_rows
from learners.circuits.evaluation.extended_range_kernels import node_logs
from learners.kernels.arrays import Floats


def node_log_values(circuit: Circuit, x: ArrayLike) -> Floats:
    """(n_nodes, n_rows) float64: log value of every node; exact, log 0 is -inf."""
    x, logs = _room(circuit, x)
    node_logs(circuit.arrays, NO_LOGS, x, np.arange(x.shape[1]), *_scratch(circuit, x.shape[1]), logs, NO_LOGS)
    return logs


def node_log_derivatives(circuit: Circuit, x: ArrayLike) -> Floats:
    """(n_nodes, n_rows) float64: log of the derivative of the root's value by every node's; exact also where children are zero.

    References
    ----------
    Darwiche (2003), section 4.2; Zhao, Gordon (2017), lemma 2.
    """
    x, logs = _room(circuit, x)
    node_logs(circuit.arrays, NO_LOGS, x, np.arange(x.shape[1]), *_scratch(circuit, x.shape[1]), NO_LOGS, logs)
    return logs


def _room(circuit: Circuit, x: ArrayLike) -> tuple[Floats, Floats]:
    x = as_rows(circuit, x)
    return x, np.empty((circuit.n_nodes, x.shape[1]))
